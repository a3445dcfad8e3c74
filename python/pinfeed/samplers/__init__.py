"""Batch samplers: random order, weights, similar lengths, packed rows."""

from pinfeed.samplers.length_buckets import LengthBucketSampler
from pinfeed.samplers.order_sampler import ShuffleSampler
from pinfeed.samplers.pack import PackSampler
from pinfeed.samplers.weighted import WeightedSampler

__all__ = ["LengthBucketSampler", "PackSampler", "ShuffleSampler", "WeightedSampler"]
