"""One run of `pinfeed.to_numpy` or `pinfeed.write_array`: batches in, columns out."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from pinfeed.arguments import ARRAYS, Problem
from pinfeed.exports.to_numpy.columns import (
    NO_SQUEEZE,
    ArrayColumn,
    Column,
    ListColumn,
    RaggedColumn,
    SequenceColumn,
    TextColumn,
    holds_numbers,
    holds_objects,
    is_ragged,
    plain,
)
from pinfeed.exports.to_numpy.storage import OutputFiles, require_memory
from pinfeed.functional.sequences import JaggedBatch, Padded
from pinfeed.memory.staging import has_streams
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.ragged_builder import numpy_dtype
from pinfeed.structure import entries, is_namedtuple, map_entries, step_name

_ARRAYS = (np.ndarray, torch.Tensor, RaggedArray)
_SEQUENCES: Any = JaggedBatch | Padded
_OBJECTS = {str, bytes, int, float, bool, type(None)}


class _Pending(NamedTuple):
    """A batch being copied from devices."""

    entries: list[Any]  # valid in memory after the events
    events: list[torch.Event]
    batch: int  # its number


class BatchWriter:
    """Writes batches to columns, and holds at most the one being copied from a device.

    Args:
        function: Prefix of messages.
        files: The output files; None: memory.
        limit: Maximum number of samples.
        planned: Number of batches of the loader, if all but the last have one size; None: unknown.
        dtype: Dtype of all numbers, or a dict of dtypes by entry name.
        may_be_alike: Whether sequences in files become an array if all have one length, except if they
            are the only entry.

    Attributes:
        samples: Number of samples taken.
        expected: Expected total number of samples, or None.
    """

    def __init__(
        self,
        function: str,
        files: OutputFiles | None = None,
        limit: int | None = None,
        planned: int | None = None,
        *,
        dtype: Any = None,
        may_be_alike: bool = False,
    ) -> None:
        self._function, self._files = function, files
        self._limit, self._planned = limit, planned
        self._may_be_alike = may_be_alike
        self._dtypes = _dtypes(dtype, function)
        self._pending: _Pending | None = None
        self._template: Any = None  # a batch with numbers for entries
        self._columns: dict[tuple[str, ...], Column | None] = {}  # None: the entry is None
        self._plain_columns: dict[Any, ArrayColumn] = {}  # empty: the fast path does not apply
        self._batches = 0
        self.samples = self._written = 0
        self.expected: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether the limit has been reached."""
        return self.samples == self._limit

    def add(self, batch: Any) -> int:
        """Writes a batch completely or not at all; returns its number of samples."""
        if self._plain_columns and (samples := self._add_plain(batch)) is not None:
            return samples
        number, self._batches = self._batches, self._batches + 1
        items = self._entries(batch, number)
        count = self._count(items, number)
        samples = count if self._limit is None else min(count, self._limit - self.samples)
        if samples < count:
            items = [_first(entry, samples) for entry in items]
        if number == 0 and self._planned is not None:
            expected = self._planned * count
            self.expected = expected if self._limit is None else min(expected, self._limit)
        pending = self._fetch(items, number)
        self._flush()
        self.samples += samples
        if pending is None:
            self._write(items, number)
        self._pending = pending
        return samples

    def finish(self) -> Any:
        """Returns the result, and commits its files."""
        self._flush()
        if self._batches == 0:
            hint = (
                "check whether its dataset is empty, drop_last drops all samples, or a generator is "
                "exhausted"
            )
            subject = f"{self._function}: loader"
            raise ValueError(Problem(subject, "at least one batch", "none", hint))
        if self._files is not None:
            for column in self._array_columns():
                column.finish()
            self._files.commit()
        return self._result()

    def partial(self) -> Any:
        """Returns the samples in memory after an error, or None."""
        with contextlib.suppress(Exception):  # the device may have failed
            self._flush()
        return None if self._written == 0 or self._files is not None else self._result()

    def _array_columns(self) -> list[ArrayColumn]:
        return [column for column in self._columns.values() if isinstance(column, ArrayColumn)]

    def _result(self) -> Any:
        results = [
            None if column is None else column.result(self._written)
            for column in self._columns.values()
        ]
        return map_entries(lambda number: results[number], self._template)

    def _entries(self, batch: Any, number: int) -> list[Any]:
        """Returns the entries of a batch, without None, in column order."""
        by_path = dict(entries(batch, _is_entry))
        if number == 0:
            self._require_named(by_path)
            self._columns = {steps: self._column(steps, entry) for steps, entry in by_path.items()}
            numbers = itertools.count()
            self._template = map_entries(lambda _: next(numbers), batch, _is_entry)
            if not any(self._columns.values()):
                raise ValueError(self._problem((), 0, "at least one array or list", "none"))
        if by_path.keys() != self._columns.keys():
            expected = f"the entries {_listed(self._columns)} as in batch 0"
            raise ValueError(self._problem((), number, expected, _listed(by_path)))
        for steps, column in self._columns.items():
            if (entry := by_path[steps]) is not None and column is None:
                got = type(entry).__name__
                raise ValueError(self._problem(steps, number, "None as in batch 0", got))
        return [by_path[steps] for steps, column in self._columns.items() if column is not None]

    def _where(self, steps: Sequence[str]) -> str:
        path = "".join(steps)
        return f"{self._function}: entry {path} of " if steps else f"{self._function}: "

    def _problem(
        self, steps: Sequence[str], number: int, expected: str, got: str, hint: str = ""
    ) -> Problem:
        return Problem(f"{self._where(steps)}batch {number}", expected, got, hint)

    def _column(self, steps: tuple[str, ...], entry: Any) -> Column | None:
        """Creates the column for an entry like this one."""
        where, files, kind = self._where(steps), self._files, type(entry).__name__
        if entry is None:
            return None
        name = "" if files is None else files.name(steps, f"{where}batch 0")
        dtype = self._dtype_of(steps, entry)
        is_array = isinstance(entry, ARRAYS) and not holds_objects(entry)
        is_array = is_array or (dtype is not None and holds_numbers(entry))
        if is_array or is_ragged(entry):
            column = ArrayColumn
            if not is_array:
                column = SequenceColumn if self._may_be_alike and steps else RaggedColumn
            return column(where, files, name, dtype)
        if _entry_name(steps) in self._dtypes:
            raise TypeError(Problem(f"{where}batch 0: dtype", "numbers", kind))
        if not isinstance(entry, list | tuple) and not holds_objects(entry):
            expected = "a tensor, an ndarray, or a list with an object for each sample"
            hint = "leave it out, or repeat it for each sample"
            raise TypeError(self._problem(steps, 0, expected, kind, hint))
        if files is None:
            return ListColumn(where)
        if files.is_file:
            hint = (
                "pass the path of a directory, which can hold strings, or yield numbers as an array, "
                "np.array(numbers)"
            )
            raise TypeError(self._problem(steps, 0, "an array for a .npy file", "a list", hint))
        return TextColumn(where, files, name)

    def _require_named(self, entries_by_path: dict[tuple[str, ...], Any]) -> None:
        """Raises ValueError if the dict of dtypes names a missing entry."""
        names = [_entry_name(steps) for steps in entries_by_path]
        for name in self._dtypes:
            if name is not None and name not in names:
                expected = f"entries of a batch, {names}"
                raise ValueError(Problem(f"{self._function}: dtype", expected, repr(name)))

    def _dtype_of(self, steps: tuple[str, ...], entry: Any) -> np.dtype[Any] | None:
        """Returns the dtype of an entry; a dtype of all numbers does not apply to, for example, dates."""
        kind = getattr(getattr(entry, "dtype", None), "kind", "f")
        whole = self._dtypes.get(None) if kind in "biufc" else None
        return self._dtypes.get(_entry_name(steps), whole)

    def _count(self, items: list[Any], number: int) -> int:
        """Returns the number of samples in a batch."""
        counts = [_length(entry) for entry in items]
        count = counts[0]
        if count is None or counts.count(count) < len(counts):
            raise self._uncounted(counts, number)
        return count

    def _uncounted(self, counts: list[int | None], number: int) -> ValueError:
        """Returns the error for entries with different numbers of samples."""
        paths = [steps for steps, column in self._columns.items() if column is not None]
        if None in counts:
            wrong, expected, got = counts.index(None), "an axis that counts samples", "a 0-d array"
            hint = "leave it out, or repeat it for each sample: x.expand(B)"
            hint = NO_SQUEEZE if number else hint
        else:
            wrong = next(i for i, count in enumerate(counts) if count != counts[0])
            hint = "an array for each sample, convert it with np.fromiter(arrays, object)"
            keys = dict.fromkeys(steps[1] for steps in paths if len(steps) == 2)
            if paths[0][0] == "[0]" and keys:  # of a detector, for instance
                fields = ", ".join(f"{key[1:-1]}: Jagged()" for key in keys)
                hint = f"a dict for each sample, yield Collate({{{fields}}})(outputs)"
            expected, got = f"{counts[0]} samples, as {''.join(paths[0])} has", str(counts[wrong])
            hint = f"the first axis of every entry counts samples; for a list with {hint}"
        return ValueError(self._problem(paths[wrong], number, expected, got, hint))

    def _write(self, items: list[Any], number: int) -> None:
        columns = [column for column in self._columns.values() if column is not None]
        for column in columns:
            column.batch = number
        rows = [column.check(entry) for column, entry in zip(columns, items, strict=True)]
        for column, row in zip(columns, rows, strict=True):
            column.write(row)
        self._written = self.samples
        if number == 0 and self.expected is not None:
            self._reserve(self.expected)
        if number == 0:
            self._plain_columns = self._find_plain_columns()

    def _find_plain_columns(self) -> dict[Any, ArrayColumn]:
        """Returns the columns by key (None: the batch is an array), if batches are flat and of arrays."""
        columns = list(self._columns.values())
        arrays = [column for column in columns if type(column) is ArrayColumn]
        if len(arrays) < len(columns) or self._dtypes or self._limit is not None:
            return {}
        template = self._template
        if not isinstance(template, list | tuple | dict):
            return {None: arrays[0]}
        if type(template) not in (list, tuple, dict) or len(template) < len(arrays):
            return {}
        return dict(
            zip(template if type(template) is dict else range(len(arrays)), arrays, strict=True)
        )

    def _add_plain(self, batch: Any) -> int | None:
        """The fast path of `add`, for flat batches of in-memory arrays; None if it does not apply.

        Checking such a batch entry by entry takes longer than copying it.
        """
        columns = self._plain_columns
        if None in columns:
            parts: Any = (batch,)
        elif type(batch) is not type(self._template) or len(batch) != len(columns):
            return None
        elif type(batch) is dict:
            parts = [batch.get(key) for key in columns]
        else:
            parts = batch
        rows_by_column, count = [], -1
        for column, part in zip(columns.values(), parts, strict=True):
            rows = column.plain_rows(part)
            if rows is None or len(rows) != count >= 0:
                return None
            count = len(rows)
            rows_by_column.append(rows)
        self._flush()
        for column, rows in zip(columns.values(), rows_by_column, strict=True):
            column.append(rows)
        self._batches += 1
        self.samples += count
        self._written = self.samples
        return count

    def _reserve(self, expected: int) -> None:
        """Reserves memory or disk space for all samples."""
        columns = self._array_columns()
        if self._files is None:
            size = sum(column.size(expected) for column in columns)
            require_memory(size, f"the result of {expected:,} samples needs")
        for column in columns:
            column.reserve(expected)

    def _fetch(self, items: list[Any], number: int) -> _Pending | None:
        """Starts copying a batch from devices, in stream order; None if it is in memory.

        The whole batch is copied, because the loader may reuse its memory before it is written.
        """
        remote = {part.device for entry in items for part in _parts(entry) if is_remote(part)}
        if not remote:
            return None
        entries = []
        for entry in items:
            parts = [_copied(part, self._function) for part in _parts(entry)]
            entries.append(type(entry)(*parts) if isinstance(entry, _SEQUENCES) else parts[0])
        events = [torch.Event(device) for device in remote if has_streams(device)]
        for event in events:
            event.record()
        return _Pending(entries, events, number)

    def _flush(self) -> None:
        """Writes the batch being copied."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        for event in pending.events:
            event.synchronize()
        self._write(pending.entries, pending.batch)


def is_remote(part: Any) -> bool:
    """Whether a part of an entry must be copied from a device."""
    return isinstance(part, torch.Tensor) and not (part.is_cpu or part.is_meta)


def _is_entry(node: Any) -> bool:
    """Whether a container is an entry: sequences, and lists without arrays."""
    if is_ragged(node):
        return True
    if not isinstance(node, list | tuple) or is_namedtuple(node):
        return False
    return set(map(type, node)) <= _OBJECTS or not any(
        isinstance(entry, _ARRAYS) for _, entry in entries(node)
    )


def _parts(entry: Any) -> list[Any]:
    """Returns the arrays of an entry."""
    return list(entry) if isinstance(entry, _SEQUENCES) else [entry]


def _copied(part: Any, function: str) -> Any:
    """Copies a part to memory; a device tensor asynchronously, to pinned memory."""
    if isinstance(part, torch.Tensor):
        tensor: Any = plain(part, function)
        return tensor.to("cpu", non_blocking=has_streams(part.device), copy=True)
    return part.copy() if isinstance(part, np.ndarray | list) else part


def _length(entry: Any) -> int | None:
    """Returns the number of samples of an entry, or None for a 0-d array."""
    if isinstance(entry, JaggedBatch):
        return len(entry.offsets) - 1
    if isinstance(entry, Padded):
        return len(entry.lengths)
    return None if getattr(entry, "ndim", 1) == 0 else len(entry)


def _first(entry: Any, count: int) -> Any:
    """Returns the first samples of an entry."""
    if isinstance(entry, JaggedBatch):
        return entry._replace(offsets=entry.offsets[: count + 1])
    if isinstance(entry, Padded):
        return type(entry)(*(None if part is None else part[:count] for part in _parts(entry)))
    return entry[:count]


def _dtypes(dtype: Any, function: str) -> dict[str | None, np.dtype[Any]]:
    """Returns the dtypes by entry name; the key None is for all entries."""
    by_name = dtype if isinstance(dtype, Mapping) else {None: dtype}
    return {name: numpy_dtype(one, function) for name, one in by_name.items() if one is not None}


def _entry_name(steps: Sequence[str]) -> str:
    """Returns an entry's name in arguments and files, such as ``"target.boxes"``."""
    return ".".join(map(step_name, steps))


def _listed(found: Any) -> str:
    return ", ".join("".join(steps) or "the batch itself" for steps in found) or "none"
