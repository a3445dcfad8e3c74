"""Files that are cut, replaced or deleted after they were opened: an error that names the file; no crash."""

import os
import pickle

import numpy as np
import pytest

import pinfeed
from arrays import assert_same_bits, random_array
from cold_files import FIELDS, bring_to, every_temperature, saved
from programs import run_python

kernels = pytest.mark.kernels


@kernels
@every_temperature
@pytest.mark.parametrize("how", ["deleted", "replaced"])
@pytest.mark.parametrize("kind", ["path", "memmap"])
def test_the_file_that_was_opened_counts(how, kind, temperature, tmp_path):
    array = random_array((50, 30), np.int32)
    path = saved(tmp_path, array)
    dataset = pinfeed.ArrayDataset(path if kind == "path" else np.load(path, mmap_mode="r"))
    bring_to(temperature, dataset, path)
    if how == "deleted":
        path.unlink()
    else:
        os.replace(saved(tmp_path, array + 1), path)
    indices = [7, -1, 0, 7]
    assert_same_bits(pinfeed.Collate()(dataset.__getitems__(indices)).numpy(), array[indices])


@kernels
@every_temperature
@pytest.mark.parametrize("field", ["Stack", "Stack cast", "Image", "Pad", "Jagged"])
@pytest.mark.parametrize("kept", [0, 1, 128, 4096, 20_127])
def test_a_file_cut_short_is_an_error(kept, field, temperature, tmp_path):
    path = saved(tmp_path, random_array((200, 20, 5), np.uint8))  # 128 bytes of header, 20,000
    dataset = pinfeed.ArrayDataset(path)
    bring_to(temperature, dataset, path)
    os.truncate(path, kept)
    with pytest.raises(OSError, match=f"{path.name}.*cut short: it has {kept} bytes, the array"):
        pinfeed.Collate(FIELDS[field])(dataset.__getitems__([5, 199]))


@kernels
@every_temperature
@pytest.mark.parametrize("view", ["windows", "strided", "memoryview", "frombuffer"])
def test_views_that_hide_their_file(view, temperature, tmp_path):
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
    dataset = pinfeed.ArrayDataset(windows)
    bring_to(temperature, dataset, path)
    indices = [3, 99, 0, 3]
    assert_same_bits(
        pinfeed.Collate()(dataset.__getitems__(indices)).numpy(), np.array(windows)[indices]
    )
    assert len(pickle.dumps(dataset)) < 1000
    assert_same_bits(pickle.loads(pickle.dumps(dataset))[7], np.array(windows[7]))
    os.truncate(path, 200)
    with pytest.raises(OSError, match="cut short"):
        pinfeed.Collate()(dataset.__getitems__(indices))
    with pytest.raises(OSError, match="cut short"):
        pinfeed.gather(windows, indices)


BEGIN = """
import copy, os, pickle, sys
import numpy as np
from torch.utils.data import DataLoader, default_collate
from pinfeed import *

os.chdir(sys.argv[1])

def saved(array, path="rows.npy", mode="r"):
    np.save(path, array)
    return np.load(path, mmap_mode=mode)

IMAGES = np.ones((100, 16, 16, 3), np.uint8)
"""

DATASET = """
dataset = ArrayDataset({"image": source, "label": np.arange(100)})
workers = DataLoader(
    dataset, 4, collate_fn=Collate(), num_workers=2, prefetch_factor=1,
    persistent_workers=True, multiprocessing_context="fork", timeout=60,
)
assert len(list(workers)) > 0
pickled = pickle.dumps(dataset)
os.truncate("rows.npy", 4096)  # the last rows are gone
last = dataset.__getitems__([0, -1])
name, ways = "rows.npy", [
    lambda: dataset[-1],
    lambda: list(last),
    lambda: Collate()(last),
    lambda: Collate({"image": Image()})(last),
    lambda: Collate({"image": Keep()})(last),
    lambda: default_collate(last),
    lambda: list(DataLoader(dataset, 4, collate_fn=Collate())),
    lambda: list(workers),
    lambda: pickle.loads(pickled)[-1],
]
"""

RAGGED = """
RaggedArray(np.ones(50_000), np.arange(50_001)).save("ragged")
ragged = RaggedArray.open("ragged")
in_memory = RaggedArray(np.ones(50_000), ragged.offsets)
private = RaggedArray(*(np.load(f"ragged/{name}.npy", "c") for name in ("values", "offsets")))
part, pickled = ragged[40_000:], pickle.dumps(ragged)
rows = ArrayDataset({"x": ragged}).__getitems__([0, -1])
os.truncate(f"ragged/{cut}.npy", 4096)
name, ways = f"ragged/{cut}.npy", [
    lambda: ragged[-1],
    lambda: part[-1],
    lambda: ragged[[0, -1]],
    lambda: list(rows),
    lambda: Collate()(rows),
    lambda: Collate({"x": Keep()})(rows),
    lambda: ragged.save("again"),
    lambda: pickle.loads(pickled),
    lambda: copy.deepcopy(ragged),
    lambda: pickle.dumps(private),
    lambda: copy.copy(ragged)[-1],
]
if cut == "offsets":
    ways += [lambda: ragged.lengths, lambda: pickle.dumps(in_memory)]
"""

# What each opens, cuts and does then.
CASES = {
    "a path": "saved(IMAGES); source = 'rows.npy'" + DATASET,
    "a memmap": "source = saved(IMAGES)" + DATASET,
    "a view of a memmap": "source = saved(IMAGES)[:, ::-1]" + DATASET,
    "values": "cut = 'values'" + RAGGED,
    "offsets": "cut = 'offsets'" + RAGGED,
    "arguments of functions": """
array = saved(IMAGES)
samples, plain = [array[0], array[-1]], np.asarray(array)
rows = [ArrayDataset(array)[i] for i in (0, -1)]
os.truncate("rows.npy", 4096)
name, ways = "rows.npy", [
    lambda: gather(array, [0, -1]),
    lambda: normalize(array),
    lambda: permute(array),
    lambda: Collate()(samples),
    lambda: Collate(Image())(samples),
    lambda: normalize(plain),
    lambda: Collate(Image())(rows),
    lambda: Collate()([np.zeros((16, 16, 3), np.uint8), array[-1]]),
]
""",
    "indices": """
dataset = ArrayDataset(np.arange(5000))
indices = saved(np.arange(5000))
os.truncate("rows.npy", 0)
name, ways = "rows.npy", [
    lambda: dataset[indices],
    lambda: dataset.__getitems__(indices),
]
""",
    "lengths": """
lengths = saved(np.arange(5000))
os.truncate("rows.npy", 0)
name, ways = "rows.npy", [
    lambda: LengthBucketSampler(lengths, 4), lambda: LengthBucketSampler(lengths[10:20], 4)
]
""",
}

END = """
for number, way in enumerate(ways):
    try:
        way()
    except OSError as error:
        assert "cut short" in str(error) and name in str(error), error
    else:
        raise AssertionError(f"way {number} was no error")
"""


@pytest.mark.parametrize("case", CASES)
def test_every_call_is_an_error(case, tmp_path):
    run_python(BEGIN + CASES[case] + END, str(tmp_path))
