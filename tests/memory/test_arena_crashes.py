"""Workers and trainers that are killed, and ranks: each in a process of its own, with a watchdog."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from programs import run_python
from test_arena_attacks import SETUP, run_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has arenas")

KILLS = """
import faulthandler, multiprocessing.connection, random, threading
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

def resources():
    gc.collect()
    maps = sum(1 for _ in open("/proc/self/maps"))
    return {"mappings": maps, "files": len(os.listdir("/proc/self/fd"))}

def nothing_was_added(before):
    deadline = time.monotonic() + 30
    while True:  # the threads that fed the queues of dead workers end when they get to it
        after = resources()
        if after["files"] <= before["files"] + 2 and after["mappings"] <= before["mappings"] + 20:
            return
        assert time.monotonic() < deadline, (before, after)
        time.sleep(0.1)

# One kill in some hundred makes the stock DataLoader hang, whatever its collate_fn, in two ways that are
# kept out of here: its signal handler raises between the taking of a lock and the block that gives it
# back; and a worker dies while it holds the lock of the event that tells it to end.
_MultiProcessingDataLoaderIter._try_get_data.__defaults__ = (0.2,)  # so often it looks for the dead

def kill(worker, iterator):
    with iterator._workers_done_event._cond:
        worker.kill()
        multiprocessing.connection.wait([worker.sentinel])  # doesn't reap it: torch wants to do that

random.seed(int(sys.argv[1]))
rng = np.random.default_rng(0)
arrays = rng.integers(0, 2**60, (64, 3000))
dataset = pinfeed.ArrayDataset({"x": arrays, "row": np.arange(64)})
before, good = None, 0
for run in range(int(sys.argv[2])):
    loader = DataLoader(
        dataset, 4, num_workers=2, collate_fn=pinfeed.Collate(),
        sampler=torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=10**6),
        prefetch_factor=random.choice([1, 2, 5]),
    )
    iterator = iter(loader)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    workers = list(iterator._workers)
    delay = random.random() * 0.2
    killer = threading.Timer(delay, kill, (random.choice(workers), iterator))
    killer.start()
    kept = []
    began = time.monotonic()
    faulthandler.dump_traceback_later(60, exit=True)
    try:
        for batch in iterator:
            assert np.array_equal(batch["x"].numpy(), arrays[batch["row"].numpy()])
            kept.append(batch)
            if len(kept) > 8:
                del kept[random.randrange(8)]
                good += 1
    except RuntimeError as error:
        assert "exited unexpectedly" in str(error) or "killed" in str(error), error
    else:
        raise AssertionError("nobody noticed that a worker was killed")
    assert time.monotonic() - began < 10, "the loader took long to notice"
    for batch in kept:  # what was received stays what it was
        assert np.array_equal(batch["x"].numpy(), arrays[batch["row"].numpy()])
    killer.join()
    for worker in workers:  # in a loader that died, DataLoader waits for seconds for the other one
        kill(worker, iterator)
    del iterator, loader, kept, worker, workers, killer
    batch = None
    if run == 20:
        nothing_is_left()
        before = resources()
nothing_is_left()
assert good > 100, good
nothing_was_added(before)
assert pinfeed.arena_stats()["resident_bytes"] < 16 * 2**20, pinfeed.arena_stats()
print(good)
"""


@pytest.mark.slow
def test_workers_killed_at_random() -> None:
    run_python(SETUP + KILLS, "1", "100", timeout=200)


RANKS = """
import multiprocessing

class Samples:
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return np.full((30, 30), 100 * self.rank + index)

def train(rank, collate, method, results):
    loader = DataLoader(
        Samples(rank), 3, num_workers=2, collate_fn=collate, timeout=60,
        multiprocessing_context=method, persistent_workers=True,
    )
    for _ in range(2):
        batches = list(loader)
    assert [int(b[0, 0, 0]) for b in batches] == [100 * rank + i for i in (0, 3, 6, 9)]
    arena = trainer.own_arena()
    assert all(arena.contains(b.data_ptr()) for b in batches)
    results.put(arena.id)
    del batches

if __name__ == "__main__":
    method = sys.argv[1]
    context = multiprocessing.get_context(method)
    collate = pinfeed.Collate()
    results = context.Queue()
    train(7, collate, "fork", results)
    kept = next(iter(DataLoader(Samples(9), 3, num_workers=1, collate_fn=collate)))
    ranks = [context.Process(target=train, args=(i, collate, method, results)) for i in range(2)]
    for rank in ranks:
        rank.start()
    ids = {results.get(timeout=100) for _ in range(3)}
    for rank in ranks:
        rank.join(60)
        assert rank.exitcode == 0, rank.exitcode
    assert len(ids) == 3, "each process has an arena of its own"
    assert (kept[0] == 900).all()
    del kept
    nothing_is_left()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_that_start_workers(method: str, tmp_path: Path) -> None:
    """As distributed training does: processes that are started, and start workers themselves."""
    assert run_script(tmp_path, RANKS, method) == ""


KILLED = """
loader = DataLoader(np.ones((64, 500)), 1, num_workers=2, collate_fn=pinfeed.Collate())
iterator = iter(loader)
for _ in range(2):  # one of each worker: before its first one, torch doesn't notice that a trainer died
    next(iterator)
print(*[worker.pid for worker in iterator._workers], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

KILLED_BEFORE_THE_FIRST_BATCH = """
class Samples:
    def __len__(self):
        return 64

    def __getitem__(self, i):
        if i == 0:
            open(sys.argv[1] + ".begun", "x").close()
            while not os.path.exists(sys.argv[1]):
                time.sleep(0.05)
            time.sleep(0.3)
        return [np.zeros(60_000)] * 4

pinfeed.set_arena_limit(2**20)  # less than a batch, for which nobody will make room
iterator = iter(DataLoader(Samples(), 1, num_workers=1, collate_fn=pinfeed.Collate(), prefetch_factor=32))
print(*[worker.pid for worker in iterator._workers], flush=True)
while not os.path.exists(sys.argv[1] + ".begun"):  # before that torch's own worker would stay
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


KILLED_WHILE_A_WORKER_WAITS_FOR_ROOM = """
pinfeed.set_arena_limit(2**20)
samples = np.ones((64, 60_000))
iterator = iter(DataLoader(samples, 1, num_workers=1, collate_fn=pinfeed.Collate(), prefetch_factor=32))
kept = next(iterator)
print(*[worker.pid for worker in iterator._workers], flush=True)
while pinfeed.arena_stats()["waits"] == 0:  # behind a batch that nobody will read
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "code", [KILLED, KILLED_BEFORE_THE_FIRST_BATCH, KILLED_WHILE_A_WORKER_WAITS_FOR_ROOM]
)
def test_a_trainer_that_is_killed_takes_its_workers_along(code: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    command = [sys.executable, "-c", SETUP + code, str(gone)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        workers = killed.stdout.readline().split()
        assert killed.wait(60) == -9
    gone.touch()
    assert workers
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in workers):
        assert time.monotonic() < deadline, "workers outlive their trainer"
        time.sleep(0.1)
