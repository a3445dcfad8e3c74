"""ConcatArray: many arrays that behave like one."""

import glob
import os
import pickle
import re
import time
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
import torchvision
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import pinfeed
from arrays import NUMPY_DTYPES, assert_same_bits, random_array, views
from messages import check
from programs import run_program

pytestmark = pytest.mark.kernels


def in_files(folder, *arrays):
    paths = [folder / f"part-{i}.npy" for i in range(len(arrays))]
    for path, array in zip(paths, arrays, strict=True):
        np.save(path, array)
    return paths


@st.composite
def parts_and_indices(draw):
    """Draws parts with strides of all kinds, and indices into their concatenation."""
    dtype = draw(st.sampled_from(NUMPY_DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=2))
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any))
    parts = [draw(views((length, *shape), dtype)) for length in lengths]
    count = sum(lengths)
    return parts, draw(st.lists(st.integers(-count, count - 1), min_size=1, max_size=12))


@given(case=parts_and_indices())
def test_stacking_equals_the_concatenation(case):
    parts, indices = case
    dataset = pinfeed.ArrayDataset(pinfeed.ConcatArray(parts))
    batch = pinfeed.Collate()(dataset.__getitems__(indices))
    assert_same_bits(batch.numpy(), np.concatenate(parts)[indices])


RAGGED_PARTS = [
    pinfeed.RaggedArray(np.arange(10), np.array([0, 3, 3, 4, 10])),
    pinfeed.RaggedArray(np.arange(0), np.array([0])),
    pinfeed.RaggedArray(np.arange(50, 80), np.array([2, 9, 20, 20, 30], np.int32)),
]


def test_samples_of_parts_in_memory_are_views():
    parts = [np.zeros((2, 3)), np.zeros((4, 3))]
    assert np.shares_memory(pinfeed.ConcatArray(parts)[3], parts[1][1])


BAD_PARTS = [
    ([], ValueError, "expected at least one part, got none"),
    (np.zeros((2, 2)), TypeError, "parts must be a sequence of arrays, got one ndarray; a single array needs no ConcatArray"),
    ("part.npy", TypeError, "parts must be a sequence of arrays, got one str$"),
    ([np.zeros(2), "x.npy"], TypeError, r"part 1: expected an array like part 0, got str; np\.load\(path, mmap_mode='r'\)"),
    ([np.zeros(2), 5], TypeError, "part 1: expected an ndarray, .* got int"),
    ([np.zeros(2), np.float64(5)], TypeError, "part 1: expected an ndarray, .* got float64"),
    ([np.zeros(2), np.array(5.0)], ValueError, "part 1: expected an axis that counts samples"),
    ([np.zeros(2), np.zeros(2, "f4")], TypeError, r"part 1: .* float64 \(\) like part 0, got .* float32"),
    ([np.zeros(2), np.array(["a"])], TypeError, "part 1: .* numeric or bool dtype.*from_strings"),
    ([np.zeros((2, 3)), np.zeros((1, 3)), np.zeros((2, 4))],
        ValueError, r"part 2: expected an ndarray of float64 \(3,\) like part 0, got an ndarray of float64 \(4,\)"),
    ([np.zeros(2), torch.zeros(2)], TypeError, "part 1: expected an ndarray of .*, got a tensor of"),
    ([RAGGED_PARTS[0], np.zeros(2)], TypeError, "part 1: expected a RaggedArray over an ndarray of .* like part 0, got an ndarray of"),
    ([RAGGED_PARTS[0], pinfeed.RaggedArray(np.zeros((3, 2), int), np.array([0, 3]))],
        ValueError, r"part 1: expected .* of int64 \(\*,\) like part 0, got .* of int64 \(\*, 2\)"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "error", "message"), BAD_PARTS)
def test_bad_parts(parts, error, message):
    with pytest.raises(error, match=f"ConcatArray: {message}"):
        pinfeed.ConcatArray(parts)


