"""Map-style datasets over arrays, which are not copied."""

from __future__ import annotations

import copy
import os
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import ARRAYS, Problem, add_hint, as_table, nearest, with_hints
from pinfeed.batches import IndexBatch, Packing, SampleBatch, SampleList, Selectable, Selection
from pinfeed.imports import add_note
from pinfeed.sources.npz import npz_arrays
from pinfeed.sources.ragged import RaggedArray, is_ragged_directory
from pinfeed.sources.shared_list import SharedList
from pinfeed.sources.source import (
    ArraySource,
    ObjectColumn,
    Source,
    SourceSubset,
    are_bools,
    checked_position,
    positions,
    share_arrays,
)
from pinfeed.sources.strings import encode
from pinfeed.structure import children, entries, is_container, map_entries, rebuild


class ArrayDataset(torch.utils.data.Dataset[Any]):
    """A dataset of array rows: ``dataset[i]`` returns ``array[i]`` of every array, nested the same way.

    Works with any DataLoader and any collate function. With `pinfeed.Collate`, a whole batch is
    gathered natively, without Python code for each sample.

    Args:
        arrays: An array, or arrays in nested tuples, dicts, NamedTuples or dataclasses, or a
            ``TensorDataset``. All arrays have the same length. An array is one of

            - an ndarray, an ``np.memmap`` or a CPU tensor,
            - a `RaggedArray` of strings or samples of different lengths (an ndarray of strings is
              converted), a `ConcatArray`, or a `SharedList` of Python objects,
            - the path of a .npy file, opened as a read-only memmap, without pickle,
            - the path of an uncompressed .npz file: a dict of such memmaps,
            - the path of a directory that `RaggedArray.save` or `write_array` wrote; a directory of
              several arrays is a dict with the file names as keys.

    Samples are views: tensors if the array is one, else ndarrays, read-only if the array is.
    Samples of a 1-D array are NumPy scalars. If a file is truncated while in use, the next
    batch raises OSError. Pass a memmap itself, not a tensor made from it: the file behind a tensor
    is unknown, so it is neither checked nor pickled as a path.

    Arrays in a file are pickled as the file's path. For spawn and forkserver workers, arrays that are
    in memory and take at least 1 MiB are copied once, to shared memory. The dataset then uses this copy
    too, and the original is freed unless it is referenced elsewhere. A worker sees the arrays as they
    were when it started, plus its own writes.

    Any number of threads may read the dataset at once, as long as no thread writes to its arrays.

    Raises:
        TypeError: If an entry is not an array, is a masked array, or has a non-numeric or byte-swapped
            dtype.
        ValueError: If lengths differ, no array is given, a file is not a valid .npy file or uncompressed
            .npz file, or the files of a directory seem to be samples, classes or parts, not entries.
        OSError: If a file can't be read.

    Example:
        >>> dataset = pinfeed.ArrayDataset((np.zeros((10, 4)), np.arange(10)))
        >>> len(dataset), dataset[3][1]
        (10, np.int64(3))
    """

    @with_hints(
        "arrays go into one tuple or dict: ArrayDataset((images, labels))",
        transform="Collate(Image(augment=...)) transforms images",
    )
    def __init__(self, arrays: Any) -> None:
        self._sources = _open_sources(arrays, "")
        lengths = {"".join(path): len(source) for path, source in entries(self._sources)}
        if not lengths:
            raise ValueError("ArrayDataset: expected at least one array, got an empty structure")
        first_path, self._length = next(iter(lengths.items()))
        for path, length in lengths.items():
            if length != self._length:
                raise ValueError(
                    f"ArrayDataset: arrays must have the same length, got {self._length} in entry "
                    f"{first_path} and {length} in entry {path}; convert a list of samples with "
                    "np.stack(samples), or RaggedArray.from_sequences(samples); "
                    f"{_OF_SAMPLES}"
                )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__getitem__" in vars(cls) and "__getitems__" not in vars(cls):
            raise TypeError(
                f"{cls.__name__} overrides ArrayDataset.__getitem__, which DataLoader doesn't call: it "
                "calls __getitems__ for a whole batch. Override that too: "
                "def __getitems__(self, indices): return [self[i] for i in indices]"
            )

    @classmethod
    def from_arrow(cls, table: Any, columns: Sequence[str] | None = None) -> Self:
        """Creates a dataset of an Arrow table's rows, as dicts, without copying Arrow's memory.

        Columns of numbers become arrays; fixed-size lists (also nested) and fixed-shape tensors become
        arrays with more axes; lists and strings become a `RaggedArray`. Columns of several chunks
        become a `ConcatArray`, which is as fast as one array. Only bools are copied, because Arrow
        packs eight of them into a byte. The dataset keeps the table's memory alive.

        Args:
            table: One of

                - a ``pyarrow.Table`` or ``pyarrow.RecordBatch``,
                - a Hugging Face ``datasets.Dataset``, also after ``select``, ``filter`` or ``shuffle``;
                  ``with_format`` selects columns, but has no effect on values,
                - a pandas DataFrame, whose named index levels of numbers or strings become columns, or a polars DataFrame,
                - the path of a Parquet file, or of a directory of them, which are read into memory.
            columns: Column names, such as ``["input_ids", "label"]``. None: the columns of the dataset's
                format, or all columns except pandas' unnamed indexes (``__index_level_0__``).

        Memory-mapped tables stay memory-mapped, and workers share them: spawn and forkserver workers
        map the file again, if it hasn't changed. Truncating a mapped file while it is in use crashes
        the process, because files that Arrow has mapped are not checked before each batch.

        Raises:
            TypeError: If a column has another type, such as dates, or ``table`` is not a table.
            ValueError: If a value is null, a column does not exist, or a dataset has a transform.

        Example:
            >>> import pyarrow
            >>> table = pyarrow.table(
            ...     {"tokens": [[1, 2], [3]], "label": [0, 1], "id": ["a", "b"]}
            ... )
            >>> dataset = pinfeed.ArrayDataset.from_arrow(table, ["tokens", "label"])
            >>> dataset[1]
            {'tokens': array([3]), 'label': np.int64(1)}
        """
        from pinfeed.sources.arrow import table_columns  # which imports pyarrow

        arrays, order = table_columns(table, columns, f"{cls.__name__}.from_arrow")
        self = cls(arrays)
        return self if order is None else self.select(order)

    def select(self, indices: Any) -> Self:
        """Returns a dataset of the given rows, in the given order, sharing the arrays.

        Batches are gathered as fast as from the whole dataset. ``dataset[100:]`` is shorthand for
        ``select`` with a range.

        Args:
            indices: Integers in a list, a range, an ndarray or a tensor; or bools in a list, an
                ndarray or a tensor, one per sample.

        Raises:
            IndexError: If an index is out of range, or the number of bools differs from the length.
            TypeError: If the indices are neither integers nor bools.

        Example:
            >>> dataset = pinfeed.ArrayDataset({"x": np.arange(10) * 10})
            >>> training, validation = dataset[:8], dataset.select([8, 9])
            >>> len(training), validation[0]
            (8, {'x': np.int64(80)})
        """
        order = positions(indices, self._length, "ArrayDataset: indices")
        chosen = ArraySource(order, "ArrayDataset: indices")
        selected = copy.copy(self)
        selected._sources = map_entries(
            lambda source: SourceSubset.of(source, chosen), self._sources
        )
        selected._length = len(order)
        return selected

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        """Returns a sample, a subset, a column or a batch, depending on the index.

        Args:
            index: An integer returns one sample. A slice, a range, a tensor, or bools in an ndarray or
                a list return an ArrayDataset, as `select` does. If samples are dicts, a string
                returns the arrays under this key, for a sampler
                (``PackSampler(dataset["input_ids"], seq_length=2048)``) or `RaggedArray.lengths`.
                Integers in a list or an ndarray return `Rows`.
        """
        is_array = isinstance(index, ARRAYS) and index.ndim > 0
        is_tensor = is_array and isinstance(index, torch.Tensor)
        if isinstance(index, range) or is_tensor or are_bools(index):
            return self.select(index)
        if is_array or isinstance(index, list | IndexBatch):
            return self.__getitems__(index)
        if isinstance(index, slice):
            return self.select(range(*index.indices(self._length)))
        if isinstance(index, str):
            return self._column(index)
        expected = (
            "an integer, a slice, a key, or integers or bools in a list, an ndarray or a tensor"
        )
        return _sample(
            self._sources, checked_position(index, self._length, "ArrayDataset", expected)
        )

    def _column(self, key: str) -> Any:
        if not isinstance(self._sources, Mapping) or key not in self._sources:
            keys = self._sources if isinstance(self._sources, Mapping) else ()
            hint = nearest(key, keys) or f"the dataset is {self!r}"
            raise KeyError(Problem("ArrayDataset", "a key of its samples", repr(key), hint))
        unwrapped = lambda source: source.array if isinstance(source, ArraySource) else source
        return map_entries(unwrapped, self._sources[key])

    def __getitems__(self, indices: Sequence[int] | npt.NDArray[Any]) -> Rows:
        """Returns a batch of samples; DataLoader calls this once per batch."""
        indices, *batch_info = _split_indices(indices)
        return Rows(self._sources, indices, *batch_info, length=self._length)

    def state_dict(self) -> dict[str, int]:
        """Returns the number of samples, under the key ``samples``.

        torchdata's ``StatefulDataLoader`` saves it in its own state, which then can't be loaded with
        arrays of another length.
        """
        return {"samples": self._length}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Validates that ``state`` belongs to a dataset of this length; changes nothing.

        Raises:
            ValueError: If the number of samples differs.
        """
        if state != self.state_dict():
            samples = state.get("samples") if isinstance(state, dict) else state
            raise ValueError(
                f"ArrayDataset: the state is from a dataset of {samples!r} samples, but this one has "
                f"{self._length}; load it with the same arrays"
            )

    def __getstate__(self) -> dict[str, Any]:
        sources = [source for _, source in entries(self._sources)]
        share_arrays([source for source in sources if isinstance(source, ArraySource)])
        return self.__dict__

    def __repr__(self) -> str:
        return f"ArrayDataset({self._length} samples: {_sample_text(self._sources)})"


class Rows(SampleBatch, Selectable):
    """A batch of `ArrayDataset` rows, stored as source arrays and indices.

    Any collate function sees a ``Sequence`` of samples; `pinfeed.Collate` gathers natively from
    ``sources`` and ``indices``. Any number of threads may read it at once.

    Attributes:
        sources: The dataset's arrays, with their nesting.
        indices: int64 ndarray of shape (B,), validated and non-negative.
        dataset_length: The length of the arrays.
        epoch: Epoch of the batch, if a pinfeed sampler chose the rows; otherwise None.
        packing: Row layout planned by a `PackSampler`, or None.
        copies: Number of earlier draws of each row in this epoch, int64 (B,), if a
            `WeightedSampler` chose the rows; otherwise None.

    Example:
        >>> rows = pinfeed.ArrayDataset(np.arange(5) * 10)[[3, 1]]
        >>> [int(sample) for sample in rows], rows.indices
        ([30, 10], array([3, 1]))
    """

    __slots__ = ("sources",)

    def __init__(
        self,
        sources: Any,
        indices: Any,
        epoch: int | None = None,
        packing: Packing | None = None,
        copies: npt.NDArray[np.int64] | None = None,
        *,
        length: int | None = None,
    ) -> None:
        if length is None:  # an ArrayDataset knows it
            is_source = isinstance(sources, Source)
            first = sources if is_source else next((source for _, source in entries(sources)), None)
            if first is None:
                raise ValueError(f"Rows: sources must hold at least one array, got {sources!r}")
            length = len(first)
        self.sources = sources
        # SampleBatch.__init__, whose call takes longer than the rest.
        self.indices = _core.as_indices(indices, length, "ArrayDataset: indices")
        self.dataset_length, self.epoch, self.packing, self.copies = length, epoch, packing, copies

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return Rows(self.sources, self.indices[position])
        if isinstance(position, str):
            hint = f"dataset.select(indices)[{position!r}] returns this entry of all samples"
            raise TypeError(Problem("Rows", "the position of a sample", repr(position), hint))
        return _sample(self.sources, int(self.indices[position]))

    def __repr__(self) -> str:
        return f"Rows({len(self)} samples: {_sample_text(self.sources)})"

    def __iter__(self) -> Iterator[Any]:
        for index in self.indices.tolist():
            yield _sample(self.sources, index)

    @override
    def selection(self) -> Selection:
        is_source = isinstance(self.sources, Source)
        return self.sources.select(self.indices) if is_source else Selection(list(self))

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls a torch function with a list of the samples, because torch takes no other sequence.

        ``default_collate`` calls ``torch.stack`` if the dataset is a single tensor; the rows are then
        selected in one call, without a view of each.
        """
        kwargs = kwargs or {}
        if function is torch.stack and args and args[1:] in ((), (0,)) and kwargs.keys() <= {"out"}:
            array = getattr(args[0].sources, "array", None)
            if isinstance(array, torch.Tensor):
                return torch.index_select(array, 0, torch.from_numpy(args[0].indices), **kwargs)
        return super().__torch_function__(function, types, args, kwargs)


