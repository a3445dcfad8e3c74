"""Workers that are killed, trainers that run long, containers with little shared memory.

Each runs in a process of its own, with a watchdog.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from programs import run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has arenas")

SETUP = """
import faulthandler, gc, multiprocessing.connection, os, random, signal, sys, threading, time, warnings
import numpy as np, pinfeed, torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter
from pinfeed.memory import trainer

warnings.simplefilter("ignore")

def resources():
    gc.collect()
    pages = int(open("/proc/self/statm").read().split()[1])
    maps = sum(1 for _ in open("/proc/self/maps"))
    files = len(os.listdir("/proc/self/fd"))
    return {"bytes": pages * 4096, "mappings": maps, "files": files,
            "threads": len(os.listdir("/proc/self/task"))}

def nothing_is_left():
    gc.collect()
    trainer.own_arena().sweep()
    stats = pinfeed.arena_stats()
    assert stats["live_slots"] == 0 and stats["workers"] == 0, stats
"""

KILLS = """
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
after = resources()
assert good > 100, good
assert after["files"] <= before["files"] + 2 and after["mappings"] <= before["mappings"] + 20
assert pinfeed.arena_stats()["resident_bytes"] < 16 * 2**20, pinfeed.arena_stats()
print(good)
"""


@pytest.mark.slow
def test_workers_killed_at_random() -> None:
    run_python(SETUP + KILLS, "1", "100", timeout=200)


EPOCHS = """
dataset = pinfeed.ArrayDataset({"x": np.arange(8 * 300).reshape(8, 300), "y": np.arange(8)})
options = {"persistent_workers": True} if sys.argv[1] == "persistent" else {}
loader = DataLoader(
    dataset, 2, shuffle=True, num_workers=2, collate_fn=pinfeed.Collate(), timeout=60, **options
)
epochs = int(sys.argv[2])
for epoch in range(epochs):
    if epoch == epochs // 10:
        before, stats = resources(), pinfeed.arena_stats()
    for batch in loader:
        assert (batch["x"][:, 0] == 300 * batch["y"]).all()
after = resources()
assert after["bytes"] - before["bytes"] < 8e6, (before, after)
assert after["mappings"] <= before["mappings"] + 20, (before, after)
assert after["files"] <= before["files"] + 2, (before, after)
assert after["threads"] <= before["threads"] + 1, (before, after)
now = pinfeed.arena_stats()
assert now["resident_bytes"] <= max(stats["resident_bytes"], 20 * 8192), (stats, now)
del batch, loader
nothing_is_left()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("how", "epochs"), [("persistent", 1000), ("anew", 60)])
def test_many_epochs_without_growth(how: str, epochs: int) -> None:
    run_python(SETUP + EPOCHS, how, str(epochs), timeout=200)


SMALL_SHM = """
assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 2**20
dataset = pinfeed.ArrayDataset(np.ones((64, 3, 224, 224), np.float32))
for batch in DataLoader(dataset, 32, num_workers=2, collate_fn=pinfeed.Collate(), timeout=60):
    assert batch.sum() == 32 * 3 * 224 * 224
"""


def test_a_container_with_little_shared_memory() -> None:
    """Each batch is 19 MB; /dev/shm has 1."""
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    mount = "mount -t tmpfs -o size=1M tmpfs /dev/shm"
    if not shutil.which("unshare") or subprocess.run([*command, mount], check=False).returncode:
        pytest.skip("this process may not mount a /dev/shm of its own")
    code = SETUP + SMALL_SHM
    subprocess.run(
        [*command, f'{mount} && exec "$0" -c "$1"', sys.executable, code], check=True, timeout=120
    )


RANKS = """
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
    script = tmp_path / "ranks.py"
    script.write_text(SETUP + RANKS)
    subprocess.run([sys.executable, script, method], check=True, timeout=150)


def test_a_trainer_that_is_killed_takes_its_arena_along() -> None:
    code = """
loader = DataLoader(np.ones((64, 500)), 1, num_workers=2, collate_fn=pinfeed.Collate())
iterator = iter(loader)
next(iterator)
print(*[worker.pid for worker in iterator._workers], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", SETUP + code],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == -9
    check = """
import os, sys, time
deadline = time.monotonic() + 30
while any(os.path.exists(f"/proc/{pid}") for pid in sys.argv[1:]):
    assert time.monotonic() < deadline, "workers outlive their trainer"
    time.sleep(0.1)
"""
    run_python(check, *done.stdout.split())