def test_bad_files_are_named(tmp_path):
    good, other, short = (tmp_path / f"{name}.npy" for name in ("good", "other", "short"))
    np.save(good, np.zeros((4, 3)))
    np.save(other, np.zeros((4, 3), np.int16))
    short.write_bytes(good.read_bytes()[:-1])
    for path, error, *words in (
        (other, TypeError, "part 1", "other.npy", "float64", "like part 0, got", "int16"),
        (short, OSError, "part 1", "short.npy", "cut short: it has 223 bytes", "byte 224"),
        (tmp_path / "missing.npy", FileNotFoundError, "missing.npy"),
    ):
        check(lambda path=path: pinfeed.ConcatArray([good, path]), error, *words)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("row", [(), (0,), (3, 2)])
def test_files_of_every_dtype(dtype, row, tmp_path):
    arrays = [random_array((length, *row), dtype, length) for length in (300, 0, 7, 200)]
    concat = pinfeed.ConcatArray(in_files(tmp_path, *arrays))
    dataset, collate, whole = (
        pinfeed.ArrayDataset(concat),
        pinfeed.Collate(),
        np.concatenate(arrays),
    )
    rng = np.random.default_rng(0)
    for indices in (rng.integers(-507, 507, 400), np.arange(507), [306, 0, -1, 299, 300]):
        for _ in range(2):  # mapped the second time
            assert_same_bits(collate(dataset.__getitems__(indices)).numpy(), whole[indices])
    assert_same_bits(np.asarray(concat[301]), whole[301])


@pytest.mark.parametrize(
    ("limit", "others"), [(1024, 0), (64, 0), (400, 380)], ids=["usual", "low", "used up"]
)
def test_several_arrays_share_the_limit_of_open_files(tmp_path, limit, others):
    run_program("many_arrays", str(tmp_path), str(limit), str(others))


def cut(path):
    os.truncate(path, 128 + 100 * 512)


def replace(path):
    np.save(path.with_suffix(".new.npy"), np.zeros((300, 64), np.int64))
    path.with_suffix(".new.npy").replace(path)


def rewrite(path):
    np.save(path, random_array((300, 64), np.float64))


def cut_and_regrow(path):
    cut(path)
    os.truncate(path, 128 + 300 * 512)


@pytest.mark.parametrize(
    ("before", "alter", "message"),
    [
        ("not opened", cut, "cut short: it has 51328 bytes, and had 153728 when"),
        ("not opened", Path.unlink, "can't be read: No such file or directory"),
        ("not opened", replace, "the file was replaced or changed after it was opened"),
        ("read", cut, "cut short: it has 51328 bytes, and had 153728 when"),
        ("mapped", cut, "cut short: it has 51328 bytes, and had 153728 when"),
        ("read", replace, "the file was replaced or changed"),
        ("read", rewrite, "the file was replaced or changed"),
        ("mapped", rewrite, "the file was replaced or changed"),
        ("mapped", cut_and_regrow, "the file was replaced or changed"),
    ],
)
def test_parts_that_change_are_named(before, alter, message, tmp_path):
    paths = in_files(tmp_path, *(random_array((300, 64), np.int64, i) for i in range(3)))
    dataset, collate = pinfeed.ArrayDataset(pinfeed.ConcatArray(paths)), pinfeed.Collate()
    for _ in range({"not opened": 0, "read": 1, "mapped": 200}[before]):
        collate(dataset.__getitems__([0, 310, 600]))
    time.sleep(0.02)  # clocks of file systems can be this slow
    alter(paths[1])
    # The file contains row 310 even after truncation.
    rows = [0, 599, 600] if before == "not opened" else [0, 310, 600]
    for field in (pinfeed.Stack(), pinfeed.Stack(torch.float32), pinfeed.Pad()):
        with pytest.raises(OSError, match=f"part-1.npy: .*{message}"):
            pinfeed.Collate(field)(dataset.__getitems__(rows))
    collate(dataset.__getitems__([0, 600]))


