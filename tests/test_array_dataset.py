"""ArrayDataset and Rows: every structure, every kind of source, nothing copied."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, default_collate

import pinfeed
from pinfeed.ragged_array import RaggedArray
from samples import STRUCTURES, Point, assert_same, run_python

# torch says once per process that it can't mark a tensor over a read-only array as such.
ignore_read_only = pytest.mark.filterwarnings("ignore:The given NumPy array is not writ")

LENGTH = 11

# Dataclasses are not among the structures that torch's default_collate takes.
TORCH_KNOWS = [name for name in STRUCTURES if "dataclass" not in name and name != "nested"]


def values() -> np.ndarray:
    return np.arange(LENGTH * 4 * 3, dtype=np.int32).reshape(LENGTH, 4, 3) * 7


def npy(folder: Path, array: np.ndarray) -> Path:
    path = folder / "values.npy"
    np.save(path, array)
    return path


def raw_memmap(folder: Path, mode: Any, offset: int = 0) -> np.memmap:
    path = folder / f"values-{mode}-{offset}.bin"
    path.write_bytes(bytes(offset) + values().tobytes())
    mapped = np.memmap(path, np.int32, mode, offset, (LENGTH, 4, 3))
    if mode == "w+":
        mapped[:] = values()
    return mapped


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


Make = Callable[[Path], Any]

IN_MEMORY: dict[str, Make] = {
    "ndarray": lambda _: values(),
    "read-only ndarray": lambda _: read_only(values()),
    "Fortran order": lambda _: np.asfortranarray(values()),
    "every other row, mirrored": lambda _: np.repeat(values(), 2, 0)[::-2, :, ::-1],
}
IN_FILES: dict[str, Make] = {
    "memmap r": lambda folder: raw_memmap(folder, "r"),
    "memmap r+": lambda folder: raw_memmap(folder, "r+"),
    "memmap w+": lambda folder: raw_memmap(folder, "w+"),
    "memmap at an odd offset": lambda folder: raw_memmap(folder, "r", 100_003),
    "np.load": lambda folder: np.load(npy(folder, values()), mmap_mode="r"),
    "np.load r+": lambda folder: np.load(npy(folder, values()), mmap_mode="r+"),
    "np.load, Fortran order": lambda folder: np.load(
        npy(folder, np.asfortranarray(values())), mmap_mode="r"
    ),
    "rows of a memmap": lambda folder: raw_memmap(folder, "r")[3:8],
    "crops of a memmap": lambda folder: raw_memmap(folder, "r", 5000)[:, 1:-1, ::2],
    "mirrored memmap": lambda folder: raw_memmap(folder, "r")[:, ::-1],
    "reversed memmap": lambda folder: raw_memmap(folder, "r")[::-3],
    "transposed memmap": lambda folder: raw_memmap(folder, "r").transpose(2, 0, 1),
    "ndarray over a memmap": lambda folder: np.asarray(raw_memmap(folder, "r"))[2:],
    "read-only view of memmap r+": lambda folder: read_only(raw_memmap(folder, "r+")[1:]),
    "broadcast memmap": lambda folder: np.broadcast_to(raw_memmap(folder, "r")[:1], (5, 4, 3)),
    "no rows of a memmap": lambda folder: raw_memmap(folder, "r")[4:4],
}
PRIVATE: dict[str, Make] = {
    "memmap c": lambda folder: raw_memmap(folder, "c"),
    "np.load c": lambda folder: np.load(npy(folder, values()), mmap_mode="c"),
}
PATHS: dict[str, Make] = {
    "Path": lambda folder: npy(folder, values()),
    "str": lambda folder: str(npy(folder, values())),
}
TENSORS: dict[str, Make] = {
    "tensor": lambda _: torch.from_numpy(values()),
    "bfloat16 tensor": lambda _: torch.from_numpy(values()).to(torch.bfloat16),
    "tensor view": lambda _: torch.from_numpy(values()).transpose(1, 2)[::2],
}
ARRAYS = IN_MEMORY | IN_FILES | PRIVATE
ALL = ARRAYS | PATHS | TENSORS


def opened(source: Any) -> Any:
    """The array that a source stands for."""
    return np.load(source, mmap_mode="r") if isinstance(source, str | Path) else source


def plain(array: Any) -> Any:
    return array if isinstance(array, torch.Tensor) else np.asarray(array)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", ["ndarray", "memmap r", "Path", "bfloat16 tensor"])
def test_every_structure(structure: str, kind: str, tmp_path: Path) -> None:
    build = STRUCTURES[structure]
    source, numbers = ALL[kind](tmp_path), np.arange(LENGTH)
    array = plain(opened(source))
    dataset = pinfeed.ArrayDataset(build(source, numbers))
    assert len(dataset) == LENGTH
    for i in (0, 3, LENGTH - 1, -1, -LENGTH):
        assert_same(dataset[i], build(array[i], numbers[i]))
    rows = dataset.__getitems__([5, -2, 5])
    assert_same(list(rows), [build(array[i], numbers[i]) for i in (5, LENGTH - 2, 5)])


@pytest.mark.parametrize("kind", ALL)
def test_every_source(kind: str, tmp_path: Path) -> None:
    source = ALL[kind](tmp_path)
    array = plain(opened(source))
    dataset = pinfeed.ArrayDataset({"x": source})
    assert len(dataset) == len(array)
    assert_same([sample["x"] for sample in dataset], list(array))


@pytest.mark.parametrize("kind", [kind for kind in ARRAYS if kind != "no rows of a memmap"])
def test_samples_of_arrays_are_views(kind: str, tmp_path: Path) -> None:
    source = ARRAYS[kind](tmp_path)
    sample = pinfeed.ArrayDataset(source)[2]
    assert type(sample) is np.ndarray
    assert np.shares_memory(sample, source)
    assert sample.strides == source[2].strides
    assert sample.flags.writeable == source.flags.writeable


@pytest.mark.parametrize("kind", PATHS)
def test_samples_of_paths_are_read_only_views(kind: str, tmp_path: Path) -> None:
    dataset = pinfeed.ArrayDataset(PATHS[kind](tmp_path))
    assert np.shares_memory(dataset[2], dataset[2])
    assert not dataset[2].flags.writeable


@pytest.mark.parametrize("kind", TENSORS)
def test_samples_of_tensors_are_views(kind: str, tmp_path: Path) -> None:
    source = TENSORS[kind](tmp_path)
    sample = pinfeed.ArrayDataset(source)[2]
    assert sample.data_ptr() == source[2].data_ptr()
    assert sample.stride() == source[2].stride()


def test_a_change_of_the_source_is_seen() -> None:
    array = np.zeros((4, 2))
    dataset = pinfeed.ArrayDataset(array)
    array[1] = 5
    np.testing.assert_array_equal(dataset[1], [5, 5])
    dataset[2][:] = 7
    np.testing.assert_array_equal(array[2], [7, 7])


@pytest.mark.parametrize("index", [LENGTH, -LENGTH - 1, 2**70])
def test_index_out_of_range(index: int) -> None:
    dataset = pinfeed.ArrayDataset(values())
    with pytest.raises(IndexError, match=r"ArrayDataset.*11 samples|does not fit"):
        dataset[index]
    with pytest.raises(IndexError, match=r"ArrayDataset: indices.*11 samples|does not fit"):
        dataset.__getitems__([0, index])


@pytest.mark.parametrize("index", [1.0, "1", None, (1,)])
def test_index_that_is_no_integer(index: Any) -> None:
    dataset = pinfeed.ArrayDataset(values())
    with pytest.raises(TypeError):
        dataset[index]
    with pytest.raises(TypeError, match="expected integers, got"):
        dataset.__getitems__([0, index])


@pytest.mark.parametrize(
    "indices",
    [
        [3, 0, -1],
        (3, 0, 10),
        np.array([3, 0, -1]),
        np.array([3, 0, -1], np.int8),
        np.array([3, 9, 0, 9, 10], np.uint64)[::2],
        torch.tensor([3, 0, -1]),
        [np.int64(3), np.uint8(0), torch.tensor(-1)],
    ],
)
def test_kinds_of_indices(indices: Any) -> None:
    rows = pinfeed.ArrayDataset(values()).__getitems__(indices)
    np.testing.assert_array_equal(rows.indices, [3, 0, 10])


def test_rows_are_a_sequence() -> None:
    labels = np.arange(10) * 10
    rows = pinfeed.ArrayDataset(labels).__getitems__([4, 2, 9, 2])
    assert isinstance(rows, Sequence)
    assert isinstance(rows, pinfeed.Rows)
    assert len(rows) == 4
    assert list(rows) == [40, 20, 90, 20]
    assert list(reversed(rows)) == [20, 90, 20, 40]
    assert rows[-1] == 20
    assert 90 in rows
    assert 91 not in rows
    assert rows.index(90) == 2
    assert rows.count(20) == 2
    for position in (4, -5):
        with pytest.raises(IndexError):
            rows[position]


@pytest.mark.parametrize("part", [slice(1, 3), slice(None, None, -1), slice(5, 9), slice(-2, None)])
def test_slices_of_rows_are_rows(part: slice) -> None:
    rows = pinfeed.ArrayDataset((values(), np.arange(LENGTH))).__getitems__([4, 2, 9, 2])
    sliced = rows[part]
    assert isinstance(sliced, pinfeed.Rows)
    assert_same(list(sliced), list(rows)[part])


def test_bulk_loading_as_torch_documents_it() -> None:
    dataset = pinfeed.ArrayDataset({"x": values(), "y": np.arange(LENGTH)})
    sampler = torch.utils.data.BatchSampler(range(LENGTH), 3, drop_last=False)
    bulk = DataLoader(dataset, sampler=sampler, batch_size=None, collate_fn=pinfeed.Collate())
    assert_same(list(bulk), list(DataLoader(dataset, 3, collate_fn=pinfeed.Collate())))


def test_rows_of_a_bare_tensor_cannot_change() -> None:
    rows = pinfeed.ArrayDataset(torch.arange(6)).__getitems__([0, 1, 2])
    assert isinstance(rows, pinfeed.Rows)
    assert isinstance(rows, tuple)
    assert_same(pinfeed.Collate()(rows), default_collate(rows))
    assert_same(pinfeed.Collate()(pickle.loads(pickle.dumps(rows))), torch.arange(3))


def test_rows_pickle() -> None:
    rows = pinfeed.ArrayDataset(Point(values(), np.arange(LENGTH))).__getitems__([4, 2])
    assert_same(list(pickle.loads(pickle.dumps(rows))), list(rows))


@ignore_read_only
@pytest.mark.parametrize("structure", TORCH_KNOWS)
@pytest.mark.parametrize("kind", ["ndarray", "memmap r", "bfloat16 tensor"])
def test_default_collate_gives_the_same_batch(structure: str, kind: str, tmp_path: Path) -> None:
    dataset = pinfeed.ArrayDataset(STRUCTURES[structure](ALL[kind](tmp_path), np.arange(LENGTH)))
    rows = dataset.__getitems__([7, 0, 7, -1])
    assert_same(pinfeed.Collate()(rows), default_collate(rows))


@ignore_read_only
def test_default_loader(tmp_path: Path) -> None:
    dataset = pinfeed.ArrayDataset({"x": npy(tmp_path, values()), "y": np.arange(LENGTH)})
    stock = DataLoader(dataset, batch_size=4)
    ours = DataLoader(dataset, batch_size=4, collate_fn=pinfeed.Collate())
    assert_same(list(ours), list(stock))


def test_subset_stays_native() -> None:
    subset = Subset(pinfeed.ArrayDataset(values()), [9, 8, 7])
    rows = subset.__getitems__([0, 2])
    assert isinstance(rows, pinfeed.Rows)
    np.testing.assert_array_equal(rows.indices, [9, 7])


@pytest.mark.parametrize("kind", ALL)
def test_pickle_gives_the_same_dataset(kind: str, tmp_path: Path) -> None:
    dataset = pinfeed.ArrayDataset({"x": ALL[kind](tmp_path)})
    copy = pickle.loads(pickle.dumps(dataset))
    assert_same([sample["x"] for sample in copy], [sample["x"] for sample in dataset])
    again = pickle.loads(pickle.dumps(copy))
    assert_same([sample["x"] for sample in again], [sample["x"] for sample in dataset])


@pytest.mark.parametrize("kind", IN_FILES)
def test_pickled_arrays_in_files_keep_strides_and_protection(kind: str, tmp_path: Path) -> None:
    source = IN_FILES[kind](tmp_path)
    copy = pickle.loads(pickle.dumps(pinfeed.ArrayDataset(source)))
    array = copy._sources.array
    assert array.strides == source.strides
    assert array.flags.writeable == source.flags.writeable


def test_changes_of_a_private_map_travel(tmp_path: Path) -> None:
    source = raw_memmap(tmp_path, "c")
    source[3] = -1
    copy = pickle.loads(pickle.dumps(pinfeed.ArrayDataset(source)))
    np.testing.assert_array_equal(copy[3], np.full((4, 3), -1))


def test_relative_paths_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(npy(tmp_path, values()).parent)
    data = pickle.dumps(pinfeed.ArrayDataset("values.npy"))
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(pickle.loads(data)[3], values()[3])


def test_a_deleted_file_stays_open_but_does_not_travel(tmp_path: Path) -> None:
    path = npy(tmp_path, values())
    dataset = pinfeed.ArrayDataset(path)
    data = pickle.dumps(dataset)
    path.unlink()
    np.testing.assert_array_equal(dataset[3], values()[3])
    with pytest.raises(FileNotFoundError, match=r"values\.npy"):
        pickle.loads(data)


def test_a_file_changed_after_pickling_is_refused(tmp_path: Path) -> None:
    path = npy(tmp_path, values())
    data = pickle.dumps(pinfeed.ArrayDataset(path))
    time.sleep(0.02)  # some file systems' clocks tick as slowly as that
    npy(tmp_path, values() + 1)
    with pytest.raises(OSError, match=r"values\.npy: the file was replaced or changed after"):
        pickle.loads(data)


def test_a_file_replaced_before_pickling_is_refused(tmp_path: Path) -> None:
    path = npy(tmp_path, values())
    dataset = pinfeed.ArrayDataset(path)
    (tmp_path / "other.npy").write_bytes(path.read_bytes())
    (tmp_path / "other.npy").replace(path)
    with pytest.raises(OSError, match=r"values\.npy: the file was replaced after it was opened"):
        pickle.dumps(dataset)


def test_a_file_being_written_travels(tmp_path: Path) -> None:
    source = np.load(npy(tmp_path, values()), mmap_mode="r+")
    for array in (source, read_only(source[:])):
        data = pickle.dumps(pinfeed.ArrayDataset(array))
        time.sleep(0.02)
        source[3] -= 1
        source.flush()
        np.testing.assert_array_equal(pickle.loads(data)[3], source[3])
    other = tmp_path / "other.npy"
    np.save(other, values())
    other.replace(tmp_path / "values.npy")
    with pytest.raises(OSError, match=r"values\.npy: the file was replaced or changed after"):
        pickle.loads(data)


def sparse_npy(path: Path, shape: tuple[int, ...]) -> Path:
    """A .npy file of zeros that takes no room on the disk."""
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + int(np.prod(shape)))
    return path


@pytest.mark.parametrize(
    "open_source",
    [
        lambda path: path,
        str,
        lambda path: np.load(path, mmap_mode="r"),
        lambda path: np.load(path, mmap_mode="r+")[::-7, 1:],
        lambda path: np.memmap(path, np.uint8, "r", 128, (1000, 100_000)),
    ],
)
def test_arrays_in_files_pickle_small(open_source: Callable[[Path], Any], tmp_path: Path) -> None:
    path = sparse_npy(tmp_path / "large.npy", (1000, 100_000))
    dataset = pinfeed.ArrayDataset({"x": open_source(path)})
    assert len(pickle.dumps(dataset)) < 2000


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_a_file_larger_than_memory_is_not_touched(tmp_path: Path) -> None:
    path = sparse_npy(tmp_path / "huge.npy", (2_000_000, 50_000))  # 100 GB
    before = resident_bytes()
    start = time.perf_counter()
    dataset = pinfeed.ArrayDataset(path)
    copy = pickle.loads(pickle.dumps(dataset))
    batch = pinfeed.Collate()(copy.__getitems__([0, -1]))
    seconds = time.perf_counter() - start
    assert batch.shape == (2, 50_000)
    assert not batch.any()
    assert seconds < 5
    assert resident_bytes() - before < 64e6


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_repr_names_the_leaves() -> None:
    dataset = pinfeed.ArrayDataset({"x": values(), "y": torch.zeros(LENGTH)})
    assert repr(dataset) == "ArrayDataset(11 samples: ['x'] int32 (4, 3), ['y'] float32 ())"
    ragged = RaggedArray(np.zeros((5, 2)), np.array([0, 2, 5]))
    dataset = pinfeed.ArrayDataset([ragged, np.zeros((2, 3))])
    assert repr(dataset) == "ArrayDataset(2 samples: [0] float64 (*, 2), [1] float64 (3,))"


def cut_npy(folder: Path, size: int) -> Path:
    path = folder / "cut.npy"
    np.save(path, values())
    content = path.read_bytes()
    path.write_bytes(content[:size])
    return path


def text_file(folder: Path) -> Path:
    path = folder / "text.npy"
    path.write_text("1, 2, 3\n" * 100)
    return path


class Dangerous:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a file was unpickled",))


def pickled_npy(folder: Path) -> Path:
    path = folder / "objects.npy"
    np.save(path, np.array([Dangerous(), None], object), allow_pickle=True)
    return path


def plain_pickle(folder: Path) -> Path:
    path = folder / "plain.npy"
    path.write_bytes(pickle.dumps(Dangerous()))
    return path


def npz(folder: Path) -> Path:
    path = folder / "arrays.npz"
    np.savez(path, values())
    return path


REFUSED: tuple[tuple[Make, type[Exception], str], ...] = (
    (lambda _: np.array([{}, []], object), TypeError, "numeric or bool dtype, got object"),
    (lambda _: np.array(["a", "b"]), TypeError, "numeric or bool dtype, got <U1"),
    (lambda _: np.zeros(3, [("a", "i4")]), TypeError, "numeric or bool dtype"),
    (lambda _: np.zeros(3, "M8[s]"), TypeError, "numeric or bool dtype"),
    (lambda _: np.zeros(3, ">f4"), TypeError, "byte order, got dtype >f4.*newbyteorder"),
    (lambda _: np.zeros(()), ValueError, "counts samples, got a 0-d array"),
    (lambda _: torch.tensor(1.0), ValueError, "counts samples, got a 0-d array"),
    (lambda _: torch.zeros(3, device="meta"), TypeError, r"on the CPU, got one on meta.*\.cpu"),
    (lambda _: torch.eye(3).to_sparse(), TypeError, "dense tensor"),
    (lambda _: 5, TypeError, "expected an ndarray.*a RaggedArray.*got int"),
    (lambda _: None, TypeError, "expected an ndarray.*got NoneType"),
    (lambda _: b"values.npy", TypeError, "expected an ndarray.*got bytes"),
    (lambda folder: folder / "missing.npy", FileNotFoundError, "missing.npy"),
    (lambda folder: folder, IsADirectoryError, "directory"),
    (lambda folder: cut_npy(folder, 40), ValueError, "cut.npy is no complete .npy file"),
    (lambda folder: cut_npy(folder, 129), ValueError, "cut.npy is no complete .npy file"),
    (lambda folder: cut_npy(folder, -1), ValueError, "cut.npy is no complete .npy file"),
    (lambda folder: cut_npy(folder, 0), ValueError, "cut.npy is no complete .npy file"),
    (lambda folder: text_file(folder), ValueError, "text.npy is no complete .npy file"),
    (lambda folder: pickled_npy(folder), ValueError, "objects.npy is no complete .npy file"),
    (lambda folder: plain_pickle(folder), ValueError, "plain.npy is no complete .npy file"),
    (lambda folder: npz(folder), ValueError, "arrays.npz is no complete .npy file"),
    (lambda folder: npy(folder, np.zeros(3, ">f4")), TypeError, "values.npy: .*byte order, got dt"),
)


@pytest.mark.parametrize(("make", "error", "message"), REFUSED)
def test_sources_that_are_refused(
    make: Make, error: type[Exception], message: str, tmp_path: Path
) -> None:
    source = make(tmp_path)
    with pytest.raises(error, match=message):
        pinfeed.ArrayDataset(source)
    if not issubclass(error, OSError):
        with pytest.raises(error, match=r"ArrayDataset: leaf \['a'\]\[1\]: .*" + message):
            pinfeed.ArrayDataset({"a": [np.zeros(3), source]})


def test_different_lengths() -> None:
    with pytest.raises(ValueError, match=r"got 3 in leaf \['a'\] and 4 in leaf \['b'\]\.y"):
        pinfeed.ArrayDataset({"a": np.zeros(3), "b": Point(np.zeros(3), torch.zeros(4))})
    ragged = RaggedArray(np.zeros(4), np.array([0, 1, 4]))
    with pytest.raises(ValueError, match=r"got 4 in leaf \[0\] and 2 in leaf \[1\]"):
        pinfeed.ArrayDataset([np.zeros(4), ragged])


@pytest.mark.parametrize("structure", [{}, [], (), {"a": {}, "b": []}])
def test_no_array_at_all(structure: Any) -> None:
    with pytest.raises(ValueError, match="at least one array, got an empty structure"):
        pinfeed.ArrayDataset(structure)


@pytest.mark.parametrize("index", ["a", 1.5, None, (1, 2), range(2), torch.arange(2)])
def test_what_is_no_index(index: Any) -> None:
    expected = "ArrayDataset: expected an integer, or a list or an ndarray of integers"
    with pytest.raises(TypeError, match=f"^{expected}, got {type(index).__name__}$"):
        pinfeed.ArrayDataset(values())[index]


def test_the_way_out_for_slices() -> None:
    dataset = pinfeed.ArrayDataset(values())
    subset = r"torch\.utils\.data\.Subset\(dataset, range\(10, 4, -2\)\)"
    samples = r"dataset\.__getitems__\(range\(10, 4, -2\)\)"
    with pytest.raises(
        TypeError, match=f"^ArrayDataset: .*, got a slice; take {subset}.* {samples}"
    ):
        dataset[:4:-2]
    assert_same(list(dataset.__getitems__(range(10, 4, -2))), [values()[i] for i in (10, 8, 6)])


CUT_LATER = """
import os, pickle, sys
import numpy as np, pinfeed
from torch.utils.data import DataLoader, default_collate

