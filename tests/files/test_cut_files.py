"""Files that are cut after they were opened: an error that names the file, from every call; no crash."""

import pytest

from programs import run_python

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
