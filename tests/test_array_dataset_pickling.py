"""ArrayDataset: what travels to other processes."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pinfeed
from array_sources import (
    ALL,
    IN_FILES,
    npy,
    raw_memmap,
    read_only,
    values,
)
from samples import assert_same


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
    dataset = pinfeed.ArrayDataset(path)
    copy = pickle.loads(pickle.dumps(dataset))
    batch = pinfeed.Collate()(copy.__getitems__([0, -1]))
    assert batch.shape == (2, 50_000)
    assert not batch.any()
    assert resident_bytes() - before < 64e6


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