class IndexedDataset(torch.utils.data.Dataset[Any]):
    """Wraps a dataset so that its batches carry sample indices, the epoch and the packing layout.

    `Collate` with a seed draws random numbers by sample index and epoch, and `Pack` needs the row layout
    of a `PackSampler`. Wrap every dataset that is used with them; an `ArrayDataset` needs no wrapper. Any
    number of threads may read the wrapper at once, if the wrapped dataset allows that.

    Args:
        dataset: Any map-style dataset; others raise TypeError. Its ``__getitems__`` is used if it has one.

    Example:
        >>> photos = [np.zeros((height, 40, 3), np.uint8) for height in (32, 48, 64)]
        >>> crop = pinfeed.augment.RandomCrop(32)
        >>> loader = torch.utils.data.DataLoader(
        ...     pinfeed.IndexedDataset(photos),
        ...     batch_sampler=pinfeed.samplers.ShuffleSampler(photos, batch_size=3),
        ...     collate_fn=pinfeed.Collate(pinfeed.Image(augment=crop), seed=0),
        ... )
        >>> next(iter(loader)).shape
        torch.Size([3, 3, 32, 32])
        >>> documents = [[1, 2, 3], [4, 5], [6]]
        >>> loader = torch.utils.data.DataLoader(
        ...     pinfeed.IndexedDataset(documents),
        ...     batch_sampler=pinfeed.samplers.PackSampler(
        ...         [3, 2, 1], seq_length=4, batch_size=2, shuffle=False
        ...     ),
        ...     collate_fn=pinfeed.Collate(pinfeed.Pack(seq_length=4)),
        ... )
        >>> next(iter(loader))
        tensor([[1, 2, 3, 6],
                [4, 5, 0, 0]])
    """

    def __init__(self, dataset: Any) -> None:
        if isinstance(dataset, IterableDataset) or not (
            hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")
        ):
            hint = "Collate(..., id_key=...) reads the number of a stream's sample from the sample"
            expected, got = "a dataset with indices", type(dataset).__name__
            raise TypeError(Problem("IndexedDataset", expected, got, hint))
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        try:
            return self.dataset[index]
        except Exception as error:
            self._say_which(error, f"sample {index}")
            raise

    def __getitems__(self, indices: Sequence[int]) -> SampleBatch:
        """Returns a batch of samples with their indices, epoch and packing layout."""
        plain_indices, *batch_info = _split_indices(indices)
        checked = _core.as_indices(plain_indices, len(self.dataset), "IndexedDataset: indices")
        samples = self._fetch(indices)
        if isinstance(samples, Rows):
            return Rows(samples.sources, samples.indices, *batch_info)
        if isinstance(samples, Mapping) or len(samples) != len(checked):
            expected = f"{len(checked)} samples of {type(self.dataset).__name__}.__getitems__"
            got = f"a {type(samples).__name__} of {len(samples)}"
            hint = "it has to return a list of samples, not columns"
            raise TypeError(Problem("IndexedDataset", expected, got, hint))
        return SampleList(samples, checked, len(self.dataset), *batch_info)

    def _fetch(self, indices: Sequence[int]) -> Any:
        """Reads samples from the dataset; adds a note that names the sample to errors."""
        fetch = getattr(self.dataset, "__getitems__", None)
        index = None
        samples = []
        try:
            if callable(fetch):
                return fetch(indices)
            for index in indices:
                samples.append(self.dataset[index])
        except Exception as error:
            batch = f"one of samples {reprlib.repr([*indices])}"
            self._say_which(error, batch if index is None else f"sample {index}")
            raise
        return samples

    def _say_which(self, error: Exception, which: str) -> None:
        add_note(error, f"IndexedDataset: raised by {type(self.dataset).__name__} for {which}")


