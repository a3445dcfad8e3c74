"""SharedList: equal records in every process, and nothing left behind."""

import copy
import gc
import multiprocessing
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset

from pinfeed import ArrayDataset, Collate, Keep, SharedList
from programs import run_program
from samples import assert_same

RECORDS = [
    {"file": "a.jpg", "label": 3, "box": (0.5, None)},
    "text ü",
    b"\0bytes",
    None,
    [1, [2, {3}]],
    np.arange(6).reshape(2, 3)[:, ::2],
    torch.arange(4, dtype=torch.bfloat16),
    Path("a/b"),
    "x" * 1_000_000,
]


@pytest.mark.parametrize("count", [0, 1, len(RECORDS)])
@pytest.mark.parametrize("kind", [list, iter, tuple, lambda records: (r for r in records)])
def test_records_are_unchanged(count, kind):
    shared = SharedList(kind(RECORDS[:count]))
    assert len(shared) == count
    assert_same(list(shared), RECORDS[:count])
    assert_same(list(reversed(shared)), RECORDS[:count][::-1])
    for again in (pickle.loads(pickle.dumps(shared)), copy.copy(shared), copy.deepcopy(shared)):
        assert_same(list(again), RECORDS[:count])


@pytest.mark.parametrize(
    "part", [slice(2), slice(-3, None), slice(None, None, -1), slice(5, 2), slice(7, 0, -3)]
)
def test_parts(part):
    shared = SharedList(range(10))
    assert list(shared[part]) == [*range(10)][part]
    assert list(shared[part][::-1][:2]) == [*range(10)][part][::-1][:2]
    alone = pickle.loads(pickle.dumps(shared[part]))
    assert list(alone) == [*range(10)][part]
    assert alone._file is not shared._file


def test_it_is_a_sequence():
    shared = SharedList([5, 6, 5])
    assert 6 in shared
    assert 7 not in shared
    assert shared.count(5) == 2
    assert shared.index(6) == 1
    assert shared[np.int64(-2)] == shared[torch.tensor(1)] == 6
    assert shared != [5, 6, 5]
    assert repr(shared) == f"SharedList(3 records, {3 * len(pickle.dumps(5))} bytes)"
    with pytest.raises(TypeError):
        shared[0] = 1


def test_each_access_returns_a_new_record():
    shared = SharedList([{"x": [1]}])
    shared[0]["x"].append(2)
    assert shared[0] == {"x": [1]}


class Annotations(SharedList):
    """A subclass with an attribute and its own indexing."""

    def __init__(self, records, folder):
        super().__init__(records)
        self.folder = folder

    def __getitem__(self, index):
        record = super().__getitem__(index)
        return record if isinstance(index, slice) else f"{self.folder}/{record}"


def test_subclasses():
    shared = Annotations(["a", "b", "c"], "folder")
    for again in (pickle.loads(pickle.dumps(shared)), copy.deepcopy(shared), shared[:]):
        assert (type(again), [*again]) == (Annotations, ["folder/a", "folder/b", "folder/c"])


class OldSequence:
    def __getitem__(self, index):
        return range(3)[index]


@pytest.mark.parametrize(
    "records", [OldSequence(), np.arange(3), {0, 1, 2}, {0: 5, 1: 5, 2: 5}.keys(), map(int, "012")]
)
def test_any_iterable(records):
    assert list(SharedList(records)) == [0, 1, 2]


def test_tensors_that_view_a_larger_one():
    whole = torch.arange(1_000_000)
    shared = SharedList([{"x": part} for part in whole.split(1000)])
    assert len(shared._bytes) < 2 * whole.nbytes
    assert_same(shared[7]["x"], whole[7000:8000])


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([1, 2, lambda: 0], "^SharedList: record 2: expected a picklable object, got function; "),
        (iter([[open], [(i for i in ())]]), "^SharedList: record 1: .* got list; .*generator"),
        ({"a": 1}, r"^SharedList: records: expected an iterable of records, got dict; pass list\(records.values"),
        ("path.txt", r"^SharedList: records: .* got str; pass .* or \[records\]$"),
        (3, r"^SharedList: records: .* got int; pass .* or \[records\]$"),
        (torch.tensor(3), r"^SharedList: records: .* got Tensor; pass .* or \[records\]$"),
        (type("Frame", (), {"columns": ["x"]})(), "^SharedList: records: .* got Frame; pass its rows as dicts$"),
    ],
)  # fmt: skip
def test_inputs_that_are_not_lists_of_records(records, message):
    with pytest.raises(TypeError, match=message):
        SharedList(records)


