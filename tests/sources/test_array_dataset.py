"""ArrayDataset and Rows: structures, sources, views without copies, pickling, and errors."""

import io
import math
import pickle
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Subset, default_collate

import pinfeed
from array_sources import (
    ALL,
    IN_FILES,
    LENGTH,
    PATHS,
    TENSORS,
    ignore_read_only,
    npy,
    opened,
    plain,
    raw_memmap,
    read_only,
    values,
)
from messages import check
from pinfeed.sources.ragged import RaggedArray
from samples import DATASETS, Point, assert_same


@pytest.mark.parametrize("structure", DATASETS)
@pytest.mark.parametrize("kind", ["ndarray", "memmap r", "Path", "bfloat16 tensor"])
def test_every_structure(structure, kind, tmp_path):
    build = DATASETS[structure]
    source, numbers = ALL[kind](tmp_path), np.arange(LENGTH)
    array = plain(opened(source))
    dataset = pinfeed.ArrayDataset(build(source, numbers))
    assert len(dataset) == LENGTH
    for i in (0, 3, LENGTH - 1, -1, -LENGTH):
        assert_same(dataset[i], build(array[i], numbers[i]))
    rows = dataset.__getitems__([5, -2, 5])
    assert_same(list(rows), [build(array[i], numbers[i]) for i in (5, LENGTH - 2, 5)])


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind != "no rows of a memmap"])
def test_samples_are_views(kind, tmp_path):
    source = ALL[kind](tmp_path)
    dataset = pinfeed.ArrayDataset(source)
    sample, again = dataset[2], dataset[2]
    if kind in TENSORS:
        assert sample.data_ptr() == source[2].data_ptr()
        assert sample.stride() == source[2].stride()
        return
    assert type(sample) is np.ndarray
    assert np.shares_memory(sample, again if kind in PATHS else source)
    assert sample.flags.writeable == (kind not in PATHS and source.flags.writeable)
    assert sample.strides == opened(source)[2].strides


def test_rows_are_a_sequence():
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


def test_a_column_of_rows():
    """As the error message suggests."""
    dataset = pinfeed.ArrayDataset({"x": values(), "y": np.arange(LENGTH)})
    for indices in ([1, 2], np.array([1, 2])):
        message = "got 'y'; dataset.select(indices)['y'] returns this entry of all samples"
        check(lambda rows=dataset[indices]: rows["y"], TypeError, "Rows: ", message)
        np.testing.assert_array_equal(dataset.select(indices)["y"], [1, 2])


@pytest.mark.parametrize("part", [slice(1, 3), slice(None, None, -1), slice(5, 9), slice(-2, None)])
def test_slices_of_rows_are_rows(part):
    rows = pinfeed.ArrayDataset((values(), np.arange(LENGTH))).__getitems__([4, 2, 9, 2])
    sliced = rows[part]
    assert isinstance(sliced, pinfeed.Rows)
    assert_same(list(sliced), list(rows)[part])


def test_bulk_loading_follows_torchs_documentation():
    dataset = pinfeed.ArrayDataset({"x": values(), "y": np.arange(LENGTH)})
    sampler = torch.utils.data.BatchSampler(range(LENGTH), 3, drop_last=False)
    bulk = DataLoader(dataset, sampler=sampler, batch_size=None, collate_fn=pinfeed.Collate())
    assert_same(list(bulk), list(DataLoader(dataset, 3, collate_fn=pinfeed.Collate())))


@pytest.mark.parametrize("shape", [(6,), (6, 2, 3)])
def test_rows_of_a_plain_tensor_are_tensors_to_torch(shape):
    array = torch.arange(math.prod(shape)).reshape(shape).to(torch.bfloat16)
    rows = pinfeed.ArrayDataset(array).__getitems__([4, 0, 4])
    expected = array[[4, 0, 4]]
    out = torch.empty_like(expected)
    torch.stack(rows, 0, out=out)
    last = torch.stack(list(rows), -1)
    for batch, expected_batch in (
        (default_collate(rows), expected),
        (torch.stack(rows), expected),
        (torch.stack(tensors=rows), expected),
        (out, expected),
        (torch.stack(rows, -1), last),
        (torch.stack(rows, dim=-1), last),
        (torch.hstack(rows), torch.hstack(list(rows))),
        (pinfeed.Collate()(pickle.loads(pickle.dumps(rows))), expected),
    ):
        assert_same(batch, expected_batch)
    with pytest.raises(TypeError):
        torch.stack(pinfeed.ArrayDataset({"x": array}).__getitems__([0]))


