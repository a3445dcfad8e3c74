"""Batch samplers: random order, weights, similar lengths, packed rows."""

from typing import TYPE_CHECKING

from pinfeed.imports import lazy_names

if TYPE_CHECKING:
    from pinfeed.samplers.length_buckets import LengthBucketSampler
    from pinfeed.samplers.pack import PackSampler
    from pinfeed.samplers.shuffle import ShuffleSampler
    from pinfeed.samplers.weighted import WeightedSampler

__all__ = ["LengthBucketSampler", "PackSampler", "ShuffleSampler", "WeightedSampler"]

__getattr__ = lazy_names(
    __name__,
    {
        "LengthBucketSampler": "pinfeed.samplers.length_buckets",
        "PackSampler": "pinfeed.samplers.pack",
        "ShuffleSampler": "pinfeed.samplers.shuffle",
        "WeightedSampler": "pinfeed.samplers.weighted",
    },
)
