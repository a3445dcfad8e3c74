"""Leaves of one shape, stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate, get_worker_info
from torch.utils.data._utils.collate import default_collate_fn_map

from pinfeed import _core
from pinfeed.arguments import dtype_name, torch_dtype_name
from pinfeed.fields.field import Field, pin_of
from pinfeed.memory.outputs import as_output, batch_allocator
from pinfeed.runtime import get_num_threads
from pinfeed.sources.source import Selection, Source

_POOLED_BYTES = 64 * 1024  # as in runtime/buffer_pool.h: smaller requests are malloc's business


class Stack(Field):
    """Arrays, tensors or numbers of one shape and dtype, as one tensor with a batch axis in front.

    The field of every leaf that has no other. Leaves that are no arrays become what torch's
    ``default_collate`` makes of them: numbers a tensor, strings a list.

    Args:
        dtype: The batch's dtype, if not the samples' own: one that ``torch.can_cast`` allows, with
            the values that ``Tensor.to`` gives.

    Raises:
        TypeError: ``dtype`` is no torch.dtype. When samples are collated: ``torch.can_cast`` says
            no, because fractions, imaginary parts, or all but whether a value is 0 would be lost.

    Example:
        >>> pinfeed.Collate(pinfeed.Stack())([np.arange(3), np.arange(3)])
        tensor([[0, 1, 2],
                [0, 1, 2]])
    """

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise TypeError(f"Stack: dtype must be a torch.dtype or None, got {dtype!r}")
        self.dtype = dtype

    def collate(self, samples: Sequence[Any], name: str) -> Any:
        """See `Field.collate`: shape (B, *sample.shape)."""
        first = samples[0]
        refusal: Exception | None = None
        if _is_worth_stacking(first, samples):
            self._check_cast(first, name)
            try:
                return self._stack(samples, None, name)
            except TypeError as error:
                refusal = error  # torch mixes dtypes, and knows some that the native side does not
        try:
            batch = default_collate(samples)  # type: ignore[arg-type] # any sequence will do
        except (RuntimeError, TypeError, ValueError) as error:
            if type(first) is torch.Tensor and first.layout == torch.strided and refusal is None:
                self._stack(samples, None, name)  # raises, and says which sample differs
            raise refusal or type(error)(f"{name}: {error}") from error
        if not isinstance(batch, torch.Tensor):
            return batch
        if self.dtype is not None:
            self._check_cast(batch, name)
            batch = batch.to(self.dtype)
        return as_output(batch, pin_of(name))

    def gather(self, source: Source, indices: npt.NDArray[np.int64], name: str) -> Any:
        """See `Field.gather`: shape (B, *sample.shape)."""
        self._check_cast(source, name)
        selection = source.select(indices)
        if source.is_ragged:
            return self._join(selection, name)
        return self._stack(selection.rows, selection.indices, name)

    def _join(self, sequences: Selection, name: str) -> torch.Tensor:
        """Stacks sequences, which must have one length."""
        values, offsets = _core.join(
            *sequences,
            None,
            "right",
            None if self.dtype is None else torch_dtype_name(self.dtype),
            batch_allocator(pin_of(name)),
            True,
            name,
            name,
            get_num_threads(),
        )
        lengths = np.diff(offsets.numpy())
        if (lengths != lengths[0]).any():
            position = int((lengths != lengths[0]).argmax())
            raise ValueError(
                f"{name} of sample {position}: expected length {lengths[0]} as in sample 0, got "
                f"{lengths[position]}; Pad() and Jagged() take samples of different lengths"
            )
        batch: torch.Tensor = values.view(len(lengths), int(lengths[0]), *values.shape[1:])
        return batch

    def _stack(self, samples: Any, indices: Any, name: str) -> torch.Tensor:
        batch: torch.Tensor = _core.gather(
            samples,
            indices,
            None if self.dtype is None else torch_dtype_name(self.dtype),
            batch_allocator(pin_of(name)),
            True,
            name,
            name,
            get_num_threads(),
        )
        return batch

    def _check_cast(self, array: Any, name: str) -> None:
        """Raises TypeError if the array's values would lose more than range or precision."""
        if self.dtype is None:
            return
        own = getattr(torch, dtype_name(array.dtype, "Stack"), None)
        if not isinstance(own, torch.dtype):
            return  # the native side refuses what torch has no dtype for
        if torch.can_cast(own, self.dtype):
            return
        lost = "imaginary parts" if own.is_complex else "fractions"
        if self.dtype == torch.bool:
            lost = "values"
        raise TypeError(
            f"{name}: can't cast {torch_dtype_name(own)} to {torch_dtype_name(self.dtype)} "
            f"without losing {lost}; cast in the dataset if that is wanted"
        )

    def __repr__(self) -> str:
        return f"Stack({'' if self.dtype is None else self.dtype})"


def _is_worth_stacking(first: Any, samples: Sequence[Any]) -> bool:
    """Whether the samples are arrays that the native side stacks faster than torch.

    torch stacks those that are more than their memory (subclasses and tensors on devices stay what
    they are, gradients flow), and small batches, which gain nothing from a pooled buffer;
    but in a worker each would be a file of shared memory.
    """
    if is_taught_to_torch(first):
        return False
    if isinstance(first, np.ndarray):
        return True
    return (
        type(first) is torch.Tensor
        and first.is_cpu
        and first.layout == torch.strided  # others may have no nbytes
        and (first.nbytes * len(samples) >= _POOLED_BYTES or get_worker_info() is not None)
        and not any(
            isinstance(sample, torch.Tensor)
            and (sample.requires_grad or type(sample) is not torch.Tensor)
            for sample in samples
        )
    )


def is_taught_to_torch(sample: Any) -> bool:
    """Whether the function that ``default_collate`` picks for ``sample`` is not one of torch's."""
    function = default_collate_fn_map.get(type(sample))
    if function is None:
        known = (kind for kind in default_collate_fn_map if isinstance(sample, kind))
        function = default_collate_fn_map.get(next(known, None))  # type: ignore[arg-type]
    return function is not None and function.__module__ != default_collate.__module__