def _split_indices(indices: Any) -> tuple[Any, int | None, Packing | None, Any]:
    """Splits a sampler's indices into plain indices, epoch, packing and copies."""
    if type(indices) is not list and isinstance(indices, IndexBatch):
        return indices.indices, indices.epoch, indices.packing, indices.copies
    return indices, None, None, None


def _open_sources(arrays: Any, path: str) -> Any:
    if isinstance(arrays, str | os.PathLike):
        arrays = _in_path(os.fsdecode(arrays), _name(path))
    if type(arrays) is TensorDataset:
        arrays = arrays.tensors
    elif type(arrays).__module__.startswith("tensordict."):
        arrays = dict(arrays.items())
    # Arrays of other packages may be dataclasses or sequences; don't treat them as containers.
    is_foreign = type(arrays).__module__.partition(".")[0] in _FOREIGN
    if is_foreign or isinstance(arrays, SharedList) or not is_container(arrays):
        return _open_source(arrays, _name(path))
    if isinstance(arrays, list | tuple | range):
        _require_arrays(arrays, path)
    opened = [_open_sources(child, path + step) for step, child in children(arrays)]
    return rebuild(arrays, opened)


#: The hint if a string is not the path of an array.
_NO_PATHS = "a string is the path of a .npy file; RaggedArray.from_strings(strings) keeps strings as they are"


