"""Batches from DataLoader workers, in memory that the trainer has mapped already.

Loaders have a timeout, so that nothing hangs. `test_workers.py` compares the batches themselves.
"""

from __future__ import annotations

import gc
import re
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.multiprocessing import Queue
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import pinfeed
from pinfeed.__main__ import facts
from pinfeed.memory import trainer, worker
from programs import run_python
from samples import assert_same

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has arenas"),
    # Python 3.12 and later warn of every fork of a process that has threads.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

SAMPLES = [{"x": np.full((50, 40), i, np.float32), "name": f"number {i}"} for i in range(24)]


@pytest.fixture(autouse=True)
def everything_is_let_go() -> Iterator[None]:
    yield
    gc.collect()
    trainer.ensure_arena().sweep()
    assert pinfeed.arena_stats()["live_slots"] == 0


def loader(dataset: Any = SAMPLES, **options: Any) -> DataLoader[Any]:
    options = {"collate_fn": pinfeed.Collate({"name": pinfeed.Keep()}), "batch_size": 4} | options
    method = {"multiprocessing_context": "fork", "timeout": 60, "num_workers": 2}
    return DataLoader(dataset, **(method | options))


def in_arena(tensor: torch.Tensor) -> bool:
    return trainer.own_arena().contains(tensor.data_ptr())


def expected(dataset: Any = SAMPLES, **options: Any) -> list[Any]:
    return list(loader(dataset, num_workers=0, timeout=0, multiprocessing_context=None, **options))


def test_a_slot_is_used_again_when_the_last_view_dies() -> None:
    iterator = iter(loader(num_workers=1, prefetch_factor=1, persistent_workers=True))
    first = next(iterator)["x"]
    row, array, values = first[1], first.numpy()[2:3], first.clone()
    address = first.data_ptr()
    del first
    rest = [next(iterator)["x"] for _ in range(3)]
    assert address not in {tensor.data_ptr() for tensor in rest}
    assert torch.equal(row, values[1])
    assert np.array_equal(array, values.numpy()[2:3])
    before = pinfeed.arena_stats()["live_slots"]
    del row
    assert pinfeed.arena_stats()["live_slots"] == before
    del array
    assert pinfeed.arena_stats()["live_slots"] <= before  # the worker may have taken it again


def test_the_arena_stops_growing() -> None:
    batches = loader(persistent_workers=True)
    for _ in batches:
        pass
    grown = pinfeed.arena_stats()["grows"]
    for _ in range(20):
        for _ in batches:
            pass
    # 2 × 2 batches are prefetched, one is being used and one dropped: those may lie in new slots on
    # a machine that is busy, but twenty epochs take no more than that.
    assert pinfeed.arena_stats()["grows"] <= grown + 6


class Views(NamedTuple):
    whole: torch.Tensor
    part: torch.Tensor
    turned: torch.Tensor
    expanded: torch.Tensor
    again: torch.Tensor
    parameter: torch.Tensor
    as_numpy: torch.Tensor
    bits: torch.Tensor
    single: list[torch.Tensor]


class Viewing:
    """What a user's wrapper may do to a batch before it leaves the worker."""

    def __init__(self) -> None:
        self.collate = pinfeed.Collate()

    def __call__(self, samples: Any) -> Views:
        x = self.collate([sample["x"] for sample in samples])
        return Views(
            x, x[1:3, 5:], x.transpose(0, 2), x[:1].expand(7, -1, -1), x,
            torch.nn.Parameter(x[2]), torch.from_numpy(x.numpy()[1, 3:]), x.view(torch.int32),
            list(x[0]),
        )  # fmt: skip


def test_views_of_a_batch() -> None:
    views, plain = next(iter(loader(collate_fn=Viewing()))), expected(collate_fn=Viewing())[0]
    assert_same(views, plain)
    assert [leaf.stride() for leaf in views[:-1]] == [leaf.stride() for leaf in plain[:-1]]
    assert isinstance(views.parameter, torch.nn.Parameter)
    assert all(in_arena(leaf) for leaf in views[:-1])
    views.whole[1] = -1  # one memory, as in the worker
    assert (views.part[0] == -1).all()
    assert (views.as_numpy == -1).all()


class Caching:
    """Returns the same tensor for ever."""

    def __init__(self) -> None:
        self.collate = pinfeed.Collate()

    def __call__(self, samples: Any) -> Any:
        if not hasattr(self, "batch"):
            self.batch = self.collate([sample["x"] for sample in samples])
        return self.batch


