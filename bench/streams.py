"""A stream, and its source."""

import itertools
import json
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

import pinfeed
from bench.harness import DISTURBED, Job, at_most, other, ours, reference, workload

BUFFER = 1000
BUFFERED = f"`StreamDataset`, buffer of {BUFFER:,}"


def read_lines(path):
    """Yields the samples of a shard."""
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)


@workload(
    at_most(1.11),
    at_most(1.11, BUFFERED, "the source", why=(1.49, "buffering costs 0.5 µs per sample")),
    at_most(1.05, BUFFERED, "a generator with an equal buffer", why=(1.23, DISTURBED)),
)
def stream():
    """48,000 lines of JSON from 16 shards, one by one."""
    folder = tempfile.TemporaryDirectory(prefix="pinfeed-bench-")
    shards = [Path(folder.name, str(number)) for number in range(16)]
    texts = [{"number": number, "text": "a few words " * 5} for number in range(48_000)]
    for i, path in enumerate(shards):
        path.write_text("".join(json.dumps(text) + "\n" for text in texts[i::16]))

    def source():
        return itertools.chain.from_iterable(map(read_lines, shards))

    def by_hand():
        held = list(itertools.islice(samples := source(), BUFFER))
        rng = np.random.default_rng(0)
        blocks = (rng.integers(BUFFER, size=1024).tolist() for _ in itertools.repeat(None))
        for sample, slot in zip(samples, itertools.chain.from_iterable(blocks), strict=False):
            yield held[slot]
            held[slot] = sample
        yield from held

    def by_pinfeed(buffer):
        return partial(iter, pinfeed.StreamDataset(shards, buffer, open_shard=read_lines))

    def error(samples):
        seen = sorted(sample["number"] for sample in samples)
        folder.name  # noqa: B018 - keeps the files until the job is gone
        return 0.0 if seen == list(range(len(texts))) else float("inf")

    return Job(
        reference("the source, shard after shard", source),
        ours("`StreamDataset`", by_pinfeed(0)),
        ours(BUFFERED, by_pinfeed(BUFFER)),
        other("a generator with an equal buffer, positions drawn in blocks", by_hand),
        expected=error,
    )
