"""Common mistakes with ArrayDataset, from_numpy and RaggedArray, and their messages."""

import datetime
import glob
import re
from pathlib import Path

import datasets
import h5py
import numpy as np
import pandas as pd
import pyarrow
import pyarrow.csv
import pyarrow.dataset
import pytest
import scipy.sparse
import torch
from torch.utils.data import DataLoader

from hints import COLOR, LABELS, PHOTOS, Hints, check_hint, done, first, rows
from pinfeed import (
    ArrayDataset,
    Collate,
    ConcatArray,
    Image,
    IndexedDataset,
    Jagged,
    Keep,
    Pad,
    RaggedArray,
    SharedList,
    StreamDataset,
    from_numpy,
    to_numpy,
    write_array,
)
from pinfeed.functional import gather, pad

FRAME = pd.DataFrame({"x": [0.5, 1.5], "y": [1, 2]})
TABLE = pyarrow.table(FRAME)
HF = datasets.Dataset.from_pandas(FRAME)
HDF5 = h5py.File("x.h5", "w", driver="core", backing_store=False).create_dataset(
    "x", data=np.eye(2)
)


def closed(name):
    """Returns an entry of a closed file."""
    with h5py.File("closed.h5", "w", driver="core", backing_store=False) as file:
        file["x"] = np.eye(2)
        return file[name]


SPARSE = scipy.sparse.csr_array(np.eye(2))
LINES = [np.zeros((3, width)) for width in (5, 7, 6, 7)]
WIDE = (PHOTOS[0], PHOTOS[1, :, :4])
RAGGED, ALIKE = (
    np.array([np.arange(2), np.arange(3)], object),
    np.array([1, "", PHOTOS[0]], object)[2:],
)
LISTS, NUMBERS, DATES = [[1, 2], [3]], [[1, 2], [3, 4]], np.array(["1970-01-03"], "M8[D]")
PAIR = [torch.from_numpy(PHOTOS), torch.from_numpy(LABELS)]
BOTH = {"image": PAIR[0], "label": PAIR[1]}


class Foreign:
    """An array of another library."""

    def __array__(self, dtype=None, copy=None):
        return LABELS


def load(*arguments):
    return first(from_numpy(*arguments, device="cpu"))


def collated(samples):
    return first(DataLoader(samples, len(samples), collate_fn=Collate()))


STRUCTURED = np.array([(1, 0.5), (2, 1.5)], [("a", "i4"), ("b", "f4")])
FIELDS = {"a": torch.tensor([1, 2], dtype=torch.int32), "b": torch.tensor([0.5, 1.5])}

