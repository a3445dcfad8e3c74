"""Map-style datasets over arrays that nothing copies."""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import TensorDataset

from pinfeed import _core
from pinfeed.arguments import ARRAYS, Problem, add_hint, instead, nearest
from pinfeed.batches import IndexBatch, Packing, SampleBatch, SampleList
from pinfeed.optional import add_note
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
    """Samples that are rows of arrays: ``dataset[i]`` is the structure of all ``array[i]``.

    Works with any DataLoader and any collate function. With `pinfeed.Collate` a whole batch is
    gathered natively and no sample is touched in Python.

    Args:
        arrays: An array, or arrays in tuples, dicts, NamedTuples or dataclasses nested at will, or a
            ``TensorDataset``. An array is an ndarray, an ``np.memmap``, a CPU tensor, a `RaggedArray` for
            strings and samples of different lengths (an ndarray of strings becomes one), a
            `ConcatArray` of many arrays, a `SharedList` of Python objects, or a path: of a .npy file
            (opened as a read-only memmap; nothing is unpickled, nothing is read yet), of a .npz file
            of ``np.savez`` (a dict of such memmaps, by their names), or of what
            `RaggedArray.save` or `write_array` wrote (a directory of several arrays is a dict, by
            the names of its files). All have the same length.

    Samples are views: NumPy's of an ndarray or a file, read-only where the array is; torch's of a
    tensor (NumPy has no bfloat16). Those of a 1-D array are NumPy scalars. A file that is cut
    short while it is in use is an OSError at the next batch; only a tensor made from a memmap hides
    its file, so pass the memmap itself.

    The dataset pickles small where it can: an array that lies in a file travels as the file's path.
    Workers that are not forked map arrays of 1 MiB or more from shared memory that the dataset keeps.
    It takes the array's place, unless somebody else holds the array too: then both are in memory. A
    worker sees the values that the arrays had when it started, and what it writes, it alone sees.

    Any number of threads may read it at once, while nobody writes to its arrays.

    Raises:
        TypeError: Something is no array, or has a mask; or its dtype is not numeric, or
            byte-swapped.
        ValueError: The lengths differ, there is no array, or a file is no valid .npy or .npz file, or
            a compressed one.
        OSError: A file can't be read.

    Example:
        >>> dataset = pinfeed.ArrayDataset((np.zeros((10, 4)), np.arange(10)))
        >>> len(dataset), dataset[3][1]
        (10, np.int64(3))
    """

    @instead("arrays go into one tuple or dict: ArrayDataset((images, labels))")
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
                    f"{first_path} and {length} in entry {path}; samples in a list are "
                    "np.stack(samples), or RaggedArray.from_sequences(samples); "
                    f"{_OF_SAMPLES}"
                )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__getitem__" in vars(cls) and "__getitems__" not in vars(cls):
            raise TypeError(
                f"{cls.__name__} overrides ArrayDataset.__getitem__, and DataLoader would not call it: it "
                "asks for a whole batch. Override that too: "
                "def __getitems__(self, indices): return [self[i] for i in indices]"
            )

    @classmethod
    def from_arrow(cls, table: Any, columns: Sequence[str] | None = None) -> Self:
        """The rows of an Arrow table as dicts, gathered from Arrow's own memory.

        Numbers become arrays; fixed-size lists, nested ones too, and fixed-shape tensors become
        arrays of more axes; lists and strings become a `RaggedArray`. Columns of several chunks
        become a `ConcatArray`, which is as fast as one array. Only bools, which Arrow packs eight to
        a byte, are copied. You may drop the table; its memory lives as long as the
        dataset.

        Args:
            table: ``pyarrow.Table``, ``pyarrow.RecordBatch``, ``datasets.Dataset`` of Hugging
                Face, of which the stored values are taken, whatever ``with_format`` says; the rows
                that ``select``, ``filter`` or ``shuffle`` left, in their order. Or a DataFrame of
                pandas, without its index, or of polars; or the path of a Parquet file, which is read
                into memory.
            columns: Names of those wanted, such as ``["input_ids", "label"]``. None: all, or those
                that the dataset's format shows.

        What is memory-mapped stays so, and workers share it: those that are not forked map the file
        again, if it is still what it was. A mapped file that is cut short while in use ends the process,
        because Arrow does not say which file it has mapped.

        Raises:
            TypeError: A column holds something else, such as dates; ``table`` is something else.
            ValueError: A value is null; there is no such column; a dataset has a transform.

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
        """The samples of these indices, in this order, as a dataset over the same arrays.

        Batches are gathered as fast as from all samples. ``dataset[100:]`` is short for the
        ``select`` of a range.

        Args:
            indices: A list, a range, an ndarray or a tensor of integers; or a list, an ndarray or a tensor
                of bools, one for each sample.

        Raises:
            IndexError: An index is out of range, or there is not one bool for each sample.
            TypeError: They are neither integers nor bools.

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
        """One sample; or a part of the dataset.

        Args:
            index: An integer: the sample. A slice, a range, a tensor, or bools in an ndarray or a list:
                an ArrayDataset of those samples, as `select` makes it. A string: the
                arrays under this key, of samples that are dicts: for a sampler
                (``PackSampler(dataset["input_ids"], seq_length=2048)``), or `RaggedArray.lengths`.
                A list or an ndarray of integers: the `Rows`, as torch's bulk loading asks for them.
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
            hint = nearest(key, keys) or f"samples have {_sample_text(self._sources)}"
            raise KeyError(Problem("ArrayDataset", "a key of its samples", repr(key), hint))
        unwrapped = lambda source: source.array if isinstance(source, ArraySource) else source
        return map_entries(unwrapped, self._sources[key])

    def __getitems__(self, indices: Sequence[int] | npt.NDArray[Any]) -> Rows:
        """The samples of one batch, which DataLoader asks for at once."""
        indices, *known = _told(indices)
        return Rows(self._sources, indices, *known, length=self._length)

    def state_dict(self) -> dict[str, int]:
        """The number of samples, as ``samples``.

        torchdata's ``StatefulDataLoader`` saves it in its own state, which then can't be loaded with
        arrays of another length.
        """
        return {"samples": self._length}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Checks that a state is of a dataset of this size; nothing changes.

        Raises:
            ValueError: It has another number of samples.
        """
        if state != self.state_dict():
            samples = state.get("samples") if isinstance(state, dict) else state
            raise ValueError(
                f"ArrayDataset: the state is of a dataset of {samples!r} samples, and this one has "
                f"{self._length}"
            )

    def __getstate__(self) -> dict[str, Any]:
        sources = [source for _, source in entries(self._sources)]
        share_arrays([source for source in sources if isinstance(source, ArraySource)])
        return self.__dict__

    def __repr__(self) -> str:
        return f"ArrayDataset({self._length} samples: {_sample_text(self._sources)})"


