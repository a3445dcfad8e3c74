"""Samplers of batches of similar length, and arguments for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from pinfeed.samplers.length_buckets import LengthBucketSampler

Options = dict[str, Any]

#: What messages begin with, and arguments that are right.
NAME = "LengthBucketSampler: "
GOOD: Options = {"lengths": [3, 1, 2], "batch_size": 2}


@st.composite
def options(draw: st.DrawFn, **fixed: Any) -> Options:
    """Arguments of a sampler but for its rank."""
    lengths = draw(st.lists(st.integers(0, 30), min_size=1, max_size=60))
    limits = draw(st.sampled_from(["batch_size", "max_tokens", "both"]))
    most = max(1, *lengths) if len(lengths) > 1 else max(1, lengths[0])
    drawn = {
        "lengths": lengths,
        "batch_size": None if limits == "max_tokens" else draw(st.integers(1, 12)),
        "max_tokens": None if limits == "batch_size" else draw(st.integers(most, most + 100)),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**70)),
        "bucket_batches": draw(st.integers(1, 5)),
        "drop_last": draw(st.booleans()),
        "world_size": draw(st.integers(1, 5)),
    }
    return drawn | fixed


def all_ranks(options: Options, epoch: int = 0) -> list[LengthBucketSampler]:
    samplers = [LengthBucketSampler(**options, rank=rank) for rank in range(options["world_size"])]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    return samplers


LENGTHS = np.random.default_rng(0).lognormal(4, 0.8, 5000).astype(int).clip(1, 512)


def new_sampler() -> LengthBucketSampler:
    return LengthBucketSampler(LENGTHS[:50], max_tokens=512)


def batches_of(epoch: int) -> list[list[int]]:
    sampler = LengthBucketSampler(LENGTHS[:50], max_tokens=512)
    sampler.set_epoch(epoch)
    return list(sampler)


def position(sampler: LengthBucketSampler) -> tuple[int, int]:
    state = sampler.state_dict()
    return state["epoch"], state["yielded"]


def state_at(sampler: LengthBucketSampler, epoch: int, yielded: int) -> dict[str, Any]:
    return sampler.state_dict() | {"epoch": epoch, "yielded": yielded, "finished": False}