HINTS: Hints = {
    "a structured array": (rows, STRUCTURED, {name: STRUCTURED[name] for name in STRUCTURED.dtype.names}, FIELDS,
        TypeError, r"got dtype \[\('a', .*; make an entry of each of its fields: {name: a\[name\] for name in a.dtype.names}$"),
    "texts of pyarrow": (lambda column: rows({"y": column}), pyarrow.chunked_array([["a"], ["bc"]]),
        ArrayDataset.from_arrow(pyarrow.table({"x": pyarrow.chunked_array([["a"], ["bc"]])}))["x"], {"y": ["a", "bc"]},
        TypeError, r"got ChunkedArray; .*ArrayDataset.from_arrow\(pyarrow.table\({'x': x}\), \['x'\]\)\['x'\]$"),
    "lists of different lengths in lists": (lambda x: [RaggedArray.from_sequences([one])[0].tolist() for one in x], [LISTS],
        [np.concatenate(LISTS), [len(x) for x in LISTS]], [[1, 2, 3], [2, 1]],
        ValueError, r"; np.concatenate\(list\) joins lists of different lengths, and \[len\(x\) for x in list\] in another entry"),
    "datasets of HDF5 in a ConcatArray": (lambda part: ConcatArray([part])[1], HDF5, np.asarray(HDF5), np.eye(2)[1],
        TypeError, r"^ConcatArray: part 0: .*got Dataset; np.asarray\(...\) returns the values only"),
    "a list of dicts as a table": (lambda table: rows(ArrayDataset.from_arrow(table)["x"]), [{"x": 1}, {"x": 2}],
        pyarrow.Table.from_pylist([{"x": 1}, {"x": 2}]), torch.tensor([1, 2]), TypeError, r"got list; pass pyarrow.Table.from_pylist\(x\)"),
    "samples in a list": (lambda images: rows({"image": images, "label": LABELS}), [*PHOTOS], np.stack([*PHOTOS]), BOTH,
        TypeError, r"entry \['image'\]: .* got a list of 3 arrays; pass np.stack\(arrays\)"),
    "records of Python": (lambda records: rows({"x": records})["x"], [{"a": 1}, {"a": 2}], SharedList([{"a": 1}, {"a": 2}]), {"a": torch.tensor([1, 2])},
        TypeError, r"entry \['x'\]: expected an array, got a list of 2 dicts; SharedList\(x\) keeps one Python object"),
    "lists of strings": (lambda tags: rows({"x": tags}, {"x": Keep()})["x"], [["a", "b"], ["c"]], SharedList([["a", "b"], ["c"]]), [["a", "b"], ["c"]],
        TypeError, r"entry \['x'\]: expected an array, got a list of 2 lists; SharedList\(x\)"),
    "times": (lambda times: len(rows({"x": times}, {"x": Keep()})["x"]), [datetime.date(2020, 1, 1)], SharedList([datetime.date(2020, 1, 1)]), 1,
        TypeError, r"got a list of 1 dates; SharedList\(x\)"),
    "bytes": (lambda files: rows({"x": files})["x"], [b"a", b"bc"], RaggedArray.from_strings([b"a", b"bc"]), [b"a", b"bc"],
        TypeError, r"got a list of 2 bytes; RaggedArray\.from_strings\(x\) keeps"),
    "single tensors": (lambda labels: rows({"y": labels})["y"], [*PAIR[1]], np.array([*PAIR[1]]), PAIR[1],
        TypeError, r"got a list of 3 numbers; pass np\.array"),
    "records in an array": (lambda records: rows({"x": records})["x"], np.array([{"a": 1}, {"a": 2}]), SharedList(np.array([{"a": 1}, {"a": 2}])), {"a": torch.tensor([1, 2])},
        TypeError, r"got dict; SharedList\(array\) keeps Python objects$"),
    "a loader": (rows, DataLoader(PAIR[1], 3), to_numpy(DataLoader(PAIR[1], 3)), PAIR[1],
        TypeError, r"got DataLoader; to_numpy\(loader\) returns its batches as arrays$"),
    "arrays of another library": (rows, Foreign(), np.asarray(Foreign()), torch.tensor([2, 0, 1]),
        TypeError, r"got Foreign; np\.asarray\(x\) converts it$"),
    "arrays for from_arrow": (lambda make: rows(make(LABELS)), ArrayDataset.from_arrow, lambda array: array, PAIR[1],
        TypeError, r"got ndarray; ArrayDataset\(arrays\) takes arrays$"),
    "a dict of columns as sequences": (lambda columns: RaggedArray.from_sequences(columns)[1], {"x": LISTS}, LISTS, np.array([3]),
        TypeError, r"expected an iterable of sequences, got a dict; pass one of its columns: RaggedArray.from_sequences\(columns\['x'\]\)"),
    "None among sequences": (lambda lists: RaggedArray.from_sequences(lists)[1].tolist(), [[1], None], [[1], []], [],
        TypeError, r"sequence 1: .*got NoneType; leave it out, or put \[\] in its place$"),
    "lists for a ConcatArray": (lambda parts: rows(ConcatArray(parts)), [[1, 2], [3]], [np.array([1, 2]), np.array([3])], torch.tensor([1, 2, 3]),
        TypeError, r"part 0: .*got list; np\.array\(x\) converts lists of numbers"),
    "parts of two dtypes": (lambda parts: rows(ConcatArray(parts)), [np.zeros(1), np.zeros(1, np.float32)], [np.zeros(1), np.zeros(1, np.float32).astype(np.float64)],
        torch.zeros(2, dtype=torch.float64), TypeError, r"; write_array\(path, part, dtype=\.\.\.\) converts a part, or part\.astype"),
    "samples of a RaggedArray": (lambda get: get(RaggedArray.from_sequences(LISTS))[0].tolist(), lambda ragged: gather(ragged, [1]), lambda ragged: ragged[[1]], [3],
        TypeError, r"got RaggedArray; ragged\[indices\] selects samples"),
    "a mask for indices": (lambda mask: torch.from_numpy(gather(LABELS, mask)), LABELS > 0, np.flatnonzero(LABELS > 0), torch.tensor([2, 1]),
        TypeError, r"gather: indices: expected integers, got bools; np\.flatnonzero\(mask\) returns"),
    "a number as a generator": (lambda generator: first(from_numpy(LABELS, 3, shuffle=True, generator=generator, device="cpu")).sort()[0], 5, torch.Generator(), torch.tensor([0, 1, 2]),
        TypeError, r"from_numpy: generator must be a torch\.Generator, got int$"),
    "arrays in an array to pad": (lambda given: pad(given, lengths=False).tolist(), RAGGED, RAGGED.tolist(), [[0, 1, 0], [0, 1, 2]],
        TypeError, r"pad: sequences: .*got an array of objects; sequences\.tolist\(\) is a list of them$"),
    "a generator to pad": (lambda make: pad(make(iter(LISTS)), lengths=False).tolist(), iter, list, [[1, 2], [3, 0]],
        TypeError, r"got list_iterator; pass list\(sequences\)$"),
    "lines of text in a list": (lambda lines: rows({"line": lines}), [*LINES], (*LINES,), {"line": [torch.from_numpy(line) for line in LINES]},
        TypeError, r"entry \['line'\]: .* got a list of 4 arrays of several shapes; .* or a tuple of arrays for the entries"),
    "images of one height in a list": (lambda make: make()["image"].shape, lambda: rows({"image": [*WIDE]}),
        lambda: first(DataLoader([{"image": image} for image in WIDE], 2, collate_fn=Collate({"image": Image(pad_value=0)})))
        , torch.Size([2, 3, 8, 6]),
        TypeError, r"got a list of 2 arrays of several shapes; pass DataLoader\(\[{key: array} for array in arrays\], batch_size, collate_fn=Collate\(fields\)\)"),
    "a file of HDF5": (lambda file: rows(file), HDF5.file, np.asarray(HDF5.file["x"]), torch.eye(2, dtype=torch.float64),
        TypeError, r"got File; take an array in the file, such as rows = h5py.File\(path\)\['x'\]; to_numpy\(\(rows.*, np.asarray\(rows\)"),
    "samples of other shapes in a list": (lambda images: rows({"image": images, "label": LABELS}, {"image": Pad()})["label"],
        [np.zeros(2), np.zeros(3), np.zeros(4)], RaggedArray.from_sequences([np.zeros(2), np.zeros(3), np.zeros(4)]), PAIR[1],
        ValueError, r"convert a list of samples with np.stack\(samples\), or RaggedArray.from_sequences\(samples\)"),
    "labels in a list": (lambda labels: rows({"image": PHOTOS, "label": labels}), [2, 0, 1], np.array([2, 0, 1]), BOTH,
        TypeError, r"^ArrayDataset: entry \['label'\]: expected an array, got a list of 3 numbers; pass np.array"),
    "PIL images in a list": (lambda images: rows({"image": images, "label": LABELS}), [COLOR] * 3, np.stack([COLOR] * 3), BOTH | {"image": torch.from_numpy(PHOTOS[[1, 1, 1]])},
        TypeError, r"entry \['image'\]: expected an array, got a list of 3 PIL images; pass np.stack\(images\) if they have one size; "),
    "a dataset of a closed file": (rows, closed("x"), np.eye(2), torch.eye(2, dtype=torch.float64),
        TypeError, r"got Dataset; its file is closed; take an array in the file, such as rows = h5py.File\(path\)\['x'\]"),
    "lists of different lengths": (lambda ids: rows({"ids": ids}, {"ids": Pad()}), LISTS,
        RaggedArray.from_sequences(LISTS), {"ids": torch.tensor([[1, 2], [3, 0]])},
        TypeError, "got a list of 2 lists of numbers; if they differ in length, pass RaggedArray.from_sequences"),
    "columns in a list": (lambda arrays: load(arrays, 3), [PHOTOS, LABELS], (PHOTOS, LABELS), PAIR,
        TypeError, "got a list of 2 arrays; .* or a tuple of arrays for the entries of a sample"),
    "samples that are dicts": (lambda make: make([{"x": 1}] * 3), ArrayDataset, collated,
        {"x": torch.tensor([1, 1, 1])},
        TypeError, r"got a list of 3 samples; .*: DataLoader\(samples, batch_size, collate_fn=Collate\(\)\)"),
    "one label for all": (lambda label: rows({"image": PHOTOS, "label": label})["label"], 5, np.full(len(PHOTOS), 5),
        torch.tensor([5, 5, 5]),
        TypeError, r"entry \['label'\]: .* got int; np.full\(length, 5\) repeats it for each sample"),
    "an array of arrays": (lambda array: rows(array, Jagged()).values, RAGGED, RaggedArray.from_sequences(RAGGED),
        torch.tensor([0, 1, 0, 1, 2]),
        TypeError, r"got ndarray; pass RaggedArray.from_sequences\(array\) for arrays of different lengths"),
    "an array of arrays of one shape": (rows, ALIKE, np.stack(ALIKE), PAIR[0][:1],
        TypeError, r"np.stack\(array\) for arrays of one shape"),
    "names of images": (lambda names: rows({"name": names, "label": LABELS[:1]})["name"], ["no.jpg"],
        RaggedArray.from_strings(["no.jpg"]), ["no.jpg"],
        TypeError, r"entry \['name'\]: .* got a list of 1 paths or strings; RaggedArray.from_strings\(strings\) keeps"),
    "the name of an image": (lambda name: rows(name), "no.jpg", RaggedArray.from_strings(["no.jpg"]), ["no.jpg"],
        FileNotFoundError, r"no.jpg: No such .*; a string is the path of a .npy file; RaggedArray.from_strings"),
    "names of images to load": (done, lambda: load(["a.jpg"], 1),
        lambda: first(DataLoader([COLOR], 1, collate_fn=Collate(Image()))), Collate(Image())([PHOTOS[1]]),
        TypeError, r"list of 1 paths or strings; .* a Dataset: DataLoader\(dataset, batch_size, collate_fn=Collate\(Image"),
    "a path of another file": (rows, __file__, RaggedArray.from_strings([__file__]), [__file__],
        ValueError, r"is not a .npy file.*; a string is the path of a .npy file; RaggedArray.from_strings"),
    "two arrays": (lambda arrays: Collate()(ArrayDataset(*arrays)[[0, 1, 2]]), (PHOTOS, LABELS), ((PHOTOS, LABELS),),
        PAIR,
        TypeError, r"arrays go into one tuple or dict: ArrayDataset\(\(images, labels\)\)"),
    "two arrays to load": (lambda arguments: load(*arguments), (PHOTOS, LABELS), ((PHOTOS, LABELS), 3), PAIR,
        TypeError, r"dict: from_numpy\(\(images, labels\), batch_size\)"),
    "a frame": (lambda make: Collate()(make()[[0, 1]]), lambda: ArrayDataset(FRAME),
        lambda: ArrayDataset.from_arrow(FRAME),
        {"x": torch.tensor([0.5, 1.5], dtype=torch.float64), "y": torch.tensor([1, 2])},
        TypeError, r"got DataFrame; ArrayDataset.from_arrow\(table\) accepts it"),
    "a dataset of Hugging Face": (lambda make: Collate()(make()[[0, 1]])["y"], lambda: ArrayDataset(HF),
        lambda: ArrayDataset.from_arrow(HF), torch.tensor([1, 2]),
        TypeError, r"got Dataset; ArrayDataset.from_arrow\(table\) accepts it"),
    "a column of Hugging Face": (lambda column: rows({"y": column})["y"], HF["y"], ArrayDataset.from_arrow(HF, ["y"])["y"],
        torch.tensor([1, 2]),
        TypeError, r"entry \['y'\]: .* got Column; ArrayDataset.from_arrow\(dataset, \['y'\]\)\['y'\] returns this column of a dataset$"),
    "a path of a table": (lambda path: rows(path), "x.parquet", RaggedArray.from_strings(["x.parquet"]), ["x.parquet"],
        ValueError, r"the path of a .npy or .npz file, got x.parquet; ArrayDataset.from_arrow\(path\) reads a Parquet"),
    "several tables": (lambda tables: load(ArrayDataset.from_arrow(tables), 4)["y"], [TABLE, TABLE],
        pyarrow.concat_tables([TABLE, TABLE]), torch.tensor([1, 2, 1, 2]),
        TypeError, r"a DataFrame, or the path of a Parquet file or of a directory of them, got list; pass pyarrow.concat_tables\(x\)$"),
    "a dataset of pyarrow": (lambda table: load(ArrayDataset.from_arrow(table), 2)["y"], pyarrow.dataset.dataset(TABLE),
        pyarrow.dataset.dataset(TABLE).to_table(), torch.tensor([1, 2]),
        TypeError, r"got InMemoryDataset; pass x.to_table\(\)$"),
    "an HDF5 dataset": (rows, HDF5, np.asarray(HDF5), torch.eye(2, dtype=torch.float64),
        TypeError, r"got Dataset; to_numpy\(\(rows.* copies rows to a file once, np.asarray\(rows\) into memory"),
    "a sparse matrix": (rows, SPARSE, SPARSE.toarray(), torch.eye(2, dtype=torch.float64),
        TypeError, r"got csr_array; pass its .toarray\(\), or, without a copy, a CSR matrix as RaggedArray\(m.indices, m.indptr"),
    "a column of a frame": (lambda column: rows({"y": column})["y"], FRAME["y"], FRAME["y"].to_numpy(),
        torch.tensor([1, 2]),
        TypeError, r"entry \['y'\]: .* got Series; pass its .to_numpy\(\)"),
    "a column with a slip": (lambda key: torch.from_numpy(ArrayDataset({"label": LABELS})[key]), "lable", "label",
        PAIR[1],
        KeyError, r"expected a key of its samples, got 'lable'; did you mean 'label'\?"),
    "a column of a table with a slip": (lambda key: Collate()(ArrayDataset.from_arrow(pyarrow.table({"label": LABELS}), [key])[[1]]),
        "lable", "label", {"label": torch.tensor([0])},
        ValueError, r"no column 'lable'; it has \['label'\]; did you mean 'label'\?"),
    "lists for a RaggedArray": (lambda make: rows(make(LISTS), Jagged()).values, RaggedArray,
        RaggedArray.from_sequences, torch.tensor([1, 2, 3]),
        TypeError, "'offsets'; RaggedArray.from_sequences makes one from lists and arrays"),
    "dates": (rows, DATES, DATES.view(np.int64), torch.tensor([2]),
        TypeError, r"got dtype datetime64\[D\]; .view\(np.int64\) returns its numbers"),
}  # fmt: skip


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_hints(hint):
    check_hint(*hint)


