"""Rows in files: read directly if uncached, accessed through the map if cached."""

import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
from arrays import NUMPY_DTYPES, assert_same_bits, random_array
from cold_files import FIELDS, HOT, bring_to, drop, every_temperature, open_files, saved
from programs import run_program
from samples import assert_same

pytestmark = pytest.mark.kernels


# torch warns once per process about tensors over read-only arrays.
ignore_read_only = pytest.mark.filterwarnings("ignore:The given NumPy array is not writ")


def test_parts_with_cached_rows_are_mapped(tmp_path):
    array = random_array((1000, 50), np.float64)
    path = saved(tmp_path, array)
    dataset, collate = pinfeed.ArrayDataset(pinfeed.ConcatArray([path])), pinfeed.Collate()
    for batch in range(8):
        assert_same_bits(collate(dataset.__getitems__(range(75))).numpy(), array[:75])
        mapped = path.name in Path("/proc/self/maps").read_text(errors="surrogateescape")
        assert mapped == (batch >= 4)  # after 256 cached rows


@every_temperature
@ignore_read_only
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kind", ["path", "memmap"])
def test_every_field(field, kind, temperature, tmp_path):
    array = random_array((1000, 5, 7, 3), np.uint8)
    path = saved(tmp_path, array)
    dataset = pinfeed.ArrayDataset({"x": path if kind == "path" else np.load(path, "r")})
    bring_to(temperature, dataset, path)
    collate = pinfeed.Collate({"x": FIELDS[field]})
    memory = pinfeed.ArrayDataset({"x": array})
    rng = np.random.default_rng(0)
    for indices in (rng.integers(-1000, 1000, 700), np.arange(5, 300), [3], [999, 999, 0, 1, 2]):
        assert_same(collate(dataset.__getitems__(indices)), collate(memory.__getitems__(indices)))


# Views of the memmap of an array of shape (40, 6, 5): with gaps, mirrored, transposed.
VIEWS = {
    "whole": lambda a: a,
    "some rows": lambda a: a[3:37],
    "backwards": lambda a: a[::-1],
    "stepped": lambda a: a[1::3],
    "crop": lambda a: a[:, 1:-1, 2:],
    "mirrored crop": lambda a: a[:, ::-1, 3:0:-1],
    "column": lambda a: a[:, :, 2],
    "one number a row": lambda a: a[:, 2, 3],
    "across": lambda a: a.transpose(1, 0, 2),
    "far across": lambda a: a.transpose(2, 1, 0),
    "broadcast": lambda a: np.broadcast_to(a[:, :1], (40, 6, 5)),
    "no items": lambda a: a[:, :0],
    "new dtype": lambda a: a.view(np.uint8),
    "bytes in between": lambda a: a.view(np.uint8)[:, :, 1:-1],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    yield folder
    shutil.rmtree(folder)


@every_temperature
@given(data=st.data())
@pytest.mark.parametrize("view", VIEWS)
def test_views(view, temperature, folder, data):
    dtype = data.draw(st.sampled_from(NUMPY_DTYPES))
    order = (
        data.draw(st.sampled_from("CF")) if view not in ("new dtype", "bytes in between") else "C"
    )
    path = folder / f"{np.dtype(dtype).name}-{order}.npy"
    if not path.exists():
        np.save(path, np.asarray(random_array((40, 6, 5), dtype), order=order))
    expected = VIEWS[view](np.load(path))
    dataset = pinfeed.ArrayDataset(VIEWS[view](np.load(path, mmap_mode="r")))
    bring_to(temperature, dataset, path)
    count = len(expected)
    indices = data.draw(st.lists(st.integers(-count, count - 1), min_size=1, max_size=60))
    assert_same_bits(pinfeed.Collate()(dataset.__getitems__(indices)).numpy(), expected[indices])


@every_temperature
def test_ragged_values_are_read_directly_too(temperature, tmp_path):
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 40, 500)
    ragged = pinfeed.RaggedArray.from_sequences([rng.integers(0, 99, n) for n in lengths])
    ragged.save(tmp_path / "ragged")
    files = pinfeed.ArrayDataset(pinfeed.RaggedArray.open(tmp_path / "ragged"))
    memory = pinfeed.ArrayDataset(ragged)
    if temperature == "hot":
        pinfeed.Collate(pinfeed.Jagged())(files.__getitems__([0] * HOT))
    elif temperature == "cold":
        drop(tmp_path / "ragged" / "values.npy")
    for field in (pinfeed.Pad(mask=True), pinfeed.Jagged(), pinfeed.Pad(max_length=5, side="left")):
        collate, indices = pinfeed.Collate(field), rng.integers(0, 500, 400)
        assert_same(collate(files.__getitems__(indices)), collate(memory.__getitems__(indices)))