def test_a_change_among_many_mapped_parts_is_detected_soon(tmp_path):
    paths = in_files(tmp_path, *(random_array((4, 64), np.int64, i) for i in range(300)))
    dataset, collate = pinfeed.ArrayDataset(pinfeed.ConcatArray(paths)), pinfeed.Collate()
    every = np.arange(0, 1200, 4)
    for _ in range(4):  # until they are mapped
        collate(dataset.__getitems__(np.concatenate([every, every + 1])))
    np.save(paths[200], random_array((4, 64), np.float64))
    time.sleep(1.1)
    with pytest.raises(OSError, match=r"part-200.npy: the file was replaced or changed"):
        collate(dataset.__getitems__(every))


def test_pipes_raise_at_once(tmp_path):
    run_program("pipes", str(tmp_path))


@pytest.mark.parametrize(
    ("descr", "shape", "error", "message"),
    [
        ("<f8", "(-1, 3)", ValueError, "negative length"),
        ("<f8", "(-2, -3)", ValueError, "negative length"),
        ("<f8", "(9223372036854775807, 3)", ValueError, "too large for any memory"),
        ("<f8", "(0, 9223372036854775807, 9)", ValueError, "too large for any memory"),
        ("<f8", "(1000000000000, 3)", OSError, "cut short"),
        ("<f8", "(2.0, 3)", ValueError, "not a .npy file of numbers"),
        ("|O", "(2, 3)", ValueError, "expected numbers, got dtype object"),
        ("<M8[s]", "(2, 3)", TypeError, "numeric or bool"),
        (">f8", "(2, 3)", TypeError, "byte order"),
        ("<f8", "(2, 3), 'more': 1", ValueError, "not a .npy file of numbers"),
    ],
)
def test_hostile_headers(descr, shape, error, message, tmp_path):
    path = tmp_path / "x.npy"
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}"
    header = text.encode().ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"0" * 48)
    with pytest.raises(error, match=rf"part 0 \(.*{message}"):
        pinfeed.ConcatArray([path])


@pytest.mark.parametrize("sizes", [[1] * 300, [1, 0, 0, 500, *[0] * 50, 2], [7], [1] * 99 + [900]])
def test_rows_find_their_part(sizes, tmp_path):
    everything = np.arange(sum(sizes))
    paths = in_files(tmp_path, *np.split(everything, np.cumsum(sizes)[:-1]))
    dataset = pinfeed.ArrayDataset(pinfeed.ConcatArray(paths))
    for _ in range(4):  # the last ones through the map
        batch = pinfeed.Collate()(dataset.__getitems__(range(len(everything))))
        assert np.array_equal(batch.numpy(), everything)


# Arrays in memory, which native code gathers from like one array.


def test_a_part_that_is_truncated_while_in_use(tmp_path):
    paths = in_files(tmp_path, *np.zeros((2, 10, 10_000), np.uint8))
    dataset = pinfeed.ArrayDataset(pinfeed.ConcatArray(np.load(path, "r") for path in paths))
    os.truncate(paths[1], 50_000)
    assert pinfeed.Collate()(dataset.__getitems__([0, 9])).shape == (2, 10_000)
    with pytest.raises(OSError, match=r"part-1\.npy: the file was cut short"):
        pinfeed.Collate()(dataset.__getitems__([0, 19]))


def test_sequences_whose_offsets_or_file_change(tmp_path):
    pinfeed.RaggedArray(np.arange(9000), np.arange(9001)).save(tmp_path / "x")
    ends = np.array([0, 2, 5])
    parts = [pinfeed.RaggedArray(np.arange(5), ends), pinfeed.RaggedArray.open(tmp_path / "x")]
    dataset = pinfeed.ArrayDataset(pinfeed.ConcatArray(parts))
    collate = pinfeed.Collate(pinfeed.Jagged())
    assert collate(dataset.__getitems__([1, 9001])).values.tolist() == [2, 3, 4, 8999]
    ends[1] = 6
    with pytest.raises(ValueError, match=r"offsets must not decrease .* from 0 to 5, got 0 and 6"):
        collate(dataset.__getitems__([0]))
    for name in ("offsets", "values"):
        os.truncate(tmp_path / "x" / f"{name}.npy", 4096)
        with pytest.raises(OSError, match=r"\w+\.npy: the file was cut short"):
            collate(dataset.__getitems__([3]))