class Rows(SampleBatch):
    """Samples of an `ArrayDataset` that know where they came from.

    A ``Sequence`` to any collate function; to `pinfeed.Collate` its ``sources`` and ``indices``,
    from which it gathers natively. Any number of threads may read it at once.

    Attributes:
        sources: The dataset's arrays, in their structure.
        indices: int64 ndarray of shape (B,), checked and not negative.
        dataset_length: The length of the arrays.
        epoch: Which epoch the batch is of, if a sampler of pinfeed's chose them.
        packing: Where they go to, if a `PackSampler` chose them.
        copies: How often the epoch had each of them before, if a `WeightedSampler` drew them.
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
            is_bare = isinstance(sources, Source)
            first = sources if is_bare else next((source for _, source in entries(sources)), None)
            if first is None:
                raise ValueError(f"Rows: sources must hold at least one array, got {sources!r}")
            length = len(first)
        self.sources = sources
        indices = _core.as_indices(indices, length, "ArrayDataset: indices")
        super().__init__(indices, length, epoch, packing, copies)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return Rows(self.sources, self.indices[position])
        return _sample(self.sources, int(self.indices[position]))

    def __repr__(self) -> str:
        return f"Rows({len(self)} samples: {_sample_text(self.sources)})"

    def __iter__(self) -> Iterator[Any]:
        for index in self.indices.tolist():
            yield _sample(self.sources, index)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls one of torch's functions, which take a list of tensors but no other sequence.

        ``default_collate`` calls ``torch.stack`` with the rows of a bare tensor; these are selected
        at once, without a view of each.
        """
        kwargs = kwargs or {}
        if function is torch.stack and args and args[1:] in ((), (0,)) and kwargs.keys() <= {"out"}:
            array = getattr(args[0].sources, "array", None)
            if isinstance(array, torch.Tensor):
                return torch.index_select(array, 0, torch.from_numpy(args[0].indices), **kwargs)
        return super().__torch_function__(function, types, args, kwargs)


