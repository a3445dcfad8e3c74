"""Which samples a batch is made of, and what else is known about it, on its way from sampler to field."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import filterfalse
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary, ref

import numpy as np
import numpy.typing as npt


class Packing(NamedTuple):
    """Where the documents of a batch lie in rows that they share.

    Arrays are int64 and have one entry for each document.

    Attributes:
        documents: The indices in the dataset.
        totals: How long each document is.
        starts: Its first token that is taken.
        lengths: How many tokens are taken.
        places: Where it begins, counted in tokens over all rows end to end: row × seq_length + column.
        rows: The number of rows.
        seq_length: Their length.
        multiple_of: What the room of a document is a multiple of.
        max_documents: The most documents in a row, if that is limited.
    """

    documents: npt.NDArray[np.int64]
    totals: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    rows: int
    seq_length: int
    multiple_of: int
    max_documents: int | None


_reads = threading.local()  # `batch`: a weak reference to the `IndexBatch` that was read last


class IndexBatch(Sequence[int]):
    """The indices of one batch, as samplers yield them.

    Any dataset takes it: iterating gives Python integers, and ``np.asarray`` the array. An
    `ArrayDataset` and an `IndexedDataset` hand on to the collate function what else it knows.

    Args:
        indices: int64 of shape (B,).
        epoch: Which epoch the batch is of; None if nobody knows.
        packing: Where the samples go to, if they are documents that share rows.
        copies: int64 of shape (B,): how often the epoch had each sample before. None: never.
    """

    __slots__ = ("__weakref__", "copies", "epoch", "indices", "packing")

    def __init__(
        self,
        indices: npt.NDArray[np.int64],
        epoch: int | None = None,
        packing: Packing | None = None,
        copies: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.indices = indices
        self.epoch = epoch
        self.packing = packing
        self.copies = copies

    @staticmethod
    def last_read(count: int) -> IndexBatch | None:
        """The batch of ``count`` indices that this thread read last, unless this was asked before.

        A ``Subset``, or a dataset of one sample at a time, reads the indices of a batch and hands over
        samples that don't know their epoch. DataLoader collates these at once, in the same thread, and
        holds the indices meanwhile: a batch that nobody holds any more is of an earlier loop.
        """
        reference = getattr(_reads, "batch", None)
        _reads.batch = None
        batch: IndexBatch | None = None if reference is None else reference()
        return batch if batch is not None and len(batch) == count else None

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            copies = None if self.copies is None else self.copies[position]
            return IndexBatch(self.indices[position], self.epoch, None, copies)
        return int(self.indices[position])

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        _reads.batch = ref(self)
        return np.array(self.indices, dtype, copy=copy)

    def tolist(self) -> list[int]:
        """The indices as Python integers."""
        _reads.batch = ref(self)
        return self.indices.tolist()

    # accelerate fills the last batch up from the first ones, with `+`.

    def __add__(self, other: Iterable[int]) -> IndexBatch:
        return self._joined(self, other)

    def __radd__(self, other: Iterable[int]) -> IndexBatch:
        return self._joined(other, self)

    def _joined(self, *parts: Iterable[int]) -> IndexBatch:
        lists = [[*part] for part in parts]
        copies = None
        if self.copies is not None:
            found = [getattr(part, "copies", None) for part in parts]
            zeros = [np.zeros(len(part), np.int64) for part in lists]
            copies = np.concatenate(
                [zero if part is None else part for part, zero in zip(found, zeros, strict=True)]
            )
        return IndexBatch(np.array([*lists[0], *lists[1]], np.int64), self.epoch, None, copies)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __index__(self) -> int:
        # What ``samples[batch]`` of a list calls, where a sampler of batches was passed as sampler=.
        raise TypeError(
            "expected the index of one sample, got a batch of them, because its sampler was passed as "
            "sampler=; write DataLoader(dataset, batch_sampler=sampler), without batch_size"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexBatch, (self.indices, self.epoch, self.packing, self.copies)

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
        copies: As in `IndexBatch`.
    """

    __slots__ = ("copies", "dataset_length", "epoch", "indices", "packing")

    def __init__(
        self,
        indices: Any,
        dataset_length: int | None,
        epoch: int | None = None,
        packing: Packing | None = None,
        copies: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.indices = indices
        self.dataset_length = dataset_length
        self.epoch = epoch
        self.packing = packing
        self.copies = copies

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls one of torch's functions, which take a list of tensors but no other sequence."""
        plain: Any = lambda given: list(given) if isinstance(given, SampleBatch) else given
        named = {name: plain(given) for name, given in (kwargs or {}).items()}
        return function(*map(plain, args), **named)


class SampleList(SampleBatch):
    """The same, of samples that are there already; ``known`` are the arguments of `SampleBatch`."""

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


class LastSample:
    """The sample that a pass over a stream yielded last, and the epoch of the pass.

    DataLoader makes a plain list of a stream's samples, which can't tell their epoch. But it collates a
    batch before it takes the next sample. So `Collate` looks whose last sample is that of its batch.
    """

    _of_passes: ClassVar[WeakValueDictionary[int, LastSample]] = WeakValueDictionary()

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._sample: deque[Any] = deque(maxlen=1)
        self._of_passes[id(self)] = self

    def keeping(self, samples: Iterable[Any]) -> Iterator[Any]:
        """The samples, each of which is kept until the next one is taken."""
        return filterfalse(self._sample.append, samples)  # append returns None

    @classmethod
    def epoch_of(cls, samples: Sequence[Any]) -> int | None:
        """The epoch of samples that were just taken from a stream; None if they were not."""
        for reference in cls._of_passes.valuerefs():
            last = reference()
            if last is not None and any(sample is samples[-1] for sample in tuple(last._sample)):
                return last.epoch
        return None
