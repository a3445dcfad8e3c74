"""`PackSampler`: documents packed into rows of a fixed length."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import (
    checked_choice,
    checked_integer,
    positive_integer,
    rounded_up,
    with_hints,
)
from pinfeed.batches import IndexBatch, Packing
from pinfeed.samplers.epoch_sampler import NOT_RECREATED, EpochSampler
from pinfeed.samplers.length_buckets import lengths_of_samples
from pinfeed.samplers.order_sampler import ROUNDS, permutation, random_keys

_BUCKET_STEPS = 16  # steps whose rows are sorted together to balance ranks
_MAX_TOKENS = 2**31 - 1  # of a batch: cu_seqlens are int32
_MAX_DOCUMENTS = 2**32 - 2


class PackLosses(NamedTuple):
    """Documents and tokens that a `PackSampler` omits from every epoch.

    Attributes:
        documents: Number of documents dropped because they are too long.
        tokens: Number of tokens lost, in dropped and truncated documents.
        empty: Number of empty documents, which are in no batch.
    """

    documents: int
    tokens: int
    empty: int


class PackSampler(EpochSampler):
    """Batch sampler that packs documents into rows of ``seq_length`` tokens.

    Each epoch has its own plan, which depends only on the lengths, these arguments and the epoch, so
    all ranks and machines agree. Planning ten million documents takes about half a second. Epochs
    advance as in `ShuffleSampler`; one loop at a time. Batches carry the row layout, which
    `ArrayDataset` passes to `Collate` and its `Pack` fields; wrap any other dataset in an
    `IndexedDataset`.

    All ranks get the same number of batches. The last batches may end with empty rows. If there are
    fewer rows than ranks in the last step, up to ``world_size - 1`` of the epoch's first rows are
    repeated.

    Args:
        lengths: Number of tokens of each document: 1-D integers in an ndarray, a memmap, a list or a
            CPU tensor, or an object with a ``lengths`` attribute. They are copied.
        seq_length: Tokens per row.
        batch_size: Rows per batch and rank.
        strategy: ``"best_fit"`` packs tightest: documents are placed longest first, each into the
            fullest row with room. ``"first_fit"`` places documents in order, each into the first row
            with room; it preserves the order with ``shuffle=False``. ``"wrapped"`` cuts the
            concatenated tokens every ``seq_length``; a cut document continues in the next row, which
            doesn't see its beginning.
        overflow: How to handle documents longer than a row, unless wrapped: ``"error"`` raises,
            ``"truncate"`` keeps the first ``seq_length`` tokens, ``"drop"`` drops the document.
            `dropped` counts lost tokens. To cut them into several documents, use `RaggedArray.split`.
        max_documents: Maximum number of documents per row. It also gives ``cu_seqlens`` a fixed
            length.
        documents_multiple_of: Each document is padded to a multiple of this number of tokens, as
            context parallelism requires.
        shuffle: Whether to shuffle rows and documents. Even without, ``"best_fit"`` places the longest
            documents first.
        seed: Non-negative integer, the same on all ranks.
        balance: Quantity to balance across ranks in each step: the number of rows (``"count"``), the
            ``"tokens"``, or the cost of ``"attention"`` (sum of squared document lengths).
        rank: Data-parallel rank of this process, as in `ShuffleSampler`.
        world_size: Number of data-parallel ranks, as in `ShuffleSampler`.

    ``len()`` is the number of batches per rank and epoch, the same in every epoch.

    To resume within an epoch, see `LengthBucketSampler`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, a document is longer than a row with
            ``overflow="error"``, or a rank has no batch.

    Example:
        >>> tokens = pinfeed.RaggedArray.from_sequences(
        ...     [[1, 2, 3], [4, 5], [6], [7, 8, 9, 10]]
        ... )
        >>> sampler = pinfeed.samplers.PackSampler(
        ...     tokens, seq_length=5, batch_size=2, shuffle=False
        ... )
        >>> collate = pinfeed.Collate({"input_ids": pinfeed.Pack(seq_length=5)})
        >>> dataset = pinfeed.ArrayDataset({"input_ids": tokens})
        >>> loader = torch.utils.data.DataLoader(
        ...     dataset, batch_sampler=sampler, collate_fn=collate
        ... )
        >>> next(iter(loader))["input_ids"]
        tensor([[ 7,  8,  9, 10,  6],
                [ 1,  2,  3,  4,  5]])
        >>> sampler.padding_fraction
        0.0
    """

    #: Minimum number of rows per rank and epoch.
    MIN_ROWS: ClassVar[int] = 1

    SHOWN = ("_batch_size", "world_size")  # accelerate expects batch_size to count samples
    SETTINGS = (
        *("seq_length", "strategy", "overflow", "max_documents", "documents_multiple_of"),
        *("shuffle", "seed", "balance"),
    )

    @with_hints(
        rows="pass batch_size", drop_last=f"all its batches have batch_size rows; {NOT_RECREATED}"
    )
    def __init__(
        self,
        lengths: Any,
        *,
        seq_length: int,
        batch_size: int = 1,
        strategy: Literal["best_fit", "first_fit", "wrapped"] = "best_fit",
        overflow: Literal["error", "truncate", "drop"] = "error",
        max_documents: int | None = None,
        documents_multiple_of: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        balance: Literal["count", "tokens", "attention"] = "count",
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__(seed, rank, world_size, shuffle=shuffle)
        name = self._name
        self.seq_length = checked_integer(seq_length, f"{name}: seq_length", 1, _MAX_TOKENS)
        self._batch_size = checked_integer(batch_size, f"{name}: batch_size", 1)
        if self._batch_size * self.seq_length > _MAX_TOKENS:
            raise ValueError(
                f"{name}: batch_size × seq_length must be less than 2**31, because cu_seqlens are int32, "
                f"got {self._batch_size} × {self.seq_length}; use fewer rows"
            )
        checked_choice(strategy, ("best_fit", "first_fit", "wrapped"), f"{name}: strategy")
        checked_choice(overflow, ("error", "truncate", "drop"), f"{name}: overflow")
        checked_choice(balance, ("count", "tokens", "attention"), f"{name}: balance")
        self.strategy, self.overflow, self.balance = strategy, overflow, balance
        self.max_documents = positive_integer(max_documents, f"{name}: max_documents")
        self.documents_multiple_of = checked_integer(
            documents_multiple_of, f"{name}: documents_multiple_of", 1, self.seq_length
        )
        if self.seq_length % self.documents_multiple_of:
            raise ValueError(
                f"{name}: seq_length must be a multiple of documents_multiple_of="
                f"{self.documents_multiple_of}, got {self.seq_length}"
            )
        if strategy == "wrapped" and (self.max_documents or self.documents_multiple_of > 1):
            raise ValueError(
                f"{name}: strategy='wrapped' supports neither max_documents nor documents_multiple_of; "
                "use 'best_fit'"
            )
        self.shuffle = shuffle
        if isinstance(lengths, Iterator):
            raise TypeError(
                f"{name}: lengths must have one length per document, got a "
                f"{type(lengths).__name__}; pass a list, or pack a stream with PackedStream"
            )
        self._totals = lengths_of_samples(lengths, name)
        if len(self._totals) > _MAX_DOCUMENTS:
            raise ValueError(
                f"{name}: lengths must have at most 2**32 - 2 documents, got {len(self._totals)}"
            )
        if strategy == "wrapped" and self._totals.sum(dtype=np.float64) >= 2**62:
            raise ValueError(f"{name}: lengths must have a sum less than 2**62 to be wrapped")
        checksum = zlib.crc32(self._totals.data)
        self._data_identity = {"samples": len(self._totals), "lengths_crc32": checksum}
        self._used, self._dropped = self._losses()
        self.batches(0)  # raises if a rank has none

    @property
    def dropped(self) -> PackLosses:
        """Number of documents and tokens that every epoch omits, a `PackLosses`."""
        return self._dropped

    @property
    def padding_fraction(self) -> float:
        """The fraction of padding in this epoch's batches over all ranks, 0 to 1."""
        slots = (
            self.batches(self.current_epoch) * self.world_size * self._batch_size * self.seq_length
        )
        return 1 - int(self._used.sum()) / slots

    @property
    @override
    def step(self) -> int:
        return self.world_size * self._batch_size

    @override
    def units(self, epoch: int) -> int:
        return len(self._cached_plan(epoch).row_order)

    @override
    def batches(self, epoch: int, start: int = 0) -> int:
        return -(-(self.units(epoch) - start) // self.step)

    @override
    def batch(self, epoch: int, number: int, start: int = 0) -> IndexBatch:
        plan = self._cached_plan(epoch)
        first = start + number * self.step
        documents, starts, lengths, rows = plan.rows.pieces(self._rows_of_rank(plan, first))
        padded_lengths = rounded_up(lengths, self.documents_multiple_of)
        offsets = np.cumsum(padded_lengths) - padded_lengths
        offsets += rows * self.seq_length - offsets[np.searchsorted(rows, rows)]
        packing = Packing(
            documents,
            self._totals[documents],
            starts,
            lengths,
            offsets,
            self._batch_size,
            self.seq_length,
            self.documents_multiple_of,
            self.max_documents,
        )
        return IndexBatch(documents, epoch, packing)

    @override
    def _identity(self) -> dict[str, Any]:
        settings = {name.lstrip("_"): getattr(self, name) for name in self.SHOWN}
        return super()._identity() | ({} if self.balance == "count" else settings)

    def _losses(self) -> tuple[npt.NDArray[np.int64], PackLosses]:
        """Returns the number of tokens used of each document, and the losses."""
        totals = self._totals
        empty = int(np.count_nonzero(totals == 0))
        long = np.flatnonzero(totals > self.seq_length)
        if len(long) == 0 or self.strategy == "wrapped":
            return totals, PackLosses(0, 0, empty)
        if self.overflow == "error":
            longest = long[np.argsort(-totals[long], kind="stable")[:3]]
            descriptions = ", ".join(
                f"document {i} has {totals[i]} tokens" for i in longest.tolist()
            )
            raise ValueError(
                f"{self._name}: documents must have at most seq_length={self.seq_length} tokens, "
                f"but {len(long)} {'has' if len(long) == 1 else 'have'} more: {descriptions}; cut them with "
                f"RaggedArray.split({self.seq_length}), or pass overflow='truncate' or 'drop'"
            )
        used = totals.copy()
        used[long] = self.seq_length if self.overflow == "truncate" else 0
        lost = sum(totals[long].tolist()) - int(used[long].sum())  # may exceed 64 bits
        return used, PackLosses(len(long) if self.overflow == "drop" else 0, lost, empty)

    def _rows_of_rank(self, plan: _Plan, first: int) -> npt.NDArray[np.int64]:
        """Returns this rank's rows of a step; every rank gets one before any gets two."""
        rank, world_size = self._ranks()
        rows = plan.row_order[first : first + self.step]
        if len(rows) < world_size:  # repeat some of the epoch's first rows
            rows = np.append(rows, np.resize(plan.row_order, world_size - len(rows)))
        if self.balance == "count":
            each, rest = divmod(len(rows), world_size)
            start = rank * each + min(rank, rest)
            return rows[start : start + each + (rank < rest)]
        # Rows are sorted by cost, descending. Ranks take one each in alternating direction.
        positions = np.arange(len(rows))
        turn, column = np.divmod(positions, world_size)
        return rows[np.where(turn % 2, world_size - 1 - column, column) == rank]

    @override
    def _plan(self, epoch: int, world_size: int) -> _Plan:
        keys = random_keys(self.seed, (epoch,), 3 * ROUNDS)
        rows = self._planned_rows(keys[:ROUNDS])
        count = len(rows.offsets) - 1
        if count < self.MIN_ROWS * self.world_size:
            raise ValueError(
                f"{self._name}: {count} rows of documents leave one of {self.world_size} ranks "
                "without a batch; use fewer ranks or more documents"
            )
        order = self._order(count, keys[ROUNDS : 2 * ROUNDS])
        if self.balance == "count" or world_size == 1:
            return _Plan(rows, order)
        step = world_size * self._batch_size
        if 0 < count % step < world_size:
            order = np.append(order, order[: world_size - count % step])
        costs = -rows.costs(2 if self.balance == "attention" else 1)[order]
        # Without shuffling, rows move within a step only.
        bucket = step * (_BUCKET_STEPS if self.shuffle else 1)
        order = order[np.lexsort((costs, np.arange(len(order)) // bucket))]
        steps = self._order(len(order) // step, keys[2 * ROUNDS :])
        whole = len(steps) * step
        order[:whole] = order[:whole].reshape(-1, step)[steps].reshape(-1)
        return _Plan(rows, order)

    def _order(self, count: int, keys: list[int]) -> npt.NDArray[np.int64]:
        return permutation(count, keys) if self.shuffle else np.arange(count)

    def _planned_rows(self, keys: list[int]) -> _FittedRows | _WrappedRows:
        if self.strategy == "wrapped":
            documents = self._order(len(self._used), keys)
            documents = documents[self._used[documents] > 0]
            ends = np.cumsum(self._used[documents])
            tokens = int(ends[-1]) if len(ends) else 0
            cuts = np.append(np.arange(0, tokens, self.seq_length), tokens)
            return _WrappedRows(self._used, documents, ends, cuts)
        padded_lengths = rounded_up(self._used, self.documents_multiple_of).astype(np.int32)
        limit = min(self.max_documents or _MAX_DOCUMENTS, _MAX_DOCUMENTS)
        if self.strategy == "best_fit":
            key = keys[0] if self.shuffle else None
            plan = _core.best_fit(padded_lengths, self.seq_length, limit, key)
        else:
            order = self._first_fit_order(keys) if self.shuffle else None
            plan = _core.first_fit(padded_lengths, self.seq_length, limit, order)
        return _FittedRows(self._used, *plan)

    def _first_fit_order(self, keys: list[int]) -> npt.NDArray[np.int64]:
        """Returns a random order with the same lengths, and so the same number of rows, each epoch."""
        count = len(self._used)
        lengths = self._used[permutation(count, random_keys(self.seed, (0,), ROUNDS))]
        documents = permutation(count, keys)
        order = np.empty(count, np.int64)
        order[np.argsort(lengths, kind="stable")] = documents[
            np.argsort(self._used[documents], kind="stable")
        ]
        return order


#: Per piece of a document: document, first token, number of tokens, and position among the requested
#: rows.
_Pieces = tuple[npt.NDArray[np.int64], ...]


def _ranges(
    begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns all numbers of the ranges ``begins`` to ``ends``, and the range of each."""
    counts = ends - begins
    numbers = np.repeat(np.arange(len(counts)), counts)
    return np.arange(len(numbers)) + (ends - np.cumsum(counts))[numbers], numbers


@dataclass
class _FittedRows:
    """Rows of whole documents."""

    lengths: npt.NDArray[np.int64]  # int64: the lengths of all documents
    documents: npt.NDArray[np.uint32]  # uint32 of shape (N,): documents, row after row
    # int64 of shape (rows + 1,): the begin of each row in ``documents``, and the end.
    offsets: npt.NDArray[np.int64]

    def pieces(self, rows: npt.NDArray[np.int64]) -> _Pieces:
        """Returns the pieces of documents in some of the rows."""
        index, numbers = _ranges(self.offsets[rows], self.offsets[rows + 1])
        documents = self.documents[index].astype(np.int64)
        return documents, np.zeros_like(documents), self.lengths[documents], numbers

    def costs(self, power: int) -> npt.NDArray[np.int64]:
        """Returns for each row the sum of its lengths to a power."""
        return np.add.reduceat(self.lengths[self.documents] ** power, self.offsets[:-1])


@dataclass
class _WrappedRows:
    """Rows cut from one stream of tokens."""

    lengths: npt.NDArray[np.int64]  # int64: the lengths of all documents
    documents: npt.NDArray[np.int64]  # int64 of shape (N,): documents in stream order
    ends: npt.NDArray[np.int64]  # int64 of shape (N,): the end of each document in the stream
    # int64 of shape (rows + 1,): the begin of each row in the stream, and the end.
    offsets: npt.NDArray[np.int64]

    def pieces(self, rows: npt.NDArray[np.int64]) -> _Pieces:
        """Returns the pieces of documents in some of the rows."""
        row_begins, row_ends = self.offsets[rows], self.offsets[rows + 1]
        index, numbers = _ranges(
            np.searchsorted(self.ends, row_begins, "right"),
            np.searchsorted(self.ends, row_ends, "left") + 1,
        )
        documents, ends = self.documents[index], self.ends[index]
        starts = ends - self.lengths[documents]  # in the stream, of whole documents
        begins = np.maximum(starts, row_begins[numbers])
        lengths = np.minimum(ends, row_ends[numbers]) - begins
        return documents, begins - starts, lengths, numbers

    def costs(self, power: int) -> npt.NDArray[np.int64]:
        """Returns for each row the sum of its pieces' lengths to a power."""
        cuts = np.union1d(self.ends, self.offsets)
        rows = np.searchsorted(cuts, self.offsets[:-1])
        return np.add.reduceat(np.diff(cuts) ** power, rows)


@dataclass
class _Plan:
    """One epoch: its rows, and their order, step after step."""

    rows: _FittedRows | _WrappedRows
    row_order: npt.NDArray[np.int64]
