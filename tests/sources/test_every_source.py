"""Tests of all sources: samples, batches, parts, and transfer to other processes."""

import os
import pickle

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from array_sources import ALL, ignore_read_only, npy, opened, plain, values
from pinfeed import ArrayDataset, Collate, ConcatArray, Jagged, Keep, Pad, RaggedArray, Stack
from pinfeed.sources.source import Source
from samples import assert_same

ENDS = np.array([0, 3, 3, 4, 9, 10, 12, 12, 20, 21, 30, 33])  # of eleven sequences
TEXTS = ["é", "", "x\0y\0", "日本", "a", "bc", "b", "", "file.jpg", "0", "é"]

RAGGED = {
    "sequences": lambda _: RaggedArray(np.arange(33), ENDS),
    "of pairs": lambda _: RaggedArray(np.arange(66).reshape(33, 2), ENDS.astype(np.int32)),
    "strided": lambda _: RaggedArray(np.arange(66)[::-2], np.repeat(ENDS, 2)[::2]),
    "slice": lambda _: RaggedArray(np.arange(50), np.array([0, 5, *ENDS + 6, 50]))[2:-1],
    "chosen": lambda _: RaggedArray(np.arange(33), ENDS)[::-1][list(range(11))],
    "in files": lambda folder: saved(folder, RaggedArray(np.arange(33), ENDS)),
    "of a tensor": lambda _: RaggedArray(torch.arange(33), torch.from_numpy(ENDS)),
    "of bfloat16": lambda _: RaggedArray(torch.arange(33).bfloat16(), ENDS),
    "parts": lambda _: ConcatArray(
        [
            RaggedArray(np.arange(10), np.array([0, 3, 3, 4, 10])),
            RaggedArray(np.arange(0), np.array([0])),
            RaggedArray(np.arange(50, 110)[::2], np.array([2, 9, 20, 20, 30], np.int32)),
        ]
    ),
    "lists of Arrow": lambda _: RaggedArray.from_arrow(pa.array([[1, 2], [], [3, 4, 5], [6]])),
    "lists in chunks": lambda _: column(pa.chunked_array([[[1, 2], []], [[3], [4, 5]]])),
}
STRINGS = {
    "text": lambda _: RaggedArray.from_strings(TEXTS),
    "bytes": lambda _: RaggedArray.from_strings([text.encode() for text in TEXTS]),
    "text in files": lambda folder: saved(folder, RaggedArray.from_strings(TEXTS)),
    "text in parts": lambda _: ConcatArray([RaggedArray.from_strings(TEXTS)] * 2),
    "text of Arrow": lambda _: RaggedArray.from_arrow(pa.array(TEXTS)[2:]),
    "large text of Arrow": lambda _: column(pa.chunked_array([TEXTS], pa.large_string())),
}
PARTS = {
    "ndarrays": lambda _: ConcatArray([values()[:4], values()[:0], values()[2:]]),
    "tensors": lambda _: ConcatArray([torch.from_numpy(values()).half()] * 2),
    "memmaps": lambda folder: ConcatArray([ALL["memmap r"](folder), values()]),
    "paths": lambda folder: ConcatArray([npy(folder, values())] * 3),
    "an empty part": lambda folder: ConcatArray([npy(folder, values()[:0])]),
    "files of one sample each": lambda folder: one_each(folder, values()),
    "files of one number each": lambda folder: one_each(folder, np.arange(5.0)),
    "empty files of one sample each": lambda folder: one_each(folder, np.zeros((4, 0))),
    "a .npz file": lambda folder: zipped(folder)["x"],
    "fixed-size lists": lambda _: column(pa.array([[1.5, 2], [3, 4]], pa.list_(pa.float32(), 2))),
    "numbers in chunks": lambda _: column(pa.chunked_array([[1, 2], [3]])),
}
SOURCES = ALL | PARTS | RAGGED | STRINGS


def saved(folder, ragged):
    ragged.save(folder / "ragged")
    return RaggedArray.open(folder / "ragged")


def column(array):
    return ArrayDataset.from_arrow(pa.table({"x": array}))["x"]


def one_each(folder, samples):
    paths = [folder / f"{i}.npy" for i in range(len(samples))]
    for path, sample in zip(paths, samples, strict=True):
        np.save(path, sample)
    return ConcatArray(paths, samples=True)


def zipped(folder):
    np.savez(folder / "x.npz", x=values())
    dataset = ArrayDataset(folder / "x.npz")
    assert not dataset["x"].flags.aligned  # otherwise the case is like others
    return dataset


def fields(kind):
    """Returns batches of all samples of a source."""
    if kind in RAGGED:
        return [Jagged(), Pad(pad_value=7, mask=True), Keep()]
    if kind in STRINGS:
        return [Keep(), Pad(pad_value=7)]
    return [Stack(), Stack(torch.float64), Keep()]


@pytest.fixture(params=SOURCES)
def case(request, tmp_path):
    """Returns a type, the source, and its samples."""
    source = SOURCES[request.param](tmp_path)
    array = source if isinstance(source, Source) else plain(opened(source))
    return request.param, source, [array[i] for i in range(len(array))]


