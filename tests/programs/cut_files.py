"""Every call that needs a truncated file must raise; argv: a folder, and the case."""

import copy
import os
import pickle
import sys

import numpy as np
from torch.utils.data import DataLoader, default_collate

from pinfeed import ArrayDataset, Collate, Image, Keep, RaggedArray
from pinfeed.functional import gather, normalize, permute
from pinfeed.samplers import LengthBucketSampler

IMAGES = np.ones((100, 16, 16, 3), np.uint8)


def saved(array):
    np.save("rows.npy", array)
    return np.load("rows.npy", mmap_mode="r")


def dataset(source):
    dataset = ArrayDataset({"image": source, "label": np.arange(100)})
    workers = DataLoader(
        dataset,
        4,
        collate_fn=Collate(),
        num_workers=2,
        prefetch_factor=1,
        persistent_workers=True,
        multiprocessing_context="fork",
        timeout=60,
    )
    assert len(list(workers)) > 0
    pickled = pickle.dumps(dataset)
    os.truncate("rows.npy", 4096)  # the last rows are missing
    last = dataset.__getitems__([0, -1])
    return "rows.npy", [
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


def path():
    saved(IMAGES)
    return dataset("rows.npy")


def ragged(cut):
    RaggedArray(np.ones(50_000), np.arange(50_001)).save("ragged")
    ragged = RaggedArray.open("ragged")
    in_memory = RaggedArray(np.ones(50_000), ragged.offsets)
    private = RaggedArray(*(np.load(f"ragged/{name}.npy", "c") for name in ("values", "offsets")))
    part, pickled = ragged[40_000:], pickle.dumps(ragged)
    rows = ArrayDataset({"x": ragged}).__getitems__([0, -1])
    os.truncate(f"ragged/{cut}.npy", 4096)
    calls = [
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
        calls += [lambda: ragged.lengths, lambda: pickle.dumps(in_memory)]
    return f"ragged/{cut}.npy", calls


def arguments_of_functions():
    array = saved(IMAGES)
    samples, plain = [array[0], array[-1]], np.asarray(array)
    rows = [ArrayDataset(array)[i] for i in (0, -1)]
    os.truncate("rows.npy", 4096)
    return "rows.npy", [
        lambda: gather(array, [0, -1]),
        lambda: normalize(array),
        lambda: permute(array),
        lambda: Collate()(samples),
        lambda: Collate(Image())(samples),
        lambda: normalize(plain),
        lambda: Collate(Image())(rows),
        lambda: Collate()([np.zeros((16, 16, 3), np.uint8), array[-1]]),
    ]


def indices():
    dataset, indices = ArrayDataset(np.arange(5000)), saved(np.arange(5000))
    os.truncate("rows.npy", 0)
    return "rows.npy", [lambda: dataset[indices], lambda: dataset.__getitems__(indices)]


def lengths():
    lengths = saved(np.arange(5000))
    os.truncate("rows.npy", 0)
    return "rows.npy", [
        lambda: LengthBucketSampler(lengths, 4),
        lambda: LengthBucketSampler(lengths[10:20], 4),
    ]


CASES = {
    "a path": path,
    "a memmap": lambda: dataset(saved(IMAGES)),
    "a view of a memmap": lambda: dataset(saved(IMAGES)[:, ::-1]),
    "values": lambda: ragged("values"),
    "offsets": lambda: ragged("offsets"),
    "arguments of functions": arguments_of_functions,
    "indices": indices,
    "lengths": lengths,
}

if __name__ == "__main__":
    os.chdir(sys.argv[1])
    name, calls = CASES[sys.argv[2]]()
    for number, call in enumerate(calls):
        try:
            call()
        except OSError as error:
            if "cut short" not in str(error) or name not in str(error):
                raise
        else:
            raise AssertionError(f"call {number} didn't raise")