def test_files_with_one_sample_each_raise(tmp_path):
    image = random_array((32, 32, 3), np.uint8)
    paths = in_files(tmp_path, image, image, image[:8])
    one_each = lambda: pinfeed.ConcatArray(paths, samples=True)
    check(one_each, ValueError, "part 2 ", "part-2.npy): ", "the __getitem__ of a Dataset take")
    words = "samples=True takes paths", "got ndarray; np.stack(arrays"
    check(lambda: pinfeed.ConcatArray([image], samples=True), TypeError, *words)
    np.save(paths[2], np.asfortranarray(image))
    check(one_each, ValueError, "part 2 ", "(32, 32, 3) in Fortran order", "return np.load(paths")
    np.save(paths[2], image)
    by_hint = pinfeed.ArrayDataset(one_each())
    assert_same_bits(by_hint[2], image)
    # All functions that would treat rows of such files as samples raise.
    for arrays, error in (
        ({"image": list(map(str, paths))}, TypeError),
        ({"image": pinfeed.ConcatArray(paths), "label": np.arange(3)}, ValueError),
        ({"image": paths[0], "label": np.arange(1)}, ValueError),
        (paths, TypeError),
        (tmp_path, ValueError),
        ({"image": tmp_path}, ValueError),
    ):
        words = "ConcatArray(paths, samples=True) takes files of one sample"
        check(lambda arrays=arrays: pinfeed.ArrayDataset(arrays), error, words)
    np.save(tmp_path / "scalar.npy", np.float32(3))
    words = "got a 0-d array; samples=True takes files of one sample"
    check(lambda: pinfeed.ConcatArray([tmp_path / "scalar.npy"]), ValueError, words)


@pytest.mark.parametrize("shape", [(3, 4), (3, 1, 5), (2, 3, 4), (0, 3), (1, 7), (4,)])
def test_samples_in_fortran_order(shape, tmp_path):
    samples = [random_array(shape, np.float32) for _ in range(3)]
    paths = in_files(tmp_path, *map(np.asfortranarray, samples))
    array = pinfeed.ConcatArray(paths, samples=True)
    assert_same_bits(array[1], samples[1])
    batch = pinfeed.Collate()(pinfeed.ArrayDataset(array).__getitems__([2, 0]))
    assert_same_bits(batch.numpy(), np.stack([samples[2], samples[0]]))
    unpickled = pickle.loads(pickle.dumps(array))
    assert_same_bits(np.asarray(unpickled), np.stack(samples))


def test_rows_in_fortran_order(tmp_path):
    parts = [random_array((2, 3), np.int16), random_array((4, 3), np.int16)]
    paths = in_files(tmp_path, *map(np.asfortranarray, parts))
    words = (
        "expected C order, got Fortran order",
        "[np.load(path, mmap_mode='r') for path in paths]",
    )
    check(lambda: pinfeed.ConcatArray(paths), ValueError, "part 0 ", *words)
    by_hint = pinfeed.ConcatArray([np.load(path, mmap_mode="r") for path in paths])
    assert_same_bits(np.asarray(by_hint), np.concatenate(parts))


def save_images(folder, names, shape=(16, 12, 3)):
    """Saves images of random bytes, and returns their paths in the order of the names."""
    paths = [folder / f"{name}.npy" for name in names]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        np.save(path, random_array(shape, np.uint8))
    return paths