def test_a_worker_may_keep_what_it_sent() -> None:
    batches = list(loader(SAMPLES * 4, num_workers=1, collate_fn=Caching()))
    assert len({batch.data_ptr() for batch in batches}) == 1
    assert all(torch.equal(batch, batches[0]) for batch in batches)
    assert pinfeed.arena_stats()["live_slots"] == 1


def test_more_copies_of_one_batch_than_a_slot_counts() -> None:
    dataset = [SAMPLES[0]] * 1100
    batches = list(loader(dataset, batch_size=1, num_workers=1, collate_fn=Caching()))
    assert sum(in_arena(batch) for batch in batches) >= 1000
    assert all(torch.equal(batch, batches[0]) for batch in batches)


class Stream(IterableDataset):
    """Streams of different lengths, so that workers end at different times."""

    def __iter__(self) -> Iterator[Any]:
        number = get_worker_info().id if get_worker_info() else 0
        yield from SAMPLES[: 4 * (3 * number + 1)]


class Batches:
    """Returns whole batches, for batch_size=None."""

    def __init__(self) -> None:
        self.collate = pinfeed.Collate({"name": pinfeed.Keep()})

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        if index >= len(self):
            raise IndexError
        return self.collate(SAMPLES[index : index + 4])


def as_it_is(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize("options", [{}, {"in_order": False}, {"prefetch_factor": 7}])
def test_an_iterable_dataset(options: dict[str, Any], pin: bool) -> None:
    with pytest.warns() if pin and not torch.cuda.is_available() else no_warning():
        batches = list(loader(Stream(), pin_memory=pin, **options))
    assert len(batches) == 1 + 4
    wanted = [SAMPLES[i : i + 4] for i in (0, 0, 4, 8, 12)]
    found = sorted(batches, key=lambda batch: batch["x"][0, 0, 0])
    assert_same([b["name"] for b in found], [[s["name"] for s in w] for w in wanted])


class no_warning:
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...


def test_batches_of_the_dataset() -> None:
    batches = list(loader(Batches(), batch_size=None, collate_fn=as_it_is))
    assert all(in_arena(batch["x"]) for batch in batches)
    assert_same(batches, [Batches()[i] for i in range(5)])


def test_several_loaders_at_once() -> None:
    pairs = zip(loader(), loader(list(reversed(SAMPLES))), expected(), strict=True)
    kept = []
    for one, other, wanted in pairs:
        assert_same(one, wanted)
        kept.append(other)
    assert_same(kept, expected(list(reversed(SAMPLES))))


@pytest.mark.parametrize("persistent", [False, True])
def test_an_iterator_dropped_in_mid_epoch(persistent: bool) -> None:
    batches = loader(persistent_workers=persistent)
    for _ in range(5):
        next(iter(batches))
    assert_same(list(batches), expected())
    assert pinfeed.arena_stats()["resident_bytes"] < 64 * 2**20


class Failing(list):
    def __getitem__(self, index: Any) -> Any:
        if index == 13:
            raise LookupError("sample 13 is missing")
        return super().__getitem__(index)


def test_an_exception_in_a_worker() -> None:
    iterator = iter(loader(Failing(SAMPLES), num_workers=1))
    assert_same([next(iterator) for _ in range(3)], expected()[:3])
    with pytest.raises(LookupError, match="sample 13 is missing"):
        next(iterator)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata 0.11
def test_stateful_dataloader() -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    collate = pinfeed.Collate({"name": pinfeed.Keep()})
    batches = list(stateful.StatefulDataLoader(SAMPLES, 4, num_workers=2, collate_fn=collate))
    assert all(in_arena(batch["x"]) for batch in batches)
    assert_same(batches, expected())


class Elsewhere:
    """Puts each batch into a queue of its own too, which is not the loader's."""

    def __init__(self, queue: Any) -> None:
        self.collate, self.queue = pinfeed.Collate(), queue

    def __call__(self, samples: Any) -> Any:
        x = self.collate([sample["x"] for sample in samples])
        self.queue.put(x[1:])
        return x


def test_what_goes_elsewhere_goes_through_shared_memory() -> None:
    queue = Queue()
    for batch in loader(collate_fn=Elsewhere(queue), num_workers=1, persistent_workers=True):
        other = queue.get(timeout=60)
        assert not in_arena(other)
        assert torch.equal(other, batch[1:])


def test_tensors_in_shared_memory_stay_there() -> None:
    shared = torch.zeros(3).share_memory_()
    (batch,) = loader([shared], collate_fn=pinfeed.Collate(pinfeed.Keep()))
    shared.fill_(7)
    assert batch[0].tolist() == [7, 7, 7]


NO_ARENA = """
import logging, resource, sys
import numpy as np, pinfeed, torch
from torch.utils.data import DataLoader

logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
if sys.argv[1] == "no memory":
    (used,) = [line.split()[1] for line in open("/proc/self/status") if line[:6] == "VmSize"]
    limit = int(used) * 1024 + 50 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    collate = pinfeed.Collate()
else:
    collate = lambda samples: pinfeed.Collate()(samples)
loader = DataLoader(np.arange(8)[:, None], 2, num_workers=1, collate_fn=collate, timeout=60)
print([batch.tolist() for batch in loader], {batch.is_shared() for batch in loader})
assert pinfeed.arena_stats()["slots"] == 0
"""


@pytest.mark.parametrize(
    ("how", "reason"),
    [("no memory", "Cannot allocate memory"), ("late", "the trainer had no Collate yet")],
)
def test_shared_memory_serves_without_an_arena(how: str, reason: str) -> None:
    *logged, batches = run_python(NO_ARENA, how).splitlines()
    assert batches == "[[[0], [1]], [[2], [3]], [[4], [5]], [[6], [7]]] {True}"
    assert all(line.startswith("WARNING ") and reason in line for line in logged)
    assert len(logged) == 2 + (how == "no memory")  # once in each worker, and in the trainer


@pytest.fixture
def limited() -> Iterator[None]:
    pinfeed.set_arena_limit(2**20)
    yield
    pinfeed.set_arena_limit(None)


def test_batches_that_are_kept_reach_the_limit(
    limited: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "PATIENCE", 0.5)
    kept = []
    batches = loader(SAMPLES * 20, collate_fn=pinfeed.Collate())
    with pytest.raises(MemoryError, match=r"pinfeed\.set_arena_limit\(max_bytes\)"):
        kept.extend(batches)
    assert len(kept) >= 20
    assert_same(kept[:6], expected(collate_fn=pinfeed.Collate()))
    stats = pinfeed.arena_stats()
    assert stats["resident_bytes"] <= 2**20
    assert stats["waits"] > 0


def test_a_limit_below_the_need_slows_down_only(limited: None) -> None:
    for batch in loader(SAMPLES * 20, prefetch_factor=30, in_order=False):
        assert batch["x"].shape == (4, 50, 40)
        time.sleep(0.005)
    assert pinfeed.arena_stats()["waits"] > 0
    assert pinfeed.arena_stats()["resident_bytes"] <= 2**20


def test_a_batch_larger_than_the_limit(limited: None) -> None:
    with pytest.raises(MemoryError, match="no room for 1,152,000 bytes"):
        next(iter(loader(SAMPLES * 6, batch_size=144)))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (1.5, TypeError), ("8G", TypeError), (True, TypeError), (0, ValueError), (2**20 - 1, ValueError),
        (2**63, ValueError), (2**64, ValueError),
    ],
)  # fmt: skip
def test_wrong_limits(wrong: Any, error: type[Exception]) -> None:
    before = pinfeed.arena_stats()["max_bytes"]
    with pytest.raises(error, match=r"^set_arena_limit: max_bytes must be"):
        pinfeed.set_arena_limit(wrong)
    assert pinfeed.arena_stats()["max_bytes"] == before