def test_samples(case):
    _, source, samples = case
    count = len(samples)
    dataset = ArrayDataset({"x": source})
    assert len(dataset) == count
    for i in range(-count, count):
        assert_same(dataset[i], {"x": samples[i]})
    if isinstance(source, Source) and count:
        assert_same(source[-1], samples[-1])
    for i in (count, -count - 1):
        with pytest.raises(IndexError, match=f"index {i} is out of range for {count} samples"):
            dataset[i]
        with pytest.raises(IndexError, match=f"is out of range for {count}"):
            dataset.__getitems__([i])


@ignore_read_only
def test_batches(case):
    kind, source, samples = case
    dataset = ArrayDataset(source)
    if not samples:
        return
    indices = [len(samples) - 1, 0, 0, -2 % len(samples), 1]
    rows, chosen = dataset.__getitems__(indices), [samples[i] for i in indices]
    assert_same(list(rows), chosen)
    assert_same(list(pickle.loads(pickle.dumps(rows))), chosen)
    has_axes = getattr(samples[0], "shape", ()) != ()
    cut = [Pad(pad_value=7, axes=0, max_length=1, side="left")] if has_axes else []
    for field in fields(kind) + cut:
        assert_same(Collate(field)(rows), Collate(field)(chosen))
    if kind not in RAGGED | STRINGS and "mirrored" not in kind:  # torch doesn't support it
        assert_same(Collate()(rows), default_collate(rows))


def test_parts(case):
    kind, source, samples = case
    dataset, numbers = ArrayDataset({"x": source}), np.arange(len(samples))
    mask = numbers % 2 == 1
    for chosen, order in (
        (dataset[::-1], numbers[::-1]),
        (dataset[1:][:2], numbers[1:][:2]),
        (dataset.select(-1 - numbers[:3]), numbers[::-1][:3]),
        (dataset.select(mask).select(torch.arange(mask.sum())), numbers[mask]),
    ):
        for part in (chosen, pickle.loads(pickle.dumps(chosen))):
            assert_same(list(part), [{"x": samples[i]} for i in order])
            if len(part) > 0:
                rows, field = part[[*range(len(part))]], fields(kind)[0]
                assert_same(Collate({"x": field})(rows), Collate({"x": field})(list(rows)))


def test_pickles(case):
    _, source, samples = case
    dataset = ArrayDataset({"x": source})
    for _ in range(2):
        dataset = pickle.loads(pickle.dumps(dataset))
        assert_same([sample["x"] for sample in dataset], samples)


@ignore_read_only
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_workers(method, tmp_path):
    entries = {}
    for kind, make in SOURCES.items():
        (tmp_path / kind).mkdir()
        dataset = ArrayDataset({"x": make(tmp_path / kind)})
        if len(dataset) >= 3:
            entries[kind] = dataset[:3]["x"]
    dataset, collate = ArrayDataset(entries), Collate({kind: fields(kind)[0] for kind in entries})
    loader = DataLoader(
        dataset, 3, collate_fn=collate, num_workers=1, multiprocessing_context=method
    )
    assert_same(list(loader), [collate(dataset[[0, 1, 2]])])


@pytest.mark.parametrize(
    "kind", ["Path", "np.load", "crops of a memmap", "a .npz file", "in files", "text in files"]
)
def test_a_truncated_file(kind, tmp_path):
    dataset = ArrayDataset(SOURCES[kind](tmp_path))
    assert len(pickle.dumps(dataset)) < 1500
    for path in [*tmp_path.glob("*.*"), *tmp_path.glob("ragged/[uv]*.npy")]:
        os.truncate(path, 10)
    for call in (lambda: dataset[8], lambda: Collate(Keep())(dataset[[8]])):
        with pytest.raises(OSError, match="cut short"):
            call()


PAIRS = RaggedArray(np.zeros((5, 2)), np.array([0, 2, 5]))
BFLOATS = RaggedArray(torch.zeros(15, dtype=torch.bfloat16), np.array([0, 15]))
TEXT, BYTES = RaggedArray.from_strings(["a", "é"]), RaggedArray.from_strings([b"abc"])

# The repr of a source, or of a dataset of it.
REPRS = {
    "RaggedArray(2 sequences of float64 (*, 2), 5 values)": PAIRS,
    "RaggedArray(1 sequences of bfloat16 (*,), 15 values)": BFLOATS,
    "RaggedArray(2 strings of text, 3 bytes)": TEXT,
    "RaggedArray(1 strings of bytes, 3 bytes)": BYTES,
    "ConcatArray(6 samples of float64 (3,) in 2 parts)": ConcatArray([np.zeros((2, 3)), np.zeros((4, 3))]),
    "ConcatArray(2 samples of float64 (*, 2) in 1 part)": ConcatArray([PAIRS]),
    "ConcatArray(2 samples of bytes in 2 parts)": ConcatArray([BYTES, BYTES]),
    "ArrayDataset(2 samples: [0] float64 (*, 2), [1] float64 (3,))": ArrayDataset((PAIRS, np.zeros((2, 3)))),
    "ArrayDataset(4 samples: ['x'] int32 (4, 3), ['y'] float32 ())": ArrayDataset({"x": values()[:4], "y": torch.zeros(4)}),
}  # fmt: skip


@pytest.mark.parametrize("text", REPRS)
def test_repr(text):
    assert repr(REPRS[text]) == text