SAMPLES = {
    "numbered": ["0", "1", "2"],
    "numbered in classes": ["cat_001", "cat_002", "dog_001"],
    "hashes": ["55a54008ad1b", "866668350690", "93b885adfe0d"],
    "images": ["abbey", "beach", "cabin"],
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_folders_of_samples(kind, tmp_path):
    shape = (16, 12) if kind != "images" else (16, 12, 3)
    paths = save_images(tmp_path, SAMPLES[kind], shape)
    with pytest.raises(
        ValueError, match=r"of one shape, .*samples=True\) takes files of"
    ) as caught:
        pinfeed.ArrayDataset(tmp_path)
    call = str(caught.value).partition("; ")[2].partition(" returns")[0]
    array = pinfeed.ConcatArray(eval(call, {"glob": glob}), samples=True)
    assert_same_bits(np.asarray(array), np.stack([np.load(path) for path in paths]))
    by_name = pinfeed.ArrayDataset({path.stem: path for path in paths})
    assert list(by_name[3]) == SAMPLES[kind]


@pytest.mark.parametrize("names", [["cat/0", "cat/1", "dog/0"], ["cat/x", "dog/x"]])
def test_folders_in_folders(names, tmp_path):
    paths = save_images(tmp_path, names)
    with pytest.raises(ValueError, match=r"got the folder 'cat' of .*; for files of one") as caught:
        pinfeed.ArrayDataset(tmp_path)
    samples, joined = re.findall(
        r"ConcatArray\(sorted.*?\)\)(?:, samples=True)?\)", str(caught.value)
    )
    evaluate = lambda call: eval(call, {"glob": glob, "ConcatArray": pinfeed.ConcatArray})
    assert_same_bits(np.asarray(evaluate(samples)), np.stack([np.load(path) for path in paths]))
    firsts = [path for path in paths if path.name == paths[0].name]
    assert_same_bits(np.asarray(evaluate(joined)), np.concatenate([np.load(p) for p in firsts]))
    by_name = pinfeed.ArrayDataset({name: tmp_path / f"{name}.npy" for name in names})
    assert list(by_name[0]) == names


RAGGED_FOLDERS = {
    "numbered like parts": [f"part-{rank}" for rank in range(11)],
    "named like samples": ["cat_001", "cat_002", "dog_001"],
}


@pytest.mark.parametrize("how", RAGGED_FOLDERS)
def test_folders_of_ragged_arrays(how, tmp_path):
    names = RAGGED_FOLDERS[how]
    for i, name in enumerate(names):
        pinfeed.write_array(tmp_path / name, [[i] * length for length in range(3)])
    with pytest.raises(ValueError, match=f"has {len(names)} folders {how}; ") as caught:
        pinfeed.ArrayDataset(tmp_path)
    call = str(caught.value).partition("; ")[2].partition(" returns")[0]
    array = pinfeed.ConcatArray(eval(call, {"glob": glob}))
    expected = [[i] * length for i in range(len(names)) for length in range(3)]
    assert [row.tolist() for row in array] == expected
    assert list(pinfeed.ArrayDataset({name: tmp_path / name for name in names})[0]) == names


def test_samples_in_a_npz_file(tmp_path):
    images = random_array((5, 4, 5), np.uint8)
    path = tmp_path / "x.npz"
    np.savez(path, *images)
    words = (
        "has 5 arrays of one shape without names, like samples",
        "dict(np.load(path)) to make each an entry",
    )
    check(lambda: pinfeed.ArrayDataset(path), ValueError, *words)
    assert_same_bits(np.stack([*np.load(path).values()]), images)
    assert len(pinfeed.ArrayDataset(dict(np.load(path)))) == 4
    np.savez(path, images, np.arange(5))
    assert len(pinfeed.ArrayDataset(path)) == 5
    np.savez(path, images, images, images)  # triplets
    assert len(pinfeed.ArrayDataset(path)) == 5


def test_folders_and_splits_that_are_entries(tmp_path):
    for name in ("left/image", "left/depth", "right/image", "right/depth"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / name, np.arange(3))
    assert pinfeed.ArrayDataset(tmp_path)[2]["right"] == {"depth": 2, "image": 2}
    (tmp_path / "splits").mkdir()
    np.save(tmp_path / "splits/split1", np.zeros((3, 2)))
    np.save(tmp_path / "splits/split2", np.arange(3))
    assert pinfeed.ArrayDataset(tmp_path / "splits")[1]["split2"] == 1


def test_folders_of_other_images(tmp_path):
    image = PIL.Image.new("RGB", (4, 4), (1, 2, 3))
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        image.save(tmp_path / name / "0.png")
    words = "got the folder 'cat' of ['0.png']", "torchvision.datasets.ImageFolder(path)"
    check(lambda: pinfeed.ArrayDataset(tmp_path), ValueError, *words)
    dataset = torchvision.datasets.ImageFolder(tmp_path)
    collate = pinfeed.Collate((pinfeed.Image(), None))
    images, labels = next(iter(DataLoader(dataset, 2, collate_fn=collate)))
    assert images.shape == (2, 3, 4, 4)
    assert labels.tolist() == [0, 1]
    words = "is a directory without .npy files; ", "__getitem__ of a Dataset: DataLoader(dataset"
    check(lambda: pinfeed.ArrayDataset(tmp_path / "cat"), ValueError, *words)


def test_folders_of_several_entries_are_not_samples(tmp_path):
    """Their names are not numbered, their sizes differ, or two are of one type."""
    for names in (
        ["left", "right", "depth"],
        ["a0", "b1", "c2"],
        ["rain_2019", "rain_2020", "wind_2019", "wind_2020"],
        ["0", "1"],
    ):
        folder = tmp_path / "-".join(names)
        pinfeed.write_array(folder, ({name: np.zeros((2, 3)) for name in names} for _ in range(4)))
        assert sorted(pinfeed.ArrayDataset(folder)[0]) == sorted(names)
    answers = [{f"answer{i}": [1] * (i + j) for i in range(3)} for j in range(3)]
    pinfeed.write_array(tmp_path / "answers", answers)
    assert list(pinfeed.ArrayDataset(tmp_path / "answers")[0]) == [*answers[0]]


def test_directories(tmp_path):
    samples = [{"image": np.full((2, 2), i), "tokens": [i] * i, "name": str(i)} for i in range(6)]
    parts = [tmp_path / "part-0", tmp_path / "part-1"]
    for part, rows in zip(parts, (samples[:4], samples[4:]), strict=True):
        pinfeed.write_array(part, rows)
    for key in ("tokens", "name"):
        joined = pinfeed.ConcatArray([part / key for part in parts])
        assert [list(joined[i]) for i in range(6)] == [list(sample[key]) for sample in samples]
    words = "part 0 ", "part-0): ", "['image.npy', 'name', 'tokens']; create"
    check(lambda: pinfeed.ConcatArray(parts), ValueError, *words)
    images = pinfeed.ConcatArray([f"{part}/image.npy" for part in parts])
    assert np.array_equal(images, [sample["image"] for sample in samples])
    tokens = [part / "tokens" for part in parts]
    words = "expected a .npy file of one sample, got the directory of", "without samples=True"
    check(lambda: pinfeed.ConcatArray(tokens, samples=True), ValueError, *words)
    (parts[0] / ".hidden").touch()
    rows = list(pinfeed.ArrayDataset(parts[0]))
    assert [row["tokens"].tolist() for row in rows] == [sample["tokens"] for sample in samples[:4]]
    assert {*map(len, rows)} == {3}


def test_arrays_that_are_not_a_list():
    a, b = np.zeros(2), np.ones(3)
    for call, words in (
        (lambda: pinfeed.ConcatArray(a, b), "arrays go into one list: ConcatArray([a, b])"),
        (lambda: pinfeed.ConcatArray([a, b], axis=1), "parts are joined along their first axis"),
        (lambda: pinfeed.ConcatArray([a, b]).lengths, "whose samples have one length"),
    ):
        check(call, TypeError, words)
