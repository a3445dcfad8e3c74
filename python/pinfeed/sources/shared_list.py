"""Python objects that workers share."""

from __future__ import annotations

import io
import itertools
import mmap
import pickle
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing import context
from typing import Any, Self

import torch
from typing_extensions import override

from pinfeed.arguments import Problem
from pinfeed.imports import noted
from pinfeed.memory.shared_file import SharedFile

#: The attributes of SharedList itself; a subclass may have more.
_OWN = {"_file", "_positions", "_count", "_bytes", "_ends"}


class SharedList(Sequence[Any]):
    """A read-only list of Python objects (annotations, paths, texts) that all workers share.

    Forked workers that read an ordinary list end up with one copy each, because reading an object
    writes its reference count and so copies its memory page. A SharedList stores pickled bytes in
    shared memory, which no start method copies. The memory is freed when the last process closes it.

    Args:
        records: Any iterable of picklable objects, such as a generator. Records are pickled one at a
            time.

    - ``shared[i]`` returns a new object each time, in about a microsecond; changes to it aren't stored.
    - ``shared[a:b:step]`` is a SharedList over the same memory.
    - ``==`` compares identity; use ``list(shared) == records`` to compare contents.
    - ``pickle.dumps`` and queues copy the contents. ``copy.deepcopy`` returns the list itself.

    Any number of threads may read it at once.

    Raises:
        TypeError: If ``records`` is a dict or a DataFrame, or a record can't be pickled; the message
            names the record.
        OSError: If there is not enough memory.

    Example:
        >>> records = [{"file": f"{i:04}.jpg", "label": i % 10} for i in range(1000)]
        >>> shared = pinfeed.SharedList(records)
        >>> len(shared), shared[-1]
        (1000, {'file': '0999.jpg', 'label': 9})
        >>> list(shared[::500])
        [{'file': '0000.jpg', 'label': 0}, {'file': '0500.jpg', 'label': 0}]
    """

    def __init__(self, records: Iterable[Any]) -> None:
        is_table = hasattr(records, "columns")
        if is_table or isinstance(records, Mapping | str | bytes) or not _is_iterable(records):
            fix = "its rows as dicts" if is_table else "list(records.values()), or [records]"
            expected, got = "an iterable of records", type(records).__name__
            raise TypeError(Problem("SharedList: records", expected, got, f"pass {fix}"))
        file, ends = SharedFile.create(), array("q", [0])
        with io.FileIO(file.descriptor, "wb", closefd=False) as raw, io.BufferedWriter(raw) as out:
            pickler = _Pickler(out, pickle.HIGHEST_PROTOCOL)
            for index, record in enumerate(noted(records, "SharedList: raised at record")):
                try:
                    pickler.dump(record)
                except OSError:
                    raise
                except Exception as error:
                    problem = Problem(
                        f"SharedList: record {index}",
                        "a picklable object",
                        type(record).__name__,
                        f"leave out what can't be pickled: {error}",
                    )
                    raise TypeError(problem) from error
                pickler.clear_memo()
                ends.append(out.tell())
            out.write(bytes(-out.tell() % ends.itemsize))
            out.write(ends)
        self._open(file, range(len(ends) - 1))

    def _open(self, file: SharedFile, positions: range, count: int | None = None) -> None:
        self._file = file
        self._positions = positions
        self._count = len(positions) if count is None else count  # of the whole list
        self._bytes = memoryview(file.map(mmap.ACCESS_READ))
        self._ends = self._bytes[-8 * (self._count + 1) :].cast("q")

    def __len__(self) -> int:
        return len(self._positions)

    @override
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._part(self._positions[index])
        try:
            position = self._positions[index]
        except IndexError:
            text = f"SharedList: index {index} is out of range for {len(self)} records"
            raise IndexError(text) from None
        except TypeError:
            hint = "[shared[i] for i in indices] returns several"
            got = type(index).__name__
            raise TypeError(Problem("SharedList", "an integer or a slice", got, hint)) from None
        return pickle.loads(self._bytes[self._ends[position] : self._ends[position + 1]])

    @override
    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        return f"SharedList({len(self)} records, {self._ends[-1]} bytes)"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> Any:
        state = {key: value for key, value in vars(self).items() if key not in _OWN}
        if context.get_spawning_popen() is not None:
            return _attached, (type(self), self._file, self._positions, self._count), state
        bounds = [(self._ends[i], self._ends[i + 1]) for i in self._positions]
        contents = b"".join(self._bytes[begin:end] for begin, end in bounds)
        lengths = array("q", [end - begin for begin, end in bounds])
        return _copied, (type(self), contents, lengths), state

    def _part(self, positions: range) -> Self:
        part = type(self).__new__(type(self))
        part.__dict__ |= vars(self) | {"_positions": positions}
        return part


def _is_iterable(records: Any) -> bool:
    try:
        iter(records)
    except TypeError:
        return False
    return True


class _Pickler(pickle.Pickler):
    """Pickles only the visible part of a tensor; torch pickles its whole storage."""

    @override
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            storage = value.untyped_storage()
            if storage.nbytes() > value.nbytes:
                alone: Any = value.detach().clone().requires_grad_(value.requires_grad)
                return alone.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented


def _attached(cls: type[SharedList], file: SharedFile, positions: range, count: int) -> SharedList:
    shared = cls.__new__(cls)
    shared._open(file, positions, count)
    return shared


def _copied(cls: type[SharedList], contents: bytes, lengths: Sequence[int]) -> SharedList:
    file, ends = SharedFile.create(), array("q", itertools.accumulate(lengths, initial=0))
    file.write(contents, 0)
    file.write(ends.tobytes(), len(contents) + -len(contents) % ends.itemsize)
    return _attached(cls, file, range(len(lengths)), len(lengths))
