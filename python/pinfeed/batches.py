"""Which samples a batch is made of, and what else is known about it, on its way from sampler to field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pinfeed.packing import Packing


class IndexBatch(Sequence[int]):
    """The indices of one batch, as samplers yield them.

    Any dataset takes it: iterating gives Python integers, and ``np.asarray`` the array. An
    `ArrayDataset` and an `IndexedDataset` hand on to the collate function what else it knows.

    Args:
        indices: int64 of shape (B,).
        epoch: Which epoch the batch is of; None if nobody knows.
        packing: Where the samples go to, if they are documents that share rows.
    """

    __slots__ = ("epoch", "indices", "packing")

    def __init__(
        self,
        indices: npt.NDArray[np.int64],
        epoch: int | None = None,
        packing: Packing | None = None,
    ) -> None:
        self.indices = indices
        self.epoch = epoch
        self.packing = packing

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, position: int) -> int: ...
    @overload
    def __getitem__(self, position: slice) -> IndexBatch: ...
    def __getitem__(self, position: int | slice) -> int | IndexBatch:
        if isinstance(position, slice):
            return IndexBatch(self.indices[position], self.epoch)
        return int(self.indices[position])

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.indices, dtype, copy=copy)

    def tolist(self) -> list[int]:
        """The indices as Python integers."""
        return self.indices.tolist()

    # accelerate fills the last batch up from the first ones, with `+`.

    def __add__(self, other: Iterable[int]) -> IndexBatch:
        return IndexBatch(np.array([*self, *other], np.int64), self.epoch)

    def __radd__(self, other: Iterable[int]) -> IndexBatch:
        return IndexBatch(np.array([*other, *self], np.int64), self.epoch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __index__(self) -> int:
        # What ``samples[batch]`` of a list calls, where a sampler of batches was passed as sampler=.
        raise TypeError(
            "expected the index of one sample, got a batch of them: its sampler goes to DataLoader as "
            "batch_sampler=, not as sampler="
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexBatch, (self.indices, self.epoch, self.packing)

    def __repr__(self) -> str:
        return f"IndexBatch({self.tolist()}, epoch={self.epoch})"


class SampleBatch(Sequence[Any]):
    """The samples of one batch, with what is known about them.

    A ``Sequence`` to any collate function; torch's functions take it as a list.

    Args:
        indices: int64 of shape (B,), which samples of the dataset they are; None for a stream's.
        dataset_length: How many samples the dataset has; None for a stream.
        epoch: As in `IndexBatch`.
        packing: As in `IndexBatch`.
    """

    __slots__ = ("dataset_length", "epoch", "indices", "packing")

    def __init__(
        self,
        indices: Any,
        dataset_length: int | None,
        epoch: int | None = None,
        packing: Packing | None = None,
    ) -> None:
        self.indices = indices
        self.dataset_length = dataset_length
        self.epoch = epoch
        self.packing = packing

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls one of torch's functions, which take a list of tensors but no other sequence."""
        plain = [
            list(arg) if isinstance(arg, SampleBatch) else arg
            for arg in (*args, *(kwargs or {}).values())
        ]
        named = dict(zip(kwargs or {}, plain[len(args) :], strict=True))
        return function(*plain[: len(args)], **named)


class SampleList(SampleBatch):
    """The same, of samples that are there already.

    Args:
        samples: The samples.
        *known: As in `SampleBatch`.
    """

    __slots__ = ("samples",)

    def __init__(self, samples: Sequence[Any], *known: Any) -> None:
        super().__init__(*known)
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, position: Any) -> Any:
        return self.samples[position]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.samples)
