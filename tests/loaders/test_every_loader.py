"""Tests of all loaders in DeviceLoader: batches in order, and every exit from a loop."""

import contextlib
import itertools
import multiprocessing
import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader

from loaders import COUNT, Generated, feeding_threads, on_cpu


class Items:
    """A dataset with __getitem__ only."""

    def __getitem__(self, index):
        if index >= COUNT:
            raise IndexError
        return index


class Restarts:
    """An iterator of itself, which starts again."""

    def __iter__(self):
        self.numbers = iter(range(COUNT))
        return self

    def __next__(self):
        return next(self.numbers)


def with_workers(**options):
    options = {"num_workers": 2, "timeout": 60, "multiprocessing_context": "fork"} | options
    return DataLoader(torch.arange(COUNT), batch_size=None, **options)


LOADERS = {
    "list": lambda: list(range(COUNT)),
    "range": lambda: range(COUNT),
    "generator": lambda: (i for i in range(COUNT)),
    "iterator": lambda: iter(range(COUNT)),
    "map": lambda: map(abs, range(COUNT)),
    "class": Generated,
    "items": Items,
    "iterator that restarts": Restarts,
    "DataLoader": lambda: DataLoader(torch.arange(COUNT), batch_size=None),
    "DeviceLoader": lambda: on_cpu(range(COUNT)),
    "four of them": lambda: on_cpu(on_cpu(on_cpu(Generated()))),
    "workers": with_workers,
    "workers that stay": lambda: with_workers(persistent_workers=True),
}
SPAWN = {"spawn": lambda: with_workers(persistent_workers=True, multiprocessing_context="spawn")}
ONCE = ("generator", "iterator", "map")
USED_UP = (
    "^DeviceLoader: the loader is an iterator, and an earlier loop has exhausted it; pass .* a list"
)


def numbers(batches):
    return [int(batch) for batch in batches]


@pytest.mark.parametrize(
    ("kind", "depth"), [*itertools.product(LOADERS, [1, 2, 100]), ("spawn", 2)]
)
def test_all_batches_in_order_in_every_epoch(kind, depth):
    batches = on_cpu((LOADERS | SPAWN)[kind](), prefetch=depth)
    assert numbers(batches) == list(range(COUNT))
    for _ in range(2):
        if kind in ONCE:
            with pytest.raises(RuntimeError, match=USED_UP):
                numbers(batches)
        else:
            assert numbers(batches) == list(range(COUNT))


def test_an_iterator_that_is_started_or_used_up():
    used_up = (number for number in range(5))
    assert len([*used_up]) == 5
    with pytest.raises(RuntimeError, match=USED_UP):
        list(on_cpu(used_up))
    batches = on_cpu(iter(range(6)), prefetch=1)
    assert next(iter(batches)) == 0
    assert 3 <= len(list(batches)) <= 5


@pytest.mark.parametrize("empty", [[], Generated(0), iter(())])
def test_a_loader_that_yields_nothing(empty):
    batches = on_cpu(empty)
    assert list(batches) == []
    assert batches.stats().batches == 0
    loop = iter(batches)
    assert [next(loop, "end") for _ in range(3)] == ["end"] * 3


@pytest.mark.parametrize("kind", LOADERS)
def test_two_iterators_at_once(kind):
    """If the loader has one iterator, as with persistent workers, the later loop ends the earlier one."""
    batches = on_cpu(LOADERS[kind]())
    if kind in ONCE or kind in ("iterator that restarts", "workers that stay"):
        first = iter(batches)
        next(first)
        rest = numbers(batches)
        assert rest == list(range(COUNT))[-len(rest) :]  # except for prefetched batches
        assert kind in ONCE or len(rest) == COUNT
        with pytest.raises(RuntimeError, match=r"ended when a later one began.*drop one first"):
            next(first)
    else:
        assert [*map(numbers, zip(batches, batches, strict=True))] == [[i, i] for i in range(COUNT)]


def test_several_consumers_of_several_loops():
    batches = on_cpu(range(200))
    results = [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda r=r: r.extend(batches)) for r in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [list(range(200))] * 4


def test_other_workers_start_during_a_loop():
    training, validation = on_cpu(with_workers()), on_cpu(with_workers())
    for number, batch in enumerate(training):
        assert batch == number
        if number % 2 == 0:
            assert numbers(validation) == list(range(COUNT))


# How a loop ends after a number of batches; the returned objects still exist.


def broken_off(batches, count):
    for number, _ in enumerate(batches, 1):
        if number == count:
            break


def failed(batches, count):
    with contextlib.suppress(ZeroDivisionError):
        for number, _ in enumerate(batches, 1):
            1 / (count - number)


def dropped(batches, count):
    loop = iter(batches)
    for _ in range(count):
        next(loop)
    assert feeding_threads() or count > 1


def closed(batches, count):
    loop = iter(batches)
    for _ in range(count):
        next(loop)
    for _ in range(2):
        loop.close()
        assert next(loop, "end") == "end"
    return loop


# The loader, and the number of batches it fetches ahead.
AHEAD = {
    "one": (Generated, 1),
    "three": (Generated, 3),
    "nested": (lambda: on_cpu(Generated(), prefetch=2), 1),
    "workers": (with_workers, 2),
    "workers that stay": (LOADERS["workers that stay"], 2),
}


def is_left(workers):
    return feeding_threads() or len(multiprocessing.active_children()) != workers


@pytest.mark.parametrize("leave", [broken_off, failed, dropped, closed])
@pytest.mark.parametrize("kind", AHEAD)
def test_a_loop_that_ends_early_leaves_nothing(kind, leave):
    make, depth = AHEAD[kind]
    loader = make()
    batches = on_cpu(loader, prefetch=depth)
    others = 2 * (kind == "workers that stay")
    for count in (1, 3, COUNT) if kind == "workers" else range(1, COUNT + 1):
        before = getattr(loader, "asked", 0)
        objects = leave(batches, count)
        deadline = time.monotonic() + 60 * ("workers" in kind)  # workers can be slow
        while is_left(others) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not is_left(others)
        assert getattr(loader, "open", 0) == 0
        assert getattr(loader, "asked", 0) - before <= count + depth + 2 * (kind == "nested")
        del objects
    assert numbers(batches) == list(range(COUNT))
