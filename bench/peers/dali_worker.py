"""Runs DALI's pipeline for `bench.peers.dali`; knows nothing of torch and pinfeed."""

import json
import os
import sys
import time

import numpy as np
from nvidia.dali import fn, pipeline_def, types


def make_pipeline(job):
    """Build the pipeline for one batch that stays the same."""
    images = np.load(job["images"])

    # Synchronous, one batch at a time: the clock must not see work done ahead of the question.
    @pipeline_def(
        batch_size=len(images),
        num_threads=job["threads"],
        device_id=None,
        exec_pipelined=False,
        exec_async=False,
        prefetch_queue_depth=1,
    )
    def normalize():
        batch = fn.external_source(source=lambda: images, layout="HWC", no_copy=True)
        return fn.crop_mirror_normalize(
            batch,
            dtype=types.FLOAT,
            output_layout=job["output"],
            mean=job["mean"],
            std=job["std"],
        )

    pipeline = normalize()
    pipeline.build()
    return pipeline


def main() -> None:
    # What DALI prints must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    pipeline = None
    for line in sys.stdin:
        question = json.loads(line)
        answer = 0.0
        if pipeline is None:
            pipeline = make_pipeline(question)
        elif "save" in question:
            (batch,) = pipeline.run()
            np.save(question["save"], batch.as_array())
        else:
            start = time.perf_counter()
            for _ in range(question["calls"]):
                pipeline.run()
            answer = time.perf_counter() - start
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