def test_missing_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"ConcatArray: part 0 \(a-0.npy\): No such file"):
        ConcatArray(["a-0.npy"])
    with pytest.raises(
        FileNotFoundError, match=r"RaggedArray.open: a is not a directory that .*save w"
    ):
        RaggedArray.open("a")
    RaggedArray.from_sequences([[1], [2, 3]]).save("a")
    assert RaggedArray.open("a")[1].tolist() == [2, 3]
    for part in (0, 1):
        np.save(f"a-{part}.npy", LABELS + part)
    with pytest.raises(TypeError, match=r"got one str; sorted\(glob.glob\('a-\*.npy'\)\) returns"):
        ConcatArray("a-*.npy")
    files = ConcatArray(sorted(glob.glob("a-*.npy")))
    assert np.asarray(files).tolist() == [*LABELS, *LABELS + 1]


@pytest.mark.parametrize("dtype", [">f4", ">i2", ">u4"])
def test_files_of_another_byte_order_are_converted_row_by_row(tmp_path, dtype):
    numbers = np.arange(24).reshape(6, 4).astype(dtype)
    np.save(tmp_path / "big.npy", numbers)
    mapped = np.load(tmp_path / "big.npy", mmap_mode="r")
    name = np.dtype(dtype).newbyteorder("=").name
    for source in (mapped, tmp_path / "big.npy"):
        with pytest.raises(TypeError, match=f"write_array.path, a, dtype='{name}'"):
            ArrayDataset(source)
    written = ArrayDataset(write_array(tmp_path / "native", mapped, dtype=name))
    assert np.array_equal(Collate()(written.__getitems__(range(6))), numbers.astype(name))