class IndexedDataset(torch.utils.data.Dataset[Any]):
    """A dataset whose batches know which samples they hold, in which epoch, and in which rows.

    What `Collate` draws with a seed depends on the index of each sample and on the epoch, and `Pack`
    needs the rows that a `PackSampler` has planned. An `ArrayDataset` tells all that by itself.
    Other datasets, also a ``Subset`` of one, hand over samples and nothing else. Any number of threads
    may read it at once, if the dataset allows that.

    Args:
        dataset: Any map-style dataset. It is asked for a whole batch where it has ``__getitems__``.

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
        """The samples of one batch, with their indices and what else the batch knows."""
        told, *known = _told(indices)
        checked = _core.as_indices(told, len(self.dataset), "IndexedDataset: indices")
        samples = self._fetched(indices)
        if isinstance(samples, Rows):
            return Rows(samples.sources, samples.indices, *known)
        if isinstance(samples, Mapping) or len(samples) != len(checked):
            raise TypeError(
                f"IndexedDataset: expected {len(checked)} samples of {type(self.dataset).__name__}."
                f"__getitems__, got a {type(samples).__name__} of {len(samples)}; it has to return a list "
                "of samples, not columns"
            )
        return SampleList(samples, checked, len(self.dataset), *known)

    def _fetched(self, indices: Sequence[int]) -> Any:
        """What the dataset returns for them; an error that it raises gets a note of the sample."""
        fetch = getattr(self.dataset, "__getitems__", None)
        index = None
        samples = []
        try:
            if callable(fetch):
                return fetch(indices)
            for index in indices:
                samples.append(self.dataset[index])
        except Exception as error:
            batch = ", ".join(map(str, [*indices][:8]))
            which = f"sample {index}" if index is not None else f"one of samples {batch}"
            which += ", ..." if index is None and len(indices) > 8 else ""
            self._say_which(error, which)
            raise
        return samples

    def _say_which(self, error: Exception, which: str) -> None:
        add_note(error, f"IndexedDataset: raised by {type(self.dataset).__name__} for {which}")


def _told(indices: Any) -> tuple[Any, int | None, Packing | None, Any]:
    """Indices by themselves, and the epoch, the packing and the copies that a sampler told with them."""
    if type(indices) is not list and isinstance(indices, IndexBatch):
        return indices.indices, indices.epoch, indices.packing, indices.copies
    if isinstance(indices, list) and indices and type(indices[0]) is IndexBatch:
        operator.index(indices[0])  # raises, and says where the sampler goes
    return indices, None, None, None


def _open_sources(arrays: Any, path: str) -> Any:
    if isinstance(arrays, str | os.PathLike):
        arrays = _in_path(os.fsdecode(arrays), _name(path))
    if type(arrays) is TensorDataset:
        arrays = arrays.tensors
    elif type(arrays).__module__.startswith("tensordict."):
        arrays = dict(arrays.items())
    # Other packages' arrays may be dataclasses and their columns sequences, of which nothing is ours.
    is_foreign = type(arrays).__module__.partition(".")[0] in _FOREIGN
    if is_foreign or isinstance(arrays, SharedList) or not is_container(arrays):
        return _open_source(arrays, _name(path))
    if isinstance(arrays, list | tuple):
        _require_arrays(arrays, path)
    opened = [_open_sources(child, path + step) for step, child in children(arrays)]
    return rebuild(arrays, opened)


#: The hint where a string leads to no array.
_NO_PATHS = "a string is the path of a .npy file; RaggedArray.from_strings(strings) keeps strings as they are"


#: The hint where files may hold one sample each.
_OF_SAMPLES = "ConcatArray(paths, samples=True) takes files of one sample each"


def _name(path: str) -> str:
    """What messages call an entry."""
    return f"ArrayDataset: entry {path}" if path else "ArrayDataset"


def _in_path(path: str, name: str) -> Any:
    """What a path leads to: itself, the path of a .npy file; a RaggedArray; or a dict of arrays.

    That is by the names of the files in a directory, or of the members of a .npz file.
    """
    if path.endswith((".parquet", ".arrow", ".feather", ".h5", ".hdf5", ".zarr")):
        is_table = not path.endswith((".h5", ".hdf5", ".zarr"))
        hint = "ArrayDataset.from_arrow(path) reads a Parquet file" if is_table else _STORE
        raise ValueError(Problem(name, "the path of a .npy or .npz file", path, hint))
    if not os.path.isdir(path):
        return npz_arrays(path, name) if path.endswith(".npz") else path
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
            f"{name}: {path} is a directory without .npy files; expected what write_array or "
            "RaggedArray.save wrote"
        )
    if len(arrays) > 2 and len({name.rstrip("0123456789") for name in arrays}) == 1:
        files = [file for file in arrays.values() if os.path.isfile(file)]
        few = [ArraySource.open(file, name).describe() for file in files[:3]]
        if len(files) == len(arrays) and len({*few}) == 1:
            raise ValueError(
                f"{name}: {path} has {len(arrays)} files of one shape, numbered like samples; "
                f"sorted(glob.glob('{path}/*.npy'), key=lambda p: (len(p), p)) has the paths by number: "
                f"{_OF_SAMPLES}, and "
                "ConcatArray(paths) files of many samples each; a dict of paths makes each file an entry"
            )
    return arrays


def _require_arrays(items: Sequence[Any], path: str) -> None:
    """Raises TypeError for samples in a list; a list of arrays may be that, so none is taken alone."""
    first = items[0] if items else None
    expected = "an array"
    if isinstance(first, int | float | np.generic):
        got, hint = "numbers", "pass np.array(...) of it"
    elif isinstance(first, list | tuple) and (not first or isinstance(first[0], int | float)):
        got = "lists of numbers"
        hint = "if they differ in length, pass RaggedArray.from_sequences(...) of it, else np.array(...)"
    elif not items or not isinstance(items, list):
        return
    elif all(isinstance(item, str | os.PathLike) for item in items):
        got = "paths"
        hint = f"{_OF_SAMPLES}, ConcatArray(paths) .npy files of many"
        if not os.fsdecode(items[0]).endswith(".npy"):
            got = "paths or strings"
            hint = (
                "RaggedArray.from_strings(strings) keeps strings as they are; files are read by the "
                "__getitem__ of a Dataset: DataLoader(dataset, batch_size, collate_fn=Collate(Image()))"
            )
    elif isinstance(first, np.ndarray | torch.Tensor | Source):
        if path and not (_are_of_one_shape(items) if len(items) > 1 else _is_image(first)):
            return
        expected, got = "an array, or arrays in a tuple or dict", "arrays"
        hint = "pass np.stack(arrays), or a tuple of arrays for the entries of a sample"
    elif path:
        return
    else:
        got = "samples"
        hint = "they need no dataset: DataLoader(samples, batch_size, collate_fn=Collate())"
    raise TypeError(
        Problem(_name(path), expected, f"a {type(items).__name__} of {len(items)} {got}", hint)
    )


def _are_of_one_shape(items: Sequence[Any]) -> bool:
    if not all(isinstance(item, ARRAYS) for item in items):
        return False
    return len({(str(item.dtype), tuple(item.shape)) for item in items}) == 1


def _is_image(array: Any) -> bool:
    """Whether this is an image by itself, as far as anybody can tell."""
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
            raise FileNotFoundError(error.errno, f"{error.strerror}; {_NO_PATHS}") from error
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
                    "RaggedArray.from_sequences(array) holds arrays of different lengths, and "
                    "np.stack(array) those of one shape",
                )
            raise
    if isinstance(array, ARRAYS):
        return ArraySource(array, name)
    expected = (
        "an ndarray, a memmap, a CPU tensor, a RaggedArray, a ConcatArray, or the path of a .npy file "
        "or of a directory of them"
    )
    raise TypeError(Problem(name, expected, type(array).__name__, _array_of(array)))


#: What to do with the arrays and tables of other packages, by the names of those.
_TABLE = "ArrayDataset.from_arrow(table) takes it; with a column's name, ArrayDataset.from_arrow(table, ['x'])['x']"
_STORE = (
    "to_numpy((rows[i : i + 1000] for i in range(0, rows.shape[0], 1000)), out='x.npy') copies rows to a "
    "file once, np.asarray(rows) into memory; to leave them there, pass DataLoader a Dataset whose "
    "__getitems__(indices) reads the rows of a batch"
)
_SPARSE = (
    "pass .toarray() of it; a CSR matrix without a copy is RaggedArray(m.indices, m.indptr) and "
    "RaggedArray(m.data, m.indptr)"
)
_FOREIGN = {
    **dict.fromkeys(("pandas", "polars", "pyarrow", "datasets"), _TABLE),
    **dict.fromkeys(("h5py", "zarr", "netCDF4", "xarray", "dask", "tables"), _STORE),
    **dict.fromkeys(("scipy", "sparse"), _SPARSE),
}


def _array_of(given: Any) -> str:
    """How to make an array of what is none."""
    if isinstance(given, int | float):
        return f"np.full(length, {given}) has it for each sample"
    package = type(given).__module__.partition(".")[0]
    if package == "datasets" and (column := getattr(given, "column_name", None)):
        return f"ArrayDataset.from_arrow(dataset, [{column!r}])[{column!r}] has this column of a dataset"
    if package == "pyarrow" and hasattr(given, "null_count"):  # to_numpy() takes few of them
        column = "column.drop_null()" if given.null_count else "column"
        return f"pass ArrayDataset.from_arrow(pyarrow.table({{'x': {column}}}))['x']"
    if hasattr(given, "to_numpy") and not hasattr(given, "columns"):  # a column of a table
        return "pass .to_numpy() of it"
    if isinstance(given, torch.utils.data.Dataset):
        return (
            "DataLoader(dataset, batch_size, collate_fn=Collate()) takes any dataset, "
            "write_array(path, dataset) makes files of its samples once"
        )
    if isinstance(given, Iterator):
        return "write_array(path, given) writes samples of any iterable to a .npy file"
    return _FOREIGN.get(package, "")


def _sample(sources: Any, index: int) -> Any:
    return map_entries(lambda source: source[index], sources)


def _sample_text(sources: Any) -> str:
    return ", ".join(
        f"{''.join(path) or 'each'} {source.describe()}" for path, source in entries(sources)
    )
