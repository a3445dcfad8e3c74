"""ArrayDataset, from_numpy and RaggedArray: what people hand over first, and what they are told."""

import glob

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from torch.utils.data import DataLoader

from hints import COLOUR, LABELS, PHOTOS, check_hint, first, rows
from pinfeed import (
    ArrayDataset,
    Collate,
    ConcatArray,
    Image,
    Jagged,
    Pad,
    RaggedArray,
    from_numpy,
)

FRAME = pd.DataFrame({"x": [0.5, 1.5], "y": [1, 2]})
RAGGED = np.array([np.arange(2), np.arange(3)], object)

HINTS = {
    "samples in a list": (
        lambda: ArrayDataset({"image": [*PHOTOS], "label": np.arange(3)}),
        ValueError,
        r"samples in a list are np.stack\(samples\)",
        lambda: torch.from_numpy(ArrayDataset({"image": np.stack([*PHOTOS])})[0]["image"]),
        torch.from_numpy(PHOTOS[0]),
    ),
    "labels in a list": (
        lambda: ArrayDataset({"image": PHOTOS, "label": [2, 0, 1]}),
        TypeError,
        r"^ArrayDataset: leaf \['label'\]: expected an array, got a list of 3 numbers; pass np.array",
        lambda: rows({"image": PHOTOS, "label": np.array([2, 0, 1])})["label"],
        torch.tensor([2, 0, 1]),
    ),
    "lists of different lengths": (
        lambda: ArrayDataset({"ids": [[1, 2], [3]]}),
        TypeError,
        "got a list of 2 lists of numbers; if they differ in length, pass RaggedArray.from_sequences",
        lambda: rows({"ids": RaggedArray.from_sequences([[1, 2], [3]])}, {"ids": Pad()})["ids"],
        torch.tensor([[1, 2], [3, 0]]),
    ),
    "lists of one length": (
        lambda: ArrayDataset([[1, 2], [3, 4]]),
        TypeError,
        r"^ArrayDataset: expected an array, got a list of 2 lists of numbers; .* else np.array\(",
        lambda: rows(np.array([[1, 2], [3, 4]])),
        torch.tensor([[1, 2], [3, 4]]),
    ),
    "images in a list": (
        lambda: ArrayDataset([PHOTOS[0], PHOTOS[1]]),
        TypeError,
        (
            r"^ArrayDataset: expected an array, .* got a list of 2 arrays; pass np.stack\(arrays\), or a "
            "tuple of arrays for the leaves of a sample"
        ),
        lambda: rows(np.stack([PHOTOS[0], PHOTOS[1]])),
        torch.from_numpy(PHOTOS[:2]),
    ),
    "columns in a list": (
        lambda: from_numpy([PHOTOS, LABELS], 3),
        TypeError,
        "got a list of 2 arrays; .* or a tuple of arrays for the leaves of a sample",
        lambda: first(from_numpy((PHOTOS, LABELS), 3, device="cpu")),
        [torch.from_numpy(PHOTOS), torch.from_numpy(LABELS)],
    ),
    "samples that are dicts": (
        lambda: ArrayDataset([{"image": PHOTOS[0], "label": 1}] * 3),
        TypeError,
        r"got a list of 3 samples; .*: DataLoader\(samples, batch_size, collate_fn=Collate\(\)\)",
        lambda: first(DataLoader([{"image": PHOTOS[0], "label": 1}] * 3, 3, collate_fn=Collate()))[
            "label"
        ],
        torch.tensor([1, 1, 1]),
    ),
    "samples that are tuples": (
        lambda: from_numpy([(PHOTOS[0], 1)], 1),
        TypeError,
        r"got a list of 1 samples; .*: DataLoader\(samples, batch_size, collate_fn=Collate\(\)\)",
        lambda: first(DataLoader([(PHOTOS[0], 1)], 1, collate_fn=Collate()))[1],
        torch.tensor([1]),
    ),
    "one label for all": (
        lambda: ArrayDataset({"image": PHOTOS, "label": 5}),
        TypeError,
        r"leaf \['label'\]: .* got int; np.full\(length, 5\) has it for each sample",
        lambda: rows({"image": PHOTOS, "label": np.full(len(PHOTOS), 5)})["label"],
        torch.tensor([5, 5, 5]),
    ),
    "an array of arrays": (
        lambda: ArrayDataset(RAGGED),
        TypeError,
        r"got ndarray; RaggedArray.from_sequences\(array\) holds arrays of different lengths",
        lambda: rows(RaggedArray.from_sequences(RAGGED), Jagged()).values,
        torch.tensor([0, 1, 0, 1, 2]),
    ),
    "an array of arrays of one shape": (
        lambda: ArrayDataset(np.array([1, "", PHOTOS[0]], object)[2:]),
        TypeError,
        r"np.stack\(array\) those of one shape",
        lambda: rows(np.stack(np.array([1, "", PHOTOS[0]], object)[2:])),
        torch.from_numpy(PHOTOS[:1]),
    ),
    "names of photographs": (
        lambda: ArrayDataset({"name": ["no.jpg"], "label": LABELS[:1]}),
        FileNotFoundError,
        r"leaf \['name'\]\[0\]: no.jpg: No such .*; a string is the path of a .npy file; RaggedArray.from_st",
        lambda: rows({"name": RaggedArray.from_strings(["no.jpg"]), "label": LABELS[:1]})["name"],
        ["no.jpg"],
    ),
    "names of photographs to load": (
        lambda: from_numpy(["a.jpg"], 1),
        TypeError,
        r"list of 1 paths; .* a Dataset: DataLoader\(dataset, batch_size, collate_fn=Collate\(Image",
        lambda: first(DataLoader([COLOUR], 1, collate_fn=Collate(Image()))),
        Collate(Image())([PHOTOS[1]]),
    ),
    "a path of another file": (
        lambda: ArrayDataset(__file__),
        ValueError,
        r"is no complete .npy file.*; a string is the path of a .npy file; RaggedArray.from_strings",
        lambda: rows(RaggedArray.from_strings([__file__])),
        [__file__],
    ),
    "two arrays": (
        lambda: ArrayDataset(PHOTOS, LABELS),
        TypeError,
        r"arrays go into one tuple or dict: ArrayDataset\(\(images, labels\)\)",
        lambda: rows((PHOTOS, LABELS)),
        [torch.from_numpy(PHOTOS), torch.from_numpy(LABELS)],
    ),
    "two arrays to load": (
        lambda: from_numpy(PHOTOS, LABELS),
        TypeError,
        r"dict: from_numpy\(\(images, labels\), batch_size\)",
        lambda: first(from_numpy((PHOTOS, LABELS), 3, device="cpu")),
        [torch.from_numpy(PHOTOS), torch.from_numpy(LABELS)],
    ),
    "two arrays to load, and a size": (
        lambda: from_numpy(PHOTOS, LABELS, 3),
        TypeError,
        r"but 3 were given; arrays go into one tuple or dict: from_numpy\(\(images, labels\)",
        lambda: first(from_numpy((PHOTOS, LABELS), 3, device="cpu"))[1],
        torch.from_numpy(LABELS),
    ),
    "a frame": (
        lambda: ArrayDataset(FRAME),
        TypeError,
        r"got DataFrame; ArrayDataset.from_arrow\(table\) takes Arrow's, pyarrow.table\(frame\)",
        lambda: Collate()(ArrayDataset.from_arrow(pyarrow.table(FRAME)).__getitems__([0, 1])),
        {"x": torch.tensor([0.5, 1.5], dtype=torch.float64), "y": torch.tensor([1, 2])},
    ),
    "a frame to load": (
        lambda: from_numpy(FRAME, 2),
        TypeError,
        r"got .*DataFrame; pyarrow.table\(frame\) makes a table",
        lambda: first(from_numpy(pyarrow.table(FRAME), 2, device="cpu"))["y"],
        torch.tensor([1, 2]),
    ),
    "a column of a frame": (
        lambda: ArrayDataset({"y": FRAME["y"]}),
        TypeError,
        r"leaf \['y'\]: .* got Series; pass .to_numpy\(\) of it",
        lambda: rows({"y": FRAME["y"].to_numpy()})["y"],
        torch.tensor([1, 2]),
    ),
    "a column with a slip": (
        lambda: ArrayDataset({"label": LABELS})["lable"],
        KeyError,
        r"expected a key of its samples, got 'lable'; did you mean 'label'\?",
        lambda: torch.from_numpy(ArrayDataset({"label": LABELS})["label"]),
        torch.from_numpy(LABELS),
    ),
    "a column of a table with a slip": (
        lambda: ArrayDataset.from_arrow(pyarrow.table({"label": LABELS}), ["lable"]),
        ValueError,
        r"no column 'lable'; it has \['label'\]; did you mean 'label'\?",
        lambda: Collate()(
            ArrayDataset.from_arrow(pyarrow.table({"label": LABELS}), ["label"]).__getitems__([1])
        ),
        {"label": torch.tensor([0])},
    ),
    "lists for a RaggedArray": (
        lambda: RaggedArray([[1, 2], [3]]),
        TypeError,
        "'offsets'; RaggedArray.from_sequences makes one of lists and arrays",
        lambda: rows(RaggedArray.from_sequences([[1, 2], [3]]), Jagged()).values,
        torch.tensor([1, 2, 3]),
    ),
    "dates": (
        lambda: ArrayDataset(np.array(["1970-01-03"], "M8[D]")),
        TypeError,
        r"got datetime64\[D\]; .view\(np.int64\) has its numbers",
        lambda: rows(np.array(["1970-01-03"], "M8[D]").view(np.int64)),
        torch.tensor([2]),
    ),
}


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_hints(hint):
    check_hint(*hint)


def test_files_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"ConcatArray: part 0 \(a-0.npy\): No such file"):
        ConcatArray(["a-0.npy"])
    with pytest.raises(
        FileNotFoundError, match=r"RaggedArray.open: a is no directory that .*save w"
    ):
        RaggedArray.open("a")
    RaggedArray.from_sequences([[1], [2, 3]]).save("a")
    assert RaggedArray.open("a")[1].tolist() == [2, 3]
    for part in (0, 1):
        np.save(f"a-{part}.npy", LABELS + part)
    with pytest.raises(TypeError, match=r"got one str; sorted\(glob.glob\('a-\*.npy'\)\) has"):
        ConcatArray("a-*.npy")
    files = ConcatArray(sorted(glob.glob("a-*.npy")))
    assert np.asarray(files).tolist() == [*LABELS, *LABELS + 1]