def test_files_of_doubles_are_converted_row_by_row(tmp_path):
    images = np.random.default_rng(0).normal(size=(3, 4, 5, 3))
    np.save(tmp_path / "images.npy", images)
    rows = ArrayDataset(tmp_path / "images.npy").__getitems__([0, 2])
    collate = Collate(Image(output="HWC"))
    with pytest.raises(
        TypeError, match=r"files with write_array\(path, images, dtype=np.float32\)"
    ):
        collate(rows)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    written = ArrayDataset(write_array(tmp_path / "floats", mapped, dtype=np.float32))
    batch = collate(written.__getitems__([0, 2]))
    assert np.array_equal(batch, images[[0, 2]].astype(np.float32))


def test_files_of_other_kinds(tmp_path):
    torch.save(PAIR[1], tmp_path / "x.pt")
    LABELS.astype(np.uint16).tofile(tmp_path / "x.bin")
    (tmp_path / "x.txt").write_text("a\nbc\n")
    np.savez(tmp_path / "x.npz", x=LABELS)
    FRAME.to_csv(tmp_path / "x.csv", index=False)
    path = str(tmp_path / "x.pt")
    for ending, hint, expected in (
        ("pt", "pass torch.load(path, mmap=True), if it returns tensors", [2, 0, 1]),
        ("bin", "pass np.memmap(path, dtype, 'r'), with reshape", [2, 0, 1]),
        (
            "txt",
            "RaggedArray.from_strings(Path(path).read_text().splitlines()) for lines",
            ["a", "bc"],
        ),
    ):
        path = str(tmp_path / f"x.{ending}")
        with pytest.raises(ValueError, match=re.escape(hint)):
            ArrayDataset(path)
        call = re.search(r"(torch|np|RaggedArray)\.\w+\(.*\)(?=,| for)", hint)[0]
        names = {"torch": torch, "np": np, "RaggedArray": RaggedArray, "Path": Path, "path": path}
        rows_of = ArrayDataset(eval(call, names | {"dtype": np.uint16}))
        assert [getattr(x, "item", lambda x=x: x)() for x in rows_of] == expected
    with pytest.raises(ValueError, match=r"got a .npz file; ArrayDataset\(path\)\[name\]"):
        ConcatArray([tmp_path / "x.npz"])
    assert len(ConcatArray([ArrayDataset(tmp_path / "x.npz")["x"]] * 2)) == 6
    with pytest.raises(ValueError, match=r"x\.csv is not a Parquet file: .*; pass pyarrow\.csv"):
        ArrayDataset.from_arrow(tmp_path / "x.csv")
    with pytest.raises(FileNotFoundError, match=r"from_arrow: No such file .*x\.parquet"):
        ArrayDataset.from_arrow(tmp_path / "x.parquet")
    table = pyarrow.csv.read_csv(tmp_path / "x.csv")
    assert list(ArrayDataset.from_arrow(table)) == list(ArrayDataset.from_arrow(FRAME))
    with pytest.raises(
        FileNotFoundError, match=r"ConcatArray\(sorted\(glob\.glob\('part-\*\.npy'\)\)\)"
    ):
        ArrayDataset("part-*.npy")