how, path = sys.argv[1], sys.argv[2]
array = np.load(path, mmap_mode="r")
source = path if how == "path" else array[:, ::-1] if how == "view" else array
dataset = pinfeed.ArrayDataset({"image": source, "label": np.arange(len(array))})
workers = DataLoader(
    dataset, 4, collate_fn=pinfeed.Collate(), num_workers=2, prefetch_factor=1,
    persistent_workers=True, multiprocessing_context="fork", timeout=60,
)
assert len(list(workers)) > 0
pickled = pickle.dumps(dataset)
os.truncate(path, 4096)  # the last rows are gone

last = dataset.__getitems__([0, -1])
ways = {
    "sample": lambda: dataset[-1],
    "iteration": lambda: list(last),
    "Stack": lambda: pinfeed.Collate()(last),
    "Image": lambda: pinfeed.Collate({"image": pinfeed.Image()})(last),
    "Keep": lambda: pinfeed.Collate({"image": pinfeed.Keep()})(last),
    "default_collate": lambda: default_collate(last),
    "loader": lambda: list(DataLoader(dataset, 4, collate_fn=pinfeed.Collate())),
    "workers": lambda: list(workers),
    "unpickled": lambda: pickle.loads(pickled)[-1],
}
for name, way in ways.items():
    try:
        way()
    except OSError as error:
        assert "cut short" in str(error) and path in str(error), error
        print(name)
"""

CUT_WAYS = [
    "sample",
    "iteration",
    "Stack",
    "Image",
    "Keep",
    "default_collate",
    "loader",
    "workers",
    "unpickled",
]


@pytest.mark.parametrize("how", ["path", "memmap", "view"])
def test_a_file_cut_after_opening_is_an_error_not_a_crash(how: str, tmp_path: Path) -> None:
    path = tmp_path / "images.npy"
    np.save(path, np.ones((100, 16, 16, 3), np.uint8))
    assert run_python(CUT_LATER, how, str(path)).split() == CUT_WAYS
