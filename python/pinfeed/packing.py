"""Packing of streamed documents into rows, and attention masks for packed rows.

For documents of known lengths, use `pinfeed.samplers.PackSampler`; `pinfeed.Pack`
builds the batches in both cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pinfeed.streams.packed_stream import PackedStream

__all__ = ["PackedStream", "attention_mask", "mask_mod"]


def attention_mask(document_ids: torch.Tensor) -> torch.Tensor:
    """Returns a causal attention mask that separates packed documents.

    Args:
        document_ids: Integers (rows, seq_length), as from `Pack`, on any device. Equal numbers in a row
            mark one document; the padding counts as one too.

    Returns:
        Mask of shape (rows, 1, seq_length, seq_length), bool, True where a token attends, for
        ``torch.nn.functional.scaled_dot_product_attention``; it broadcasts over heads. It takes
        ``seq_length ** 2`` bytes per row; `mask_mod` needs no such mask.

    Raises:
        TypeError: If ``document_ids`` is not a tensor of integers.
        ValueError: If its shape is not (rows, seq_length).

    Example:
        >>> pinfeed.packing.attention_mask(torch.tensor([[0, 0, 1, -1]])).int()[0, 0]
        tensor([[1, 0, 0, 0],
                [1, 1, 0, 0],
                [0, 0, 1, 0],
                [0, 0, 0, 1]], dtype=torch.int32)
    """
    ids = _checked(document_ids, "attention_mask")
    same = ids[:, None, :, None] == ids[:, None, None, :]
    return same.tril()


def mask_mod(document_ids: torch.Tensor) -> Callable[[Any, Any, Any, Any], Any]:
    """Returns `attention_mask` as a ``mask_mod`` for FlexAttention, which skips fully masked blocks.

    Args:
        document_ids: Integers (rows, seq_length), as in `attention_mask`, on the device of attention.

    Returns:
        Function for ``torch.nn.attention.flex_attention.create_block_mask``, with ``B=rows``,
        ``H=None`` and ``Q_LEN=KV_LEN=seq_length``.

    Raises:
        TypeError, ValueError: As in `attention_mask`.

    Example:
        >>> from torch.nn.attention.flex_attention import create_block_mask
        >>> mask_mod = pinfeed.packing.mask_mod(torch.tensor([[0, 0, 1, -1]]))
        >>> create_block_mask(mask_mod, 1, None, 4, 4, device="cpu").shape
        (1, 1, 4, 4)
    """
    ids = _checked(document_ids, "mask_mod")

    def mask_mod(row: Any, head: Any, query: Any, key: Any) -> Any:
        return (ids[row, query] == ids[row, key]) & (query >= key)

    return mask_mod


def _checked(document_ids: Any, function: str) -> torch.Tensor:
    if not isinstance(document_ids, torch.Tensor) or (
        document_ids.is_floating_point() or document_ids.is_complex()
    ):
        is_tensor = isinstance(document_ids, torch.Tensor)
        got = document_ids.dtype if is_tensor else type(document_ids).__name__
        raise TypeError(f"{function}: document_ids must be a tensor of integers, got {got}")
    if document_ids.ndim != 2:
        raise ValueError(
            f"{function}: document_ids must have shape (rows, seq_length), got "
            f"{tuple(document_ids.shape)}"
        )
    return document_ids
