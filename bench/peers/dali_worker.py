"""Runs DALI's pipelines for `bench.peers.dali`; knows nothing of torch and pinfeed."""

import json
import os
import sys
import time

import numpy as np
from nvidia.dali import fn, pipeline_def, types


def make_job(job):
    """Build what does the job once: one batch that stays the same, or a shuffled epoch."""
    images = np.load(job["images"])
    size, padding = job.get("batch_size", len(images)), job.get("padding")

    def batches():
        while True:
            indices = np.arange(len(images))
            if padding is None:
                yield images, indices
                continue
            np.random.shuffle(indices)  # noqa: NPY002
            for start in range(0, len(images), size):
                chosen = indices[start : start + size]
                yield images[chosen], chosen

    # Synchronous, one batch at a time: the clock must not see work done ahead of the question.
    @pipeline_def(
        batch_size=size,
        num_threads=job["threads"],
        device_id=None,
        exec_pipelined=False,
        exec_async=False,
        prefetch_queue_depth=1,
    )
    def normalize():
        batch, indices = fn.external_source(
            source=batches(), num_outputs=2, layout=["HWC", ""], no_copy=True
        )
        mirror = 0
        if padding is not None:
            places = [float(place) for place in range(-padding, padding + 1)]
            corner = fn.random.uniform(values=places, shape=2, dtype=types.INT32)
            window = {"axes": (0, 1), "out_of_bounds_policy": "pad"}
            batch = fn.slice(batch, corner, images.shape[1:3], **window)
            mirror = fn.random.coin_flip()
        batch = fn.crop_mirror_normalize(
            batch,
            dtype=types.FLOAT,
            output_layout=job["output"],
            mean=job["mean"],
            std=job["std"],
            mirror=mirror,
        )
        return batch, indices

    pipeline = normalize()
    pipeline.build()
    return lambda: (pipeline.run() for _ in range(0, len(images), size))


def main() -> None:
    # What DALI prints must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    run = None
    for line in sys.stdin:
        question = json.loads(line)
        answer = 0.0
        if run is None:
            run = make_job(question)
        elif "save" in question:
            outputs = [output.as_array() for batch in run() for output in batch]
            np.savez(question["save"], *outputs)
        else:
            start = time.perf_counter()
            for _ in range(question["calls"]):
                for _ in run():
                    pass
            answer = time.perf_counter() - start
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
