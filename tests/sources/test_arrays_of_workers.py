"""Arrays in memory that workers map without being forked: contents, independence, memory."""

import gc
import multiprocessing
import os
import pickle

import numpy as np
import pytest
import torch

from pinfeed import ArrayDataset, Collate, ConcatArray, RaggedArray
from pinfeed.sources.source import ArraySource
from programs import run_program
from samples import assert_same

COUNT, WIDTH = 300, 1000
FLOATS = np.random.default_rng(0).random((COUNT, WIDTH))
ENDS = np.arange(COUNT + 1) * WIDTH


def read_only(array):
    array.flags.writeable = False
    return array


def ragged(array):
    return RaggedArray(array.reshape(-1).copy(), np.arange(len(array) + 1) * WIDTH)


#: Types of data; each call creates a new array without other references.
MAKERS = {
    "float64": lambda: FLOATS.copy(),
    "Fortran order": lambda: np.asfortranarray(FLOATS),
    "strides": lambda: np.repeat(FLOATS, 2, axis=1)[::-1, ::2],
    "read-only": lambda: read_only(FLOATS.copy()),
    "NaN": lambda: np.where(FLOATS < 0.5, np.nan, FLOATS),
    "complex": lambda: FLOATS + 1j,
    "float16": lambda: FLOATS.repeat(3, axis=1).astype(np.float16),
    "small": lambda: np.arange(COUNT)[:, None],
    "empty rows": lambda: np.empty((COUNT, 0)),
    "a broadcast": lambda: np.broadcast_to(FLOATS[:1], FLOATS.shape),
    "a tensor": lambda: torch.from_numpy(FLOATS.copy()),
    "selected": lambda: FLOATS.copy(),
    "ragged": lambda: ragged(FLOATS),
    "a part of ragged": lambda: ragged(np.tile(FLOATS, (3, 1)))[COUNT : 2 * COUNT],
    "pieces": lambda: RaggedArray(FLOATS.reshape(-1).copy(), np.array([0, FLOATS.size])).split(WIDTH),
    "overlapping pieces": lambda: ragged(FLOATS).split(WIDTH, 7),
    "offsets of torch": lambda: RaggedArray(FLOATS.reshape(-1).copy(), torch.from_numpy(ENDS.copy())),
    "strings": lambda: RaggedArray.from_strings(f"{i}" * 2000 for i in range(COUNT)),
    "parts": lambda: ConcatArray([part.copy() for part in np.array_split(FLOATS, 270)]),
    "ragged parts": lambda: ConcatArray([ragged(part) for part in np.array_split(FLOATS, 270)]),
}  # fmt: skip


def datasets():
    sources = {name: ArrayDataset({"x": make()}) for name, make in MAKERS.items()}
    return sources | {"selected": sources["selected"].select(range(COUNT)[::-1])}


def contents(dataset):
    rows = dataset.__getitems__([7, 0, COUNT - 1])
    lengths = {len(sample["x"]) for sample in rows}
    return [*rows, Collate()(rows) if len(lengths) == 1 else None]


def child(received, connection):
    connection.send_bytes(pickle.dumps({name: contents(received[name]) for name in received}))
    for name in ("float64", "ragged", "parts"):  # a copy of its own
        received[name][0]["x"][:] = -1
    connection.recv()
    connection.send_bytes(pickle.dumps((received["NaN"][1]["x"], received["parts"][0]["x"])))


def check_children(method):
    sent, expected = datasets(), datasets()
    for number in range(2):
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context(method).Process(target=child, args=(sent, there))
        process.start()
        there.close()
        assert here.poll(120)
        actual = pickle.loads(here.recv_bytes())
        for name, dataset in expected.items():
            assert_same(actual[name], contents(dataset))
            assert_same(contents(sent[name]), contents(dataset))
        # Running processes keep their contents; later ones get the changes since.
        before = expected["NaN"][1]["x"].copy()
        for each in (sent, expected):
            for name in ("float64", "NaN", "strides"):
                each[name][1]["x"][:] = number
            each["float64"][7]["x"][:] = number
        here.send(None)
        assert_same(pickle.loads(here.recv_bytes()), (before, np.full(WIDTH, -1.0)))
        process.join()
        assert process.exitcode == 0
    flags = [sent[name]._sources["x"].array.flags.writeable for name in ("float64", "read-only")]
    assert flags == [True, False]
    descriptors = len(os.listdir("/proc/self/fd"))
    del sent
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < descriptors


def test_children_of_a_forkserver():
    check_children("forkserver")


@pytest.mark.slow
def test_spawned_children():
    check_children("spawn")


def test_ordinary_pickles_are_copies():
    for name, dataset in datasets().items():
        copied = pickle.loads(pickle.dumps(dataset))
        assert_same(contents(copied), contents(dataset))
        source = copied._sources["x"]
        assert not isinstance(source, ArraySource) or source._shared is None, name


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["array", "dict", "tensor", "select", "concat", "ragged", "strings", "table"]
)
def test_memory_of_spawned_workers(kind):
    """Three workers with a copy each would hold four times the data."""
    if kind == "table":
        pytest.importorskip("pyarrow")
    result = float(run_program("memory_of_workers", "spawn", kind, "", fresh=True, timeout=300))
    assert result < (0.3 if kind == "table" else 1.6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_memory_of_an_array_with_other_references(method):
    result = run_program("memory_of_workers", method, "array", "kept", fresh=True, timeout=300)
    assert float(result) < 2.6