# Names of parts that ranks have written; numbers, with leading zeros, and hashes in names of samples.
_PART = re.compile("(part|shard|rank|chunk|split)s?[-_. ]?[0-9]+", re.IGNORECASE)
_NUMBER, _PADDED = re.compile("[0-9]{3}"), re.compile("(?<![0-9])0[0-9]{2}")
_HASH = re.compile("[0-9a-f-]{8,}", re.IGNORECASE)
# Hints for files of other kinds.
_BY_DATASET = (
    "files of other kinds are read by the __getitem__ of a Dataset: "
    "DataLoader(dataset, batch_size, collate_fn=Collate(Image()))"
)
_BY_FOLDER = (
    "torchvision.datasets.ImageFolder(path) reads images in a folder per class: "
    "DataLoader(dataset, batch_size, collate_fn=Collate((Image(), None)))"
)

#: The hint if files may hold one sample each.
_OF_SAMPLES = "ConcatArray(paths, samples=True) takes files of one sample each"


def _name(path: str) -> str:
    """The name of an entry in messages."""
    return f"ArrayDataset: entry {path}" if path else "ArrayDataset"


def _in_path(path: str, name: str) -> Any:
    """Resolves a path: returns the path of a .npy file itself, a RaggedArray, or a dict of arrays.

    The dict's keys are the file names of a directory, or the member names of a .npz file.
    """
    ending = os.path.splitext(path)[1]
    if ending == ".parquet" and "*" in path:
        hint = _from_table("pyarrow.parquet.ParquetDataset(sorted(glob.glob(path))).read()")
        raise ValueError(Problem(name, "the path of a .npy or .npz file", path, hint))
    if ending in _OTHER_FILES:
        raise ValueError(
            Problem(name, "the path of a .npy or .npz file", path, _OTHER_FILES[ending])
        )
    if not os.path.isdir(path):
        if not path.endswith(".npz"):
            return path
        members = npz_arrays(path, name)
        is_list = all(re.fullmatch("arr_[0-9]+", key) for key in members)
        if (
            is_list
            and len(members) > 4  # pairs, triplets and quadruplets are entries
            and len({(a.dtype, a.shape) for a in members.values()}) == 1
        ):
            raise ValueError(
                f"{name}: {path} has {len(members)} arrays of one shape without names, like samples; pass "
                "np.stack([*np.load(path).values()]), or dict(np.load(path)) to make each an entry"
            )
        return members
    if is_ragged_directory(path):
        return RaggedArray.open(path)
    arrays = {
        name.removesuffix(".npy"): os.path.join(path, name)
        for name in sorted(os.listdir(path))
        if (name.endswith(".npy") or os.path.isdir(os.path.join(path, name)))
        and not name.startswith(".")
    }
    if not arrays:
        raise ValueError(
            f"{name}: {path} is a directory without .npy files; pass a directory that write_array or "
            "RaggedArray.save wrote; ArrayDataset.from_arrow(path) reads a directory of Parquet files; "
            f"{_BY_DATASET}"
        )
    _require_entries(arrays, path, name)
    return arrays