@every_temperature
def test_writes_through_the_memmap_are_visible(temperature, tmp_path):
    path = saved(tmp_path, np.zeros((10, 3)))
    memmap = np.load(path, mmap_mode="r+")
    dataset = pinfeed.ArrayDataset(memmap)
    bring_to(temperature, dataset, path)
    memmap[4] = 7
    assert pinfeed.Collate()(dataset.__getitems__([4, 3])).tolist() == [[7, 7, 7], [0, 0, 0]]


def test_changes_of_a_copy_on_write_map_are_visible(tmp_path):
    memmap = np.load(saved(tmp_path, np.zeros((10, 3))), mmap_mode="c")
    memmap[4] = 7
    dataset = pinfeed.ArrayDataset(memmap)
    assert pinfeed.Collate()(dataset.__getitems__([4]))[0].tolist() == [7, 7, 7]


def test_unrequested_rows_stay_on_disk(tmp_path):
    path = tmp_path / "x.npy"
    mapped = np.lib.format.open_memmap(path, "w+", np.uint8, (64, 1 << 20))
    mapped[:] = 1
    mapped.flush()
    del mapped
    drop(path)
    printed = run_program("unrequested_rows", str(path)).strip()
    if printed not in ("False", "True"):
        pytest.skip(printed)
    assert printed == "False"


def test_a_view_without_items_that_begins_after_the_file(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 0)))
    view = np.load(tmp_path / "x.npy", mmap_mode="r")[2:]
    batch = pinfeed.Collate()(pinfeed.ArrayDataset(view).__getitems__([0, 2]))
    assert batch.shape == (2, 0)


def test_file_names_that_are_not_utf_8(tmp_path):
    path = tmp_path / os.fsdecode(b"\xff.npy")
    array = random_array((20, 3), np.int16)
    np.save(path, array)
    mapped = np.load(path, mmap_mode="r")
    for entry in (path, mapped, pinfeed.ConcatArray([path, path])):
        dataset = pickle.loads(pickle.dumps(pinfeed.ArrayDataset(entry)))
        assert_same_bits(pinfeed.Collate()(dataset.__getitems__([7])).numpy(), array[7:8])
    os.truncate(path, 200)
    with pytest.raises(OSError, match="was cut short: it has 200 bytes") as raised:
        pinfeed.Collate()(dataset.__getitems__([19]))
    assert str(raised.value).startswith(str(path))
    np.save(path, array.astype(">i2"))
    for open_path in (pinfeed.ArrayDataset, lambda path: pinfeed.ConcatArray([path])):
        with pytest.raises(TypeError, match=r"\\udcff\.npy.*: expected the machine's byte order"):
            open_path(path)


@every_temperature
def test_datasets_close_their_files(temperature, tmp_path):
    path = saved(tmp_path, random_array((1000, 50), np.float64))
    for _ in range(5):
        dataset = pinfeed.ArrayDataset((path, np.load(path, mmap_mode="r")))
        bring_to(temperature, dataset, path)
        pinfeed.Collate()(dataset.__getitems__([1, 2]))
        assert open_files().count(str(path)) > 0
    del dataset
    assert open_files().count(str(path)) == 0
    with open("/proc/self/maps", errors="surrogateescape") as maps:
        assert path.name not in maps.read()
