"""Packing of streamed documents into rows, and attention masks for packed rows.

For documents of known lengths, use `pinfeed.samplers.PackSampler`; `pinfeed.Pack`
builds the batches in both cases.
"""

from pinfeed.functional.packed_masks import attention_mask, mask_mod
from pinfeed.streams.packed_stream import PackedStream

__all__ = ["PackedStream", "attention_mask", "mask_mod"]