def _require_entries(arrays: Mapping[str, str], path: str, name: str) -> None:
    """Raises ValueError if the files of a directory seem to be samples, classes or parts, not entries."""
    by_name = "pass a dict of paths to make each an entry"
    folders = [file for file in arrays.values() if os.path.isdir(file)]
    are_alike = len({tuple(sorted(os.listdir(folder))) for folder in folders}) == 1
    are_alike = are_alike and len(folders) == len(arrays)
    for folder in folders:
        if is_ragged_directory(folder):
            continue
        files = sorted(file for file in os.listdir(folder) if not file.startswith("."))
        is_nested = are_alike and len(files) > 1 and all(f.endswith(".npy") for f in files)
        if is_nested and not (_are_numbers(arrays) or any(map(_PART.fullmatch, arrays))):
            continue  # entries of entries, whose names are checked when they are opened
        first = next((file for file in files if file.endswith(".npy") or "." not in file), "")
        hint = _BY_FOLDER
        if first:
            every = f"sorted(glob.glob('{path}/*/*.npy'))"
            hint = f"for files of one sample each pass ConcatArray({every}, samples=True)"
            hint += f", to join files of many ConcatArray({every.replace('*.npy', first)})"
        got = f"the folder {os.path.basename(folder)!r} of {files[:3]}"
        raise ValueError(
            Problem(name, f".npy files and RaggedArrays in {path}", got, f"{hint}; or {by_name}")
        )
    how = ""
    if len(arrays) > 1 and all(map(_PART.fullmatch, arrays)):
        parts = [] if folders else [ArraySource.open(file, name) for file in arrays.values()]
        how = "numbered like parts" * (len({part.describe() for part in parts}) < 2)
    elif len(arrays) > 2 and len(folders) == len(arrays):
        if _are_numbers(arrays):
            how = "named like samples"
    elif len(arrays) > 2 and not folders:
        opened = [ArraySource.open(file, name) for file in [*arrays.values()][:3]]
        is_numbered = len({stem.rstrip("0123456789") for stem in arrays}) == 1
        is_sample = is_numbered or _are_numbers(arrays)
        is_sample = is_sample or all(_is_image(source.array) for source in opened)
        if is_sample and len({source.describe() for source in opened}) == 1:
            how = "of one shape, " + ("numbered" if is_numbered else "which look") + " like samples"
    if how:
        pattern = f"{path}/*{'' if folders else '.npy'}"
        raise ValueError(
            f"{name}: {path} has {len(arrays)} {'folders' if folders else 'files'} {how}; "
            f"sorted(glob.glob('{pattern}'), key=lambda p: (len(p), p)) returns the paths by number: "
            f"{_OF_SAMPLES}, ConcatArray(paths) joins files of many; or {by_name}"
        )