def test_frames_that_pyarrow_cannot_convert():
    frame = pd.DataFrame({"x": [np.eye(2), np.ones((2, 2))], "y": [1, 2]})
    with pytest.raises(TypeError, match=r"column x .*leave this column out with columns=, or"):
        ArrayDataset.from_arrow(frame)
    assert list(ArrayDataset.from_arrow(frame, ["y"])) == [{"y": 1}, {"y": 2}]
    assert ArrayDataset(np.stack(frame["x"]))[1].tolist() == [[1, 1], [1, 1]]


def test_datasets_without_indices():
    with pytest.raises(TypeError, match=r"IndexedDataset: expected .*, got list_iterator; Coll"):
        IndexedDataset(iter([1]))
    with pytest.raises(TypeError, match=r"IndexedDataset: expected .*, got StreamDataset; Coll"):
        IndexedDataset(StreamDataset([1]))


class Batches:
    """A dataset that DataLoader reads by whole batches only, with a table's attribute."""

    columns = ("x",)

    def __len__(self):
        return 4

    def __getitems__(self, indices):
        return [2 * index for index in indices]

    def __iter__(self):
        return iter(range(4))


def test_own_classes_are_no_tables():
    loader = torch.utils.data.DataLoader(IndexedDataset(Batches()), 4)
    assert next(iter(loader)).tolist() == [0, 2, 4, 6]
    assert list(StreamDataset(Batches())) == [0, 1, 2, 3]
