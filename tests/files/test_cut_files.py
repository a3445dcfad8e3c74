"""Files that are truncated, replaced or deleted after they were opened raise, and name the file."""

import os
import pickle

import numpy as np
import pytest

import pinfeed
from arrays import assert_same_bits, random_array
from cold_files import FIELDS, bring_to, every_temperature, saved
from pinfeed import ArrayDataset, Collate
from programs import run_program

kernels = pytest.mark.kernels


@kernels
@every_temperature
@pytest.mark.parametrize("how", ["deleted", "replaced"])
@pytest.mark.parametrize("kind", ["path", "memmap"])
def test_an_opened_file_is_not_replaced_by_another(how, kind, temperature, tmp_path):
    array = random_array((50, 30), np.int32)
    path = saved(tmp_path, array)
    dataset = ArrayDataset(path if kind == "path" else np.load(path, mmap_mode="r"))
    bring_to(temperature, dataset, path)
    if how == "deleted":
        path.unlink()
    else:
        os.replace(saved(tmp_path, array + 1), path)
    indices = [7, -1, 0, 7]
    assert_same_bits(Collate()(dataset.__getitems__(indices)).numpy(), array[indices])


@kernels
@every_temperature
@pytest.mark.parametrize("field", ["Stack", "Stack cast", "Image", "Pad", "Jagged"])
@pytest.mark.parametrize("size", [0, 1, 128, 4096, 20_127])
def test_a_truncated_file_raises(size, field, temperature, tmp_path):
    path = saved(tmp_path, random_array((200, 20, 5), np.uint8))  # 128 bytes of header, 20,000
    dataset = ArrayDataset(path)
    bring_to(temperature, dataset, path)
    os.truncate(path, size)
    with pytest.raises(OSError, match=f"{path.name}.*cut short: it has {size} bytes, but its"):
        Collate(FIELDS[field])(dataset.__getitems__([5, 199]))


@kernels
@every_temperature
@pytest.mark.parametrize("view", ["windows", "strided", "memoryview", "frombuffer"])
def test_views_without_a_file_name(view, temperature, tmp_path):
    path = saved(tmp_path, random_array((500,), np.int64))
    mapped = np.load(path, mmap_mode="r")
    if view == "windows":
        windows = np.lib.stride_tricks.sliding_window_view(mapped, 8)
    elif view == "memoryview":
        windows = np.asarray(memoryview(mapped)[20:420]).reshape(100, 4)
    elif view == "frombuffer":
        windows = np.frombuffer(memoryview(mapped[20:420]), np.int32).reshape(100, 8)
    else:
        windows = np.lib.stride_tricks.as_strided(mapped, (100, 4), (32, 8))
    dataset = ArrayDataset(windows)
    bring_to(temperature, dataset, path)
    indices = [3, 99, 0, 3]
    assert_same_bits(Collate()(dataset.__getitems__(indices)).numpy(), np.array(windows)[indices])
    assert len(pickle.dumps(dataset)) < 1000
    assert_same_bits(pickle.loads(pickle.dumps(dataset))[7], np.array(windows[7]))
    os.truncate(path, 200)
    with pytest.raises(OSError, match="cut short"):
        Collate()(dataset.__getitems__(indices))
    with pytest.raises(OSError, match="cut short"):
        pinfeed.functional.gather(windows, indices)


CASES = [
    "a path",
    "a memmap",
    "a view of a memmap",
    "values",
    "offsets",
    "arguments of functions",
    "indices",
    "lengths",
]


@pytest.mark.parametrize("case", CASES)
def test_every_call_raises(case, tmp_path):
    run_program("cut_files", str(tmp_path), case)