def _are_numbers(names: Iterable[str]) -> bool:
    """Whether all names have numbers, some with leading zeros, or are hashes."""
    names = list(names)
    is_padded = all(map(_NUMBER.search, names)) and any(map(_PADDED.search, names))
    return is_padded or all(map(_HASH.fullmatch, names))


def _require_arrays(items: Sequence[Any], path: str) -> None:
    """Raises TypeError for a list of samples, which a list of arrays may be."""
    first = items[0] if items else None
    expected = "an array"
    is_number = isinstance(first, ARRAYS) and first.ndim == 0
    if is_number or isinstance(first, int | float | np.generic):
        got, hint = "numbers", "pass np.array(x)"
    elif isinstance(first, list | tuple) and (not first or isinstance(first[0], int | float)):
        got = "lists of numbers"
        hint = "if they differ in length, pass RaggedArray.from_sequences(x), else np.array(x)"
    elif not items or not isinstance(items, list):
        return
    elif all(isinstance(item, str | os.PathLike) for item in items):
        got = "paths"
        hint = f"{_OF_SAMPLES}, ConcatArray(paths) .npy files of many"
        if not os.fsdecode(items[0]).endswith(".npy"):
            got = "paths or strings"
            hint = f"RaggedArray.from_strings(strings) keeps strings as they are; {_BY_DATASET}"
            if os.fsdecode(items[0]).endswith((".parquet", ".pq")):
                hint = _from_table(as_table(items))
    elif isinstance(first, np.ndarray | torch.Tensor | Source):
        if path and not (_are_samples(items) if len(items) > 1 else _is_image(first)):
            return
        expected, got = "an array, or arrays in a tuple or dict", "arrays"
        hint = "pass np.stack(arrays), or a tuple of arrays for the entries of a sample"
        if path and len({tuple(item.shape) for item in items}) > 1:
            got = "arrays of several shapes"
            hint = (
                "pass DataLoader([{key: array} for array in arrays], batch_size, collate_fn=Collate(fields)), "
                "or a tuple of arrays for the entries of a sample"
            )
    elif type(first).__module__.startswith("PIL."):
        got = "PIL images"
        hint = (
            "pass np.stack(images) if they have one size; images of any size need no dataset: "
            "DataLoader(samples, batch_size, collate_fn=Collate(fields)) takes a list of samples"
        )
    elif call := as_table(items):
        got, hint = "tables or columns", _from_table(call)
    elif path and isinstance(first, bytes):
        got, hint = "bytes", "RaggedArray.from_strings(x) keeps them as they are"
    elif path and not _has_entries(first):
        got, hint = f"{type(first).__name__}s", "SharedList(x) keeps one Python object per sample"
    elif path:
        return
    else:
        got = "samples"
        hint = "they need no dataset: DataLoader(samples, batch_size, collate_fn=Collate())"
    raise TypeError(
        Problem(_name(path), expected, f"a {type(items).__name__} of {len(items)} {got}", hint)
    )