def test_the_largest_limit() -> None:
    pinfeed.set_arena_limit(2**63 - 1)
    try:
        assert pinfeed.arena_stats()["max_bytes"] > 2**30  # all that it has addresses for
        assert_same(list(loader()), expected())
    finally:
        pinfeed.set_arena_limit(None)


def test_sizes_that_vary_and_nothing() -> None:
    rng = np.random.default_rng(0)
    sequences = [rng.integers(0, 9, rng.integers(1, 3000)) for _ in range(400)]
    for samples, field in ((sequences, pinfeed.Pad(mask=True)), ([np.ones((0, 3))] * 8, None)):
        options = {"collate_fn": pinfeed.Collate(field), "batch_size": 8}
        assert_same(list(loader(samples, **options)), expected(samples, **options))


def test_info_says_where_batches_go() -> None:
    assert re.fullmatch(r"an arena of at most \d+\.\d GiB", facts()["workers"])


def test_ranks_share_the_default_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pinfeed.set_arena_limit(None)
    alone = trainer.ensure_arena().stats()["max_bytes"]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    pinfeed.set_arena_limit(None)
    assert 0.05 < trainer.ensure_arena().stats()["max_bytes"] / alone < 0.25  # others take memory
    monkeypatch.undo()
    pinfeed.set_arena_limit(None)
