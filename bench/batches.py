"""The fixed cost of a batch, and batches of alternating sizes."""

from functools import partial

import numpy as np
import torch
from torch.utils.data import default_collate

import pinfeed
from bench.data import empty_caches, zero_if
from bench.harness import compare, other, ours, workload
from bench.targets import DISTURBED, at_least, at_most

KINDS = [
    f"{count} {kind}" for kind in ("tensors", "ndarrays", "ints", "rows") for count in (8, 256)
]
CALLS = "four entries are four calls and four tensors, 7 µs each"
COLD, CODE = (
    "8 rows, nothing in the CPU's caches",
    "Python's and torch's code and objects are cold, not the rows",
)


def columns(count):
    """Returns arrays of four kinds."""
    rng = np.random.default_rng(0)
    images, features = rng.random((count, 3, 32, 32), np.float32), rng.random((count, 16))
    labels, weights = rng.integers(0, 1000, count), rng.random(count)
    return {"image": images, "features": features, "label": labels, "weight": weights}


def samples_of(kind):
    """Returns samples of four entries, or ints."""
    count, kind = int(kind.split()[0]), kind.split()[1]
    arrays = columns(count)
    if kind == "ints":
        return arrays["label"].tolist()
    if kind == "rows":
        return pinfeed.ArrayDataset(arrays).__getitems__(list(range(count)))
    array = torch.tensor if kind == "tensors" else np.array
    entries = {"image": array, "features": array, "label": int, "weight": float}
    return [{key: make(arrays[key][i]) for key, make in entries.items()} for i in range(count)]


@workload(
    *(
        at_least(1, f"`default_collate`, {kind}", f"`Collate()`, {kind}", why=(0.86, DISTURBED))
        for kind in KINDS
    )
)
def small_batches():
    """Small batches of samples with four entries, or of ints."""
    alternatives = []
    for kind in KINDS:
        samples = samples_of(kind)
        about = {"expected": default_collate(samples), "job": kind}
        alternatives.append(
            ours(f"`Collate()`, {kind}", partial(pinfeed.Collate(), samples), **about)
        )
        run = partial(default_collate, samples)
        alternatives.append(other(f"`default_collate`, {kind}", run, **about))
    return alternatives


@workload(
    at_most(25, "8 rows", unit="µs", why=(38, CALLS)),
    at_most(60, COLD, unit="µs", why=(300, CODE)),
    at_most(1.2, "256 rows of a tensor", "256 rows of an ndarray"),
)
def rows():
    """Rows of an ArrayDataset."""
    dataset, collate, arrays = pinfeed.ArrayDataset(columns(1000)), pinfeed.Collate(), columns(1000)
    table = np.random.default_rng(0).random((10_000, 16), np.float32)
    tensor, indices = torch.from_numpy(table), np.random.default_rng(1).integers(0, 10_000, 256)
    eight, few = list(range(100, 108)), {"job": "8 rows of four entries"}
    few["expected"] = {key: array[100:108] for key, array in arrays.items()}
    cold = few | {"prepare": empty_caches, "job": f"{few['job']}, nothing in the CPU's caches"}
    many = {"expected": table[indices], "job": "256 rows of one array"}

    def of_rows():
        return collate(dataset.__getitems__(eight))

    def of(source):
        one = pinfeed.ArrayDataset(source)
        return lambda: collate(one.__getitems__(indices))

    return compare(
        ours("8 rows", of_rows, **few),
        ours(COLD, of_rows, **cold),
        ours("256 rows of an ndarray", of(table), **many),
        ours("256 rows of a tensor", of(tensor), **many),
        other("torch `tensor[indices]`", lambda: tensor[torch.from_numpy(indices)], **many),
        other("NumPy `array[indices]`", lambda: table[indices], **many),
    )


STACKED = "both call torch.stack"
TURNS = (
    "`pad` of 1 MB and of 31 MB",
    "two loaders, of 39 MB and of 14 MB",
    "one batch of entries of 39 MB, 5 MB and 1 MB",
    "`pad` of 5 to 42 MB, 16 lengths",
    "lists of tensors of 12 KB beside a loader",
)


@workload(
    *(at_most(16, name, unit="page faults") for name in TURNS),
    at_least(1, "`default_collate` of lists", "lists of tensors", why=(0.85, STACKED)),
)
def mixtures():
    """Batches of alternating sizes, each dropped before the next."""
    photos, small = np.zeros((64, 224, 224, 3), np.uint8), [*torch.rand(64, 3, 32, 32)]
    tokens = pinfeed.RaggedArray.from_sequences([np.arange(2_000)] * 64)
    entries = {"image": photos, "features": np.zeros((64, 20_000), np.float32), "tokens": tokens}
    fields = {"image": pinfeed.Image(), "features": None, "tokens": pinfeed.Pad()}

    def padding(*lengths):
        batches = [[np.ones((length, 512), np.float32)] * 64 for length in lengths]
        return lambda: [pinfeed.functional.pad(batch)[0].shape[1] for batch in batches]

    def loading(source, field, *counts):
        dataset, collate = pinfeed.ArrayDataset(source), pinfeed.Collate(field)
        return lambda: [len(collate(dataset.__getitems__(np.arange(n)))) for n in counts]

    def turns(name, make, *numbers):
        """Verifies the sizes of the batches."""
        is_right = lambda sizes: zero_if(sizes == [*numbers])
        return ours(name, make(*numbers), job=name, expected=is_right)

    many = np.random.default_rng(0).integers(40, 320, 16).tolist()
    images = partial(loading, photos, pinfeed.Image())
    beside = {"expected": torch.stack(small), "prepare": images(64), "job": TURNS[4]}
    return compare(
        turns(TURNS[0], padding, 8, 240),
        turns(TURNS[1], images, 64, 24),
        turns(TURNS[2], lambda keys: loading(entries, fields, 64), 3),
        turns(TURNS[3], padding, *many),
        ours(TURNS[4], partial(pinfeed.Collate(), small), **beside),
        other("`default_collate` of lists", partial(default_collate, small), **beside),
    )