def _has_entries(item: Any) -> bool:
    """Whether an item of a list can be an entry, or contain entries."""
    if isinstance(item, Mapping):
        return any(map(_has_entries, item.values()))
    if isinstance(item, list | tuple):
        return not item or not isinstance(item[0], str | bytes)
    return type(item).__module__ not in ("builtins", "datetime", "decimal")


def _are_samples(items: Sequence[Any]) -> bool:
    """Whether arrays in a list look like samples, and not like entries of samples.

    Arrays of several shapes can be entries, unless there are more of them than rows, or all are images.
    """
    if not all(isinstance(item, ARRAYS) and item.ndim for item in items):
        return False
    if len({(str(item.dtype), item.ndim, len(item)) for item in items}) > 1:
        return False  # other lengths raise
    is_one_shape = len({tuple(item.shape) for item in items}) == 1
    return is_one_shape or len(items) > len(items[0]) or all(map(_is_image, items))


def _is_image(array: Any) -> bool:
    """Whether an array looks like a single image."""
    is_bytes = str(getattr(array, "dtype", "")).endswith("uint8")
    return is_bytes and array.ndim == 3 and array.shape[2] in (3, 4)


def _open_source(array: Any, name: str) -> Source:
    if isinstance(array, Source):
        return array
    if isinstance(array, SharedList):
        return ObjectColumn(array)
    if isinstance(array, str | os.PathLike):
        try:
            return ArraySource.open(array, name)
        except FileNotFoundError as error:
            hint = _NO_PATHS
            if "*" in os.fsdecode(array):
                hint = f"ConcatArray(sorted(glob.glob({os.fsdecode(array)!r}))) joins several files"
            raise FileNotFoundError(error.errno, f"{error.strerror}; {hint}") from error
        except ValueError as error:
            if not os.fsdecode(array).endswith(".npy"):
                add_hint(error, _NO_PATHS)
            raise
    if isinstance(array, np.ndarray) and array.dtype.kind in "SUTO":
        try:
            return RaggedArray(*encode(array, f"{name}: item"))
        except TypeError as error:
            if array.size and isinstance(array.flat[0], np.ndarray | torch.Tensor | list | tuple):
                add_hint(
                    error,
                    "pass RaggedArray.from_sequences(array) for arrays of different lengths, or "
                    "np.stack(array) for arrays of one shape",
                )
            elif array.size and not isinstance(array.flat[0], str | bytes | int | float):
                add_hint(error, "SharedList(array) keeps Python objects")
            raise
    if isinstance(array, ARRAYS):
        return ArraySource(array, name)
    expected = (
        "an ndarray, a memmap, a CPU tensor, a RaggedArray, a ConcatArray, or the path of a .npy file "
        "or of a directory of them"
    )
    raise TypeError(Problem(name, expected, type(array).__name__, _array_of(array)))


def _from_table(table: str = "table") -> str:
    """A hint for an expression that is a table."""
    return (
        f"ArrayDataset.from_arrow({table}) accepts it; for one column, "
        f"ArrayDataset.from_arrow({table}, ['x'])['x']"
    )


