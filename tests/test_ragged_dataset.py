"""RaggedArray as a leaf of ArrayDataset: with any structure, field, collate function and worker."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, default_collate

import pinfeed
from pinfeed.sources.ragged import RaggedArray
from samples import STRUCTURES, assert_same

# torch says once per process that it can't mark a tensor over a read-only array as such.
ignore_read_only = pytest.mark.filterwarnings("ignore:The given NumPy array is not writ")

LENGTH = 11
OFFSETS = np.array([0, 3, 3, 4, 9, 10, 12, 12, 20, 21, 30, 33])


def saved(folder: Path) -> RaggedArray:
    RAGGED["ndarray"](folder).save(folder / "ragged")
    return RaggedArray.open(folder / "ragged")


RAGGED: dict[str, Callable[[Path], RaggedArray]] = {
    "ndarray": lambda _: RaggedArray(np.arange(33), OFFSETS),
    "pairs": lambda _: RaggedArray(np.arange(66).reshape(33, 2), OFFSETS),
    "files": saved,
    "slice": lambda _: RaggedArray(np.arange(50), np.array([0, 5, *OFFSETS + 6, 50]))[2:-1],
    "tensor": lambda _: RaggedArray(torch.arange(33), torch.from_numpy(OFFSETS)),
    "bfloat16 tensor": lambda _: RaggedArray(torch.arange(33).bfloat16(), OFFSETS),
}


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", RAGGED)
def test_ragged_leaves(structure: str, kind: str, tmp_path: Path) -> None:
    build, ragged, numbers = STRUCTURES[structure], RAGGED[kind](tmp_path), np.arange(LENGTH)
    dataset = pinfeed.ArrayDataset(build(ragged, numbers))
    assert len(dataset) == LENGTH
    for i in (0, 1, LENGTH - 1, -1, -LENGTH):
        assert_same(dataset[i], build(ragged[i], numbers[i]))
    expected = [build(ragged[i], numbers[i]) for i in (5, LENGTH - 2, 5)]
    rows = dataset.__getitems__([5, -2, 5])
    assert isinstance(rows, pinfeed.Rows)
    assert_same(list(rows), expected)
    assert_same(list(pickle.loads(pickle.dumps(rows))), expected)
    keep = pinfeed.Collate(build(pinfeed.Keep(), pinfeed.Keep()))
    assert_same(keep(rows), keep(expected))


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
@pytest.mark.parametrize("kind", ["ndarray", "files", "tensor"])
def test_ragged_leaves_in_a_loader(kind: str, method: str | None, tmp_path: Path) -> None:
    ragged = RAGGED[kind](tmp_path)
    bare = isinstance(ragged.values, torch.Tensor)
    dataset = pinfeed.ArrayDataset(ragged if bare else (ragged, ragged.lengths))
    collate = functools.partial(pad_sequence, batch_first=True) if bare else list
    loader = DataLoader(
        dataset,
        batch_size=4,
        collate_fn=collate,
        num_workers=0 if method is None else 2,
        multiprocessing_context=method,
    )
    samples = list(dataset)
    assert_same(list(loader), [collate(samples[i : i + 4]) for i in (0, 4, 8)])


@ignore_read_only
@pytest.mark.parametrize("kind", RAGGED)
def test_ragged_samples_of_one_length_stack(kind: str, tmp_path: Path) -> None:
    ragged = RAGGED[kind](tmp_path)
    for source in (ragged, {"x": ragged}):
        rows = pinfeed.ArrayDataset(source).__getitems__([4, 2, 8])
        assert_same(pinfeed.Collate()(rows), default_collate(rows))


@pytest.mark.parametrize("kind", RAGGED)
def test_ragged_samples_of_different_lengths_do_not_stack(kind: str, tmp_path: Path) -> None:
    rows = pinfeed.ArrayDataset({"x": RAGGED[kind](tmp_path)}).__getitems__([4, 2, 0])
    message = r"leaf \['x'\] of sample 2 of the batch \(index 0\): expected length 1 .*, got 3; Pad"
    with pytest.raises(ValueError, match=message):
        pinfeed.Collate()(rows)


def test_ragged_images() -> None:
    photos = np.arange(10 * 4 * 3, dtype=np.uint8).reshape(10, 4, 3)  # heights: 3, 3, 4
    rows = pinfeed.ArrayDataset(RaggedArray(photos, np.array([0, 3, 6, 10]))).__getitems__
    collate = pinfeed.Collate(pinfeed.Image())
    assert_same(collate(rows([0, 1])), collate([photos[:3], photos[3:6]]))
    with pytest.raises(ValueError, match="of sample 1"):
        collate(rows([0, 2]))