class WithoutViews(TorchDispatchMode):
    """A tensor whose rows must not be accessed one by one."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        assert op.name() != "aten::select.int"
        return op(*args, **kwargs or {})


def test_rows_of_a_plain_tensor_create_no_views():
    array = torch.arange(12).reshape(6, 2)
    rows = pinfeed.ArrayDataset(array).__getitems__([5, 0])
    with WithoutViews():
        batches = [pinfeed.Collate()(rows), torch.stack(rows)]
        with pytest.raises(AssertionError):
            torch.stack(list(rows))  # the mode records created views
    assert [batch.tolist() for batch in batches] == [array[[5, 0]].tolist()] * 2


def test_subset_stays_native():
    subset = Subset(pinfeed.ArrayDataset(values()), [9, 8, 7])
    rows = subset.__getitems__([0, 2])
    assert isinstance(rows, pinfeed.Rows)
    np.testing.assert_array_equal(rows.indices, [9, 7])


def test_columns():
    ragged = RaggedArray.from_sequences([[1, 2], [], [3], [4, 5, 6]])
    joined = pinfeed.ConcatArray([np.arange(3), np.arange(7, 8)])
    x = np.arange(4) * 2
    dataset = pinfeed.ArrayDataset({"x": x, "more": {"ragged": ragged}, "joined": joined})
    assert np.shares_memory(dataset["x"], x)
    assert dataset["more"]["ragged"] is ragged
    assert dataset["joined"] is joined
    part = dataset[::-1]
    assert part["more"]["ragged"].lengths.tolist() == [3, 1, 0, 2]
    assert [row.tolist() for row in part["more"]["ragged"]] == [[4, 5, 6], [3], [], [1, 2]]
    assert repr(part["x"]) == "SourceSubset(4 samples of int64 ())"
    for column, numbers in (
        (part["x"], [6, 4, 2, 0]),
        (part["joined"], [7, 2, 1, 0]),
        (joined, [0, 1, 2, 7]),
    ):
        assert np.asarray(column).tolist() == numbers
        assert np.asarray(column, np.float32).dtype == np.float32
        lengths = pinfeed.samplers.PackSampler(column, seq_length=8, shuffle=False)
        assert sum(batch.packing.lengths.sum() for batch in lengths) == sum(numbers)
    with pytest.raises(
        TypeError, match=r"^RaggedArray: sequences must have one length .* pinfeed\.functional\.pad"
    ):
        np.asarray(ragged)
    assert pinfeed.functional.pad(part[[0, 1]].sources["more"]["ragged"]).lengths.tolist() == [
        3,
        1,
        0,
        2,
    ]


# Pickling for other processes.


@pytest.mark.parametrize("kind", IN_FILES)
def test_pickled_arrays_in_files_keep_strides_and_protection(kind, tmp_path):
    source = IN_FILES[kind](tmp_path)
    copy = pickle.loads(pickle.dumps(pinfeed.ArrayDataset(source)))
    array = copy._sources.array
    assert array.strides == source.strides
    assert array.flags.writeable == source.flags.writeable


def test_changes_of_a_private_map_are_pickled(tmp_path):
    source = raw_memmap(tmp_path, "c")
    source[3] = -1
    copy = pickle.loads(pickle.dumps(pinfeed.ArrayDataset(source)))
    np.testing.assert_array_equal(copy[3], np.full((4, 3), -1))


@ignore_read_only
def test_relative_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(npy(tmp_path, values()).parent)
    datasets = [
        pinfeed.ArrayDataset(entry("values.npy"))
        for entry in (str, lambda path: pinfeed.ConcatArray([path]))
    ]
    monkeypatch.chdir("/")
    for dataset in (*datasets, *pickle.loads(pickle.dumps(datasets))):
        batch = pinfeed.Collate()(dataset[[3]])
        np.testing.assert_array_equal(batch[0], values()[3])


def test_a_deleted_file_stays_open_but_does_not_pickle(tmp_path):
    path = npy(tmp_path, values())
    dataset = pinfeed.ArrayDataset(path)
    data = pickle.dumps(dataset)
    path.unlink()
    np.testing.assert_array_equal(dataset[3], values()[3])
    with pytest.raises(FileNotFoundError, match=r"values\.npy"):
        pickle.loads(data)


def test_a_file_changed_after_pickling_raises(tmp_path):
    path = npy(tmp_path, values())
    data = pickle.dumps(pinfeed.ArrayDataset(path))
    time.sleep(0.02)  # some file systems have clocks this slow
    npy(tmp_path, values() + 1)
    with pytest.raises(OSError, match=r"values\.npy: the file was replaced or changed after"):
        pickle.loads(data)


def test_a_file_replaced_before_pickling_raises(tmp_path):
    path = npy(tmp_path, values())
    dataset = pinfeed.ArrayDataset(path)
    (tmp_path / "other.npy").write_bytes(path.read_bytes())
    (tmp_path / "other.npy").replace(path)
    with pytest.raises(
        OSError, match=r"values\.npy: the file was replaced or changed after it was opened"
    ):
        pickle.dumps(dataset)


def test_a_file_being_written_is_pickled(tmp_path):
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


def sparse_npy(path, shape):
    """Returns a .npy file of zeros without blocks on disk."""
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + int(np.prod(shape)))
    return path


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_a_file_larger_than_memory_is_not_read(tmp_path):
    path = sparse_npy(tmp_path / "huge.npy", (2_000_000, 50_000))  # 100 GB
    before = resident_bytes()
    dataset = pinfeed.ArrayDataset(path)
    copy = pickle.loads(pickle.dumps(dataset))
    batch = pinfeed.Collate()(copy.__getitems__([0, -1]))
    assert batch.shape == (2, 50_000)
    assert not batch.any()
    assert resident_bytes() - before < 64e6


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_samples_of_a_subclass():
    """DataLoader requests batches, so code that changes samples must change batches too."""

    class Tenfold(pinfeed.ArrayDataset):
        def __getitem__(self, index):
            return super().__getitem__(index) * 10

        def __getitems__(self, indices):
            return [self[i] for i in indices]

    loader = DataLoader(Tenfold(np.arange(6)), 4, collate_fn=pinfeed.Collate())
    assert next(iter(loader)).tolist() == [0, 10, 20, 30]
    with pytest.raises(
        TypeError, match=r"def __getitems__\(self, indices\): return \[self\[i\] for i"
    ):

        class Forgetful(pinfeed.ArrayDataset):
            def __getitem__(self, index):
                return super().__getitem__(index) * 10


class Dangerous:
    def __reduce__(self):
        return (pytest.fail, ("a file was unpickled",))


def written(folder, name, contents):
    path = folder / name
    path.write_bytes(contents)
    return path


def whole(save, array, **options):
    """Returns the bytes of a file that NumPy writes."""
    file = io.BytesIO()
    save(file, array, **options)
    return file.getvalue()


NPY = whole(np.save, values())
OBJECTS = whole(np.save, np.array([Dangerous(), None], object), allow_pickle=True)

REFUSED = (
    (lambda _: np.array([{}, []], object), TypeError, "item 0: expected str or bytes, got dict"),
    (lambda _: np.array([["a"]]), ValueError, r"items must have shape \(N,\), got \(1, 1\)"),
    (lambda _: np.ma.masked_array([1, 2], [0, 1]), TypeError, "array without a mask, .* be lost"),
    (lambda _: np.zeros(()), ValueError, "counts samples, got a 0-d array"),
    (lambda _: torch.tensor(1.0), ValueError, "counts samples, got a 0-d array"),
    (lambda _: torch.zeros(3, device="meta"), TypeError, r"on the CPU, got one on meta.*\.cpu"),
    (lambda _: 5, TypeError, r"expected an ndarray.*a RaggedArray.*got int; np.full"),
    (lambda _: None, TypeError, "expected an ndarray.*got NoneType"),
    (lambda _: b"values.npy", TypeError, "expected an ndarray.*got bytes"),
    (lambda folder: folder / "missing.npy", FileNotFoundError, "missing.npy"),
    (lambda folder: folder, ValueError, r"is a directory without \.npy files"),
    (lambda folder: written(folder, "cut.npy", NPY[:40]), ValueError, "cut.npy is not a .npy file"),
    (lambda folder: written(folder, "cut.npy", NPY[:129]), OSError, "cut.npy: the file was cut short: it has"),
    (lambda folder: written(folder, "cut.npy", NPY[:-1]), OSError, "cut.npy: the file was cut short: it has"),
    (lambda folder: written(folder, "text.npy", b"1, 2, 3\n" * 100), ValueError, "text.npy is not a .npy file"),
    (lambda folder: written(folder, "objects.npy", OBJECTS), ValueError, "objects.npy is not a .npy file"),
    (lambda folder: written(folder, "plain.npy", pickle.dumps(Dangerous())), ValueError, "plain.npy is not a .npy file"),
    (lambda folder: written(folder, "arrays.npz", whole(np.savez_compressed, values())), ValueError, "arrays.npz: member 'arr_0.npy' is compressed .*np.savez"),
    (lambda folder: npy(folder, np.zeros(3, ">f4")), TypeError, "values.npy: .*byte order, got dt"),
)  # fmt: skip


@pytest.mark.parametrize(("make", "error", "message"), REFUSED)
def test_bad_sources(make, error, message, tmp_path):
    source = make(tmp_path)
    with pytest.raises(error, match=message):
        pinfeed.ArrayDataset(source)
    if not issubclass(error, OSError):
        with pytest.raises(error, match=r"ArrayDataset: entry \['a'\]\[1\]: .*" + message):
            pinfeed.ArrayDataset({"a": [np.zeros(3), source]})


ONE, KEYED = pinfeed.ArrayDataset(values()), pinfeed.ArrayDataset({"x": values()})
NO_INDEX = "ArrayDataset: expected an integer, a slice, a key, or integers or bools in a list, an ndarray or a tensor, got "
NO_INDICES = "ArrayDataset: indices: "
EMPTY = {}, [], (), {"a": {}, "b": []}
BAD_CALLS = {
    "lengths": (lambda: pinfeed.ArrayDataset({"a": np.zeros(3), "b": Point(np.zeros(3), torch.zeros(4))}), ValueError, "got 3 in entry ['a'] and 4 in entry ['b'].y"),
    "ragged lengths": (lambda: pinfeed.ArrayDataset((np.zeros(4), RaggedArray(np.zeros(4), np.array([0, 1, 4])))), ValueError, "got 4 in entry [0] and 2 in entry [1]"),
    "a fraction": (lambda: ONE[1.5], TypeError, NO_INDEX + "float"),
    "None": (lambda: ONE[None], TypeError, NO_INDEX + "NoneType"),
    "a tuple": (lambda: ONE[1, 2], TypeError, NO_INDEX + "tuple"),
    "no such key": (lambda: KEYED["y"], KeyError, "a key of its samples, got 'y'; the dataset is", "int32"),
    "a key of samples without keys": (lambda: ONE["y"], KeyError, "a key of its samples, got 'y'; the dataset is", "int32"),
    "selected beyond": (lambda: ONE.select([11]), IndexError, NO_INDICES + "index 11 at position 0 is out of range for 11"),
    "selected fractions": (lambda: ONE.select([0.5]), TypeError, NO_INDICES + "expected integers, got float"),
    "a short mask": (lambda: ONE.select(np.ones(3, bool)), IndexError, NO_INDICES, "mask of shape (11,), got (3,)"),
    **{f"{none}": (lambda none=none: pinfeed.ArrayDataset(none), ValueError, "at least one array, got an empty structure") for none in EMPTY},
    **{f"rows of {none}": (lambda none=none: pinfeed.Rows(none, [0]), ValueError, f"Rows: sources must hold at least one array, got {none!r}") for none in EMPTY},
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_calls(case):
    check(*BAD_CALLS[case])


def test_any_selection_of_rows():
    dataset = pinfeed.ArrayDataset({"x": np.arange(11) * 10})
    mask = np.arange(11) % 2 == 1
    bools = mask, torch.from_numpy(mask), mask.tolist(), [*mask]
    for index in (*bools, range(1, 11, 2), torch.arange(1, 11, 2)):
        part = dataset[index]
        assert isinstance(part, pinfeed.ArrayDataset)
        assert part["x"][1] == 30
        assert [sample["x"] for sample in part] == [10, 30, 50, 70, 90]
    for index in (torch.tensor(3), np.int64(3), np.array(3)):
        assert dataset[index] == {"x": 30}
    assert [*dataset[[]]] == [*dataset[np.array([], int)]] == []
    with pytest.raises(TypeError, match="got bool at position 1"):
        dataset[[0, True]]
    for index, message in (
        (mask[:3], r"mask of shape \(11,\)"),
        ([True] * 3, r"mask of shape \(11,\), got \(3,\)"),
        (torch.tensor([11]), "out of range"),
    ):
        with pytest.raises(IndexError, match=message):
            dataset[index]


@pytest.mark.parametrize(
    "array", [np.zeros((4, 8, 3)), np.zeros((4, 8, 2), np.uint8), np.zeros((4, 8, 8, 3), np.uint8)]
)
def test_a_list_of_one_array(array):
    """It is an entry of a list in each sample, unless it is an image itself."""
    dataset = pinfeed.ArrayDataset({"views": [array]})
    assert len(dataset) == 4
    assert dataset[0]["views"][0].shape == array.shape[1:]


def test_a_tensor_dataset():
    tensors = torch.arange(12).reshape(4, 3), torch.arange(4)
    dataset = pinfeed.ArrayDataset(torch.utils.data.TensorDataset(*tensors))
    assert [x.tolist() for x in dataset[2]] == [[6, 7, 8], 2]