# Hints for arrays and tables of other packages, by package name.
_TABLE = _from_table()
_STORE = (
    "to_numpy((rows[i : i + 1000] for i in range(0, rows.shape[0], 1000)), out='x.npy') copies rows to a "
    "file once, np.asarray(rows) into memory; to leave them there, pass DataLoader a Dataset whose "
    "__getitems__(indices) reads the rows of a batch"
)
_SPARSE = (
    "pass its .toarray(), or, without a copy, a CSR matrix as RaggedArray(m.indices, m.indptr) and "
    "RaggedArray(m.data, m.indptr)"
)
_FOREIGN = {
    **dict.fromkeys(("pandas", "polars", "pyarrow", "datasets"), _TABLE),
    **dict.fromkeys(("h5py", "zarr", "netCDF4", "xarray", "dask", "tables"), _STORE),
    **dict.fromkeys(("scipy", "sparse"), _SPARSE),
}


def _in_file(is_zarr: bool) -> str:
    """A hint for a file or group of arrays."""
    opened = "zarr.open(path)" if is_zarr else "h5py.File(path)"
    return f"take an array in the file, such as rows = {opened}['x']; {_STORE}"


# Hints for paths of other files, by ending.
_OTHER_FILES = {
    **dict.fromkeys((".parquet", ".pq"), "ArrayDataset.from_arrow(path) reads a Parquet file"),
    **dict.fromkeys((".arrow", ".feather"), _from_table("pyarrow.feather.read_table(path)")),
    ".csv": _from_table("pyarrow.csv.read_csv(path)"),
    **dict.fromkeys((".jsonl", ".ndjson"), _from_table("pyarrow.json.read_json(path)")),
    **dict.fromkeys((".h5", ".hdf5"), _in_file(False)),
    **dict.fromkeys((".pt", ".pth"), "pass torch.load(path, mmap=True), if it returns tensors"),
    ".safetensors": "pass safetensors.numpy.load_file(path), a dict of arrays",
    ".mat": "pass scipy.io.loadmat(path)['x']",
    ".bin": "pass np.memmap(path, dtype, 'r'), with reshape(-1, ...) if samples have axes",
    ".txt": "pass np.loadtxt(path) for numbers, RaggedArray.from_strings(Path(path).read_text().splitlines()) for lines of text",
    ".tar": "pinfeed.StreamDataset(paths, open_shard=...) reads shards",
    ".zarr": _in_file(True),
}


def _array_of(value: Any) -> str:
    """A hint how to convert an object to an array."""
    if isinstance(value, int | float):
        return f"np.full(length, {value}) repeats it for each sample"
    package = type(value).__module__.partition(".")[0]
    if package == "datasets" and (column := getattr(value, "column_name", None)):
        return f"ArrayDataset.from_arrow(dataset, [{column!r}])[{column!r}] returns this column of a dataset"
    is_lazy = package == "polars" and not hasattr(value, "to_arrow")
    if (is_lazy or package == "pyarrow") and (call := as_table(value)):
        return _from_table(call)
    if hasattr(value, "to_numpy") and not hasattr(value, "columns"):  # a column of a table
        return "pass its .to_numpy()"
    if isinstance(value, DataLoader):
        return "to_numpy(loader) returns its batches as arrays"
    if isinstance(value, torch.utils.data.Dataset):
        return (
            "DataLoader(dataset, batch_size, collate_fn=Collate()) takes any dataset, "
            "write_array(path, dataset) makes files of its samples once"
        )
    if isinstance(value, Iterator):
        return "write_array(path, given) writes samples of any iterable to a .npy file"
    hint = _FOREIGN.get(package, "")
    if hint != _STORE:
        return hint or "np.asarray(x) converts it" * hasattr(value, "__array__")
    in_file = _in_file(package == "zarr")
    try:
        return hint if hasattr(value, "shape") else in_file
    except (KeyError, RuntimeError):
        return f"its file is closed; {in_file}"


def _sample(sources: Any, index: int) -> Any:
    return map_entries(lambda source: source[index], sources)


def _sample_text(sources: Any) -> str:
    return ", ".join(
        f"{''.join(path) or 'each'} {source.describe()}" for path, source in entries(sources)
    )