def test_errors_of_an_iterable_name_the_record():
    def broken():
        yield 1
        raise KeyError("mine")

    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyError, match="mine") as caught:
        SharedList(broken())
    assert caught.value.__notes__ == ["SharedList: raised at record 1"]
    del caught
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (3, IndexError, "^SharedList: index 3 is out of range for 3 records$"),
        (-4, IndexError, "^SharedList: index -4 is out of range for 3 records$"),
        ("file", TypeError, "^SharedList: expected an integer or a slice, got str"),
        ([0, 1], TypeError, r"got list; \[shared\[i\] for i in indices\] returns several$"),
    ],
)
def test_bad_indices(index, error, message):
    with pytest.raises(error, match=message):
        SharedList("abc" for _ in range(3))[index]


def test_as_an_entry_of_samples():
    records = [{"file": f"{i}.jpg", "label": i} for i in range(8)]
    dataset = ArrayDataset({"x": np.arange(8), "record": SharedList(records)})
    assert_same(dataset[3], {"x": np.int64(3), "record": records[3]})
    batch = Collate({"record": Keep()})(dataset.select([5, 2]).__getitems__([1, 0]))
    assert_same(batch, {"x": torch.tensor([2, 5]), "record": [records[2], records[5]]})
    alone = ArrayDataset(SharedList(records))
    expected = {"file": ["1.jpg", "7.jpg"], "label": torch.tensor([1, 7])}
    assert_same(Collate()(alone.__getitems__([1, 7])), expected)


def test_nothing_is_left_behind():
    descriptors, names = len(os.listdir("/proc/self/fd")), {*os.listdir("/dev/shm")}
    lists = [SharedList(range(100)) for _ in range(20)]
    assert {*os.listdir("/dev/shm")} <= names
    last = lists[3][1:]
    del lists
    gc.collect()
    assert last[0] == 1
    del last
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def read(records, first, ready, go, results):
    ready.set()
    go.wait(60)
    results.put(([*records], records[1:][0], first))


def reads_after(records, method):
    """A child reads the list after its parent has dropped it, and after another child was killed."""
    jobs = multiprocessing.get_context(method)
    results, first = jobs.Queue(), records[0]
    for is_killed in (True, False):
        ready, go = jobs.Event(), jobs.Event()
        child = jobs.Process(target=read, args=(records, first, ready, go, results))
        child.start()
        assert ready.wait(120)
        if is_killed:
            child.kill()
            child.join()
        assert records[0] == first
    del records
    gc.collect()
    go.set()
    result = results.get(timeout=120)
    child.join()
    return result


def test_forked_children():
    assert reads_after(SharedList(["a", "b", 3]), "fork") == (["a", "b", 3], "b", "a")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_that_are_not_forked(method):
    part = SharedList(["no", "a", "b", 3])[1:]
    assert reads_after(part, method) == (["a", "b", 3], "b", "a")
    part = Annotations(["no", "a", "b"], "folder")[1:]
    assert reads_after(part, method) == (["folder/a", "folder/b"], "folder/b", "folder/a")


def read_many(lists, datasets, results):
    results.put(([shared[0] for shared in lists], [int(data[0][0]) for data in datasets.datasets]))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_many_lists_for_one_child(method):
    """A forkserver passes at most 256 descriptors."""
    lists = [SharedList([i]) for i in range(300)]
    arrays = [ArrayDataset(np.full((2, 2**19), i, np.uint16)) for i in range(270)]
    jobs = multiprocessing.get_context(method)
    for _ in range(2):
        results = jobs.Queue()
        child = jobs.Process(target=read_many, args=(lists, ConcatDataset(arrays), results))
        child.start()
        assert results.get(timeout=120) == ([*range(300)], [*range(270)])
        child.join()
        assert child.exitcode == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_memory(method):
    """After an epoch, four processes hold four copies of a list, or half of that if forked."""
    assert float(run_program("memory_of_workers", method, "SharedList", "", fresh=True)) < 1.1


@pytest.mark.slow
def test_memory_of_a_list():
    assert float(run_program("memory_of_workers", "fork", "list", "", fresh=True)) > 1.8
