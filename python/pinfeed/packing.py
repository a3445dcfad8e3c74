"""Documents packed into rows as they arrive, and attention masks for packed rows.

`pinfeed.samplers.PackSampler` packs documents whose lengths are known, and `pinfeed.Pack` makes the batches.
"""

from pinfeed.functional.packed_masks import attention_mask, mask_mod
from pinfeed.streams.packed_stream import PackedStream

__all__ = ["PackedStream", "attention_mask", "mask_mod"]
