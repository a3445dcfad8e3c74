"""The indices, epoch and layout of a batch, passed from the sampler to the fields."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import filterfalse
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary, ref

import numpy as np
import numpy.typing as npt


class Packing(NamedTuple):
    """The layout of documents in the packed rows of a batch.

    Arrays are int64 and have one entry per document.

    Attributes:
        documents: Indices in the dataset.
        totals: Full length of each document.
        starts: First used token of each document.
        lengths: Number of used tokens of each document.
        offsets: Offset of each document in the concatenated rows, in tokens: row × seq_length + column.
        rows: Number of rows.
        seq_length: Tokens per row.
        multiple_of: Each document is padded to a multiple of this.
        max_documents: Maximum number of documents per row, or None.
    """

    documents: npt.NDArray[np.int64]
    totals: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    rows: int
    seq_length: int
    multiple_of: int
    max_documents: int | None


_reads = threading.local()  # `batch`: a weak reference to the `IndexBatch` read last


class IndexBatch(Sequence[int]):
    """The indices of one batch, as samplers yield them.

    It works with any dataset: iterating yields Python integers, and ``np.asarray`` returns the array.
    `ArrayDataset` and `IndexedDataset` pass epoch, packing and copies to the collate function.

    Args:
        indices: int64 of shape (B,).
        epoch: Epoch of the batch, or None if unknown.
        packing: Row layout, if the samples are documents packed into rows.
        copies: Number of earlier draws of each sample in this epoch, int64 of shape (B,). None: 0.
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
        """Returns, only once, the last batch that this thread read, if it has ``count`` indices; else None.

        A ``Subset``, or a dataset without ``__getitems__``, reads the indices of a batch and returns
        samples without their epoch. DataLoader collates these right away, in the same thread, and
        holds the indices meanwhile. A batch that nothing else references belongs to an earlier loop.
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

    # accelerate completes the last batch with indices of the first ones, using `+`.

    def __add__(self, other: Iterable[int]) -> IndexBatch:
        return self._joined(self, other)

    def __radd__(self, other: Iterable[int]) -> IndexBatch:
        return self._joined(other, self)

    def _joined(self, *parts: Iterable[int]) -> IndexBatch:
        lists = [[*part] for part in parts]
        copies = None
        if self.copies is not None:
            counts = [getattr(part, "copies", None) for part in parts]
            zeros = [np.zeros(len(part), np.int64) for part in lists]
            copies = np.concatenate(
                [zero if part is None else part for part, zero in zip(counts, zeros, strict=True)]
            )
        return IndexBatch(np.array([*lists[0], *lists[1]], np.int64), self.epoch, None, copies)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __index__(self) -> int:
        # A list's ``samples[batch]`` calls this if a batch sampler was passed as sampler=.
        raise TypeError(
            "DataLoader: sampler must yield single indices, got batches; write DataLoader(dataset, "
            "batch_sampler=sampler), without batch_size"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexBatch, (self.indices, self.epoch, self.packing, self.copies)

    def __repr__(self) -> str:
        return f"IndexBatch({self.tolist()}, epoch={self.epoch})"


class Selection(NamedTuple):
    """Samples of a source, in the form that native functions take."""

    rows: Any  # an array, a file reader, the parts of a ConcatArray, or a list of samples
    # Begin of each sample in ``rows``, and the end of the last. None: each row is a sample, or the
    # parts have their own offsets.
    offsets: Any = None
    # int64 of shape (B,). None: all samples.
    indices: npt.NDArray[np.int64] | None = None


class Selectable:  # not an ABC, for which isinstance takes longer
    """Samples that native functions read without a Python object for each."""

    __slots__ = ()

    @abstractmethod
    def selection(self) -> Selection:
        """Returns all samples for native functions."""


class SampleBatch(Sequence[Any]):
    """The samples of one batch, with their indices, epoch and layout.

    Any collate function sees a ``Sequence``; torch functions treat it as a list.

    Args:
        indices: Dataset indices of the samples, int64 of shape (B,); None for a stream.
        dataset_length: Number of samples in the dataset; None for a stream.
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
        """Calls a torch function with a list of the samples, because torch takes no other sequence."""
        as_list: Any = lambda value: list(value) if isinstance(value, SampleBatch) else value
        keywords = {name: as_list(value) for name, value in (kwargs or {}).items()}
        return function(*map(as_list, args), **keywords)


class SampleList(SampleBatch):
    """A `SampleBatch` of existing samples; the other arguments are passed to `SampleBatch`."""

    __slots__ = ("samples",)

    def __init__(self, samples: Sequence[Any], *batch_info: Any) -> None:
        super().__init__(*batch_info)
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, position: Any) -> Any:
        return self.samples[position]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.samples)


class LastSample:
    """The last sample that a pass over a stream yielded, and the epoch of the pass.

    DataLoader collects a stream's samples in a plain list, without their epoch, but collates a batch
    before it takes the next sample. `Collate` therefore finds the pass whose last sample is the last
    sample of its batch.
    """

    _of_passes: ClassVar[WeakValueDictionary[int, LastSample]] = WeakValueDictionary()

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._sample: deque[Any] = deque(maxlen=1)
        self._of_passes[id(self)] = self

    def keeping(self, samples: Iterable[Any]) -> Iterator[Any]:
        """Yields the samples, and holds each until the next one is taken."""
        return filterfalse(self._sample.append, samples)  # append returns None

    @classmethod
    def epoch_of(cls, samples: Sequence[Any]) -> int | None:
        """Returns the epoch of samples that were just taken from a stream, or None."""
        # The newest pass first: a list as source yields the same objects in each epoch.
        for reference in reversed(cls._of_passes.valuerefs()):
            last = reference()
            if last is not None and any(sample is samples[-1] for sample in tuple(last._sample)):
                return last.epoch
        return None
