"""What programs, users and systems do to the arena: forks, kills, limits; each in a process of its own."""

import sys

import pytest

from programs import run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has arenas")

SETUP = """
import ctypes, gc, logging, os, signal, sys, time, warnings
import numpy as np, pinfeed, torch
from torch.utils.data import DataLoader
from pinfeed.memory import trainer, worker

warnings.simplefilter("ignore")
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)

def in_arena(tensor):
    return any(
        slot.address <= tensor.data_ptr() < slot.address + slot.capacity
        for worker in trainer._workers.values() for slot in worker.slots.values()
    )

def nothing_is_left():
    gc.collect()
    stats = pinfeed.testing.worker_memory_stats()
    assert (stats["workers"], stats["live_slots"], stats["resident_bytes"]) == (0, 0, 0), stats
"""


def run_script(tmp_path, code, *arguments):
    """For spawn, which imports the script again."""
    script = tmp_path / "script.py"
    script.write_text(SETUP + code)
    run = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    return run_python(run, str(script), *arguments)


# A filter of system calls, as containers have: memfd_create is not permitted.
REFUSE = """
class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte),
                ("k", ctypes.c_uint)]

class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(Instruction))]

def refuse(*numbers):
    load, equal, give = 0x20, 0x15, 0x06
    lines = [(load, 0, 0, 0)]
    for number in numbers:
        lines += [(equal, 0, 1, number), (give, 0, 0, 0x00050000 | 1)]
    lines.append((give, 0, 0, 0x7FFF0000))
    program = (Instruction * len(lines))(*lines)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(Program(len(lines), program)), 0, 0) == 0

MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}[os.uname().machine]
FALLOCATE = {"x86_64": 285, "aarch64": 47}[os.uname().machine]
"""

NO_MEMFD = """
refuse(MEMFD_CREATE)
loader = DataLoader(
    np.arange(80_000).reshape(8, 10_000), 2, num_workers=2, timeout=60, collate_fn=pinfeed.Collate()
)
for i, batch in enumerate(loader):
    assert batch.is_shared() and not in_arena(batch)
    assert batch[:, 0].tolist() == [20_000 * i, 20_000 * i + 10_000]
"""


def test_torch_s_shared_memory_serves_without_memfd():
    logged = run_python(SETUP + REFUSE + NO_MEMFD)
    assert logged.count("WARNING this worker has no arena") == 2  # once in each worker
    assert "memfd_create" in logged


NO_FALLOCATE = """
refuse(FALLOCATE)
worker.PATIENCE = 0.2
dataset = pinfeed.ArrayDataset(np.ones((8, 2**20), np.uint8))
try:
    list(DataLoader(dataset, 2, num_workers=1, collate_fn=pinfeed.Collate(), timeout=60))
except MemoryError as error:
    print("the system gave no more: [Errno 1] Operation not permitted" in str(error))
"""


def test_memory_that_the_system_refuses_is_not_written_to():
    """A write could end the process by SIGBUS."""
    assert run_python(SETUP + REFUSE + NO_FALLOCATE) == "True\n"


MANY = """
dataset = pinfeed.ArrayDataset(np.arange(1200).repeat(3000).reshape(1200, 3000))
kept = list(DataLoader(dataset, 1, num_workers=2, collate_fn=pinfeed.Collate(), timeout=60))
assert [batch[0, -1].item() for batch in kept] == list(range(1200)) and in_arena(kept[-1])
assert pinfeed.testing.worker_memory_stats()["live_slots"] == 1200
del kept
nothing_is_left()
"""


def test_many_batches_are_kept():
    assert run_python(SETUP + MANY) == ""


def test_a_device_that_tensors_are_made_on_by_default():
    code = """
from pinfeed.memory import outputs

outputs._POISON = True  # as with PINFEED_DEBUG=1
for size in (100, 10_000):
    iterator = iter(DataLoader(np.ones((8, size)), 2, num_workers=1, collate_fn=pinfeed.Collate()))
    torch.set_default_device("meta")
    found = [(batch.device.type, float(batch.numpy().sum())) for batch in iterator]
    assert found == [("cpu", 2 * size)] * 4
    torch.set_default_device("cpu")
"""
    run_python(SETUP + code)


KINDS = """
kinds = {
    "arrays": [np.full(3, i) for i in range(400)],
    "large arrays": [np.full(3000, i) for i in range(400)],
    "integers": range(400),
    "fractions": [i / 2 for i in range(400)],
    "numbers of NumPy": [np.float32(i) for i in range(400)],
    "0-d tensors": [torch.tensor(i) for i in range(400)],
    "kept tensors": [torch.full((3,), i) for i in range(400)],
    "large kept tensors": [torch.full((3000,), i) for i in range(400)],
    "kept tensors and strings": [(str(i), {"x": torch.tensor([i])}) for i in range(400)],
    "strings": [str(i) for i in range(400)],
}
specs = {
    "kept tensors": pinfeed.Keep(), "large kept tensors": pinfeed.Keep(),
    "kept tensors and strings": (None, {"x": pinfeed.Keep()}),
}

for kind, samples in kinds.items():
    before = len(os.listdir("/proc/self/fd"))
    options = {"batch_size": 2, "collate_fn": pinfeed.Collate(specs.get(kind))}
    kept = list(DataLoader(list(samples), num_workers=1, timeout=60, **options))
    opened = len(os.listdir("/proc/self/fd")) - before
    assert opened <= 8, (kind, opened)
    assert str(kept) == str(list(DataLoader(list(samples), **options))), kind
    live = pinfeed.testing.worker_memory_stats()["live_slots"]
    assert live == {"large arrays": 200, "large kept tensors": 400}.get(kind, 0), (kind, live)
    del kept
    nothing_is_left()
"""


def test_batches_open_no_file_whatever_they_are_made_of():
    assert run_python(SETUP + KINDS) == ""


CHILDREN = """
import multiprocessing

def files_of_shared_memory():
    return [line.split()[-1] for line in open("/proc/self/maps") if "/dev/shm/torch_" in line]

def work(collate, i, pipe):
    try:
        batch = collate([{"x": np.full(10_000, i), "label": i}] * 2)
        assert pinfeed.Collate()([torch.full((3,), i)] * 2).tolist() == [[i] * 3] * 2
        shared = [leaf.is_shared() for leaf in batch.values()]
        pipe.send((batch["x"][1, -1].item(), batch["label"].tolist(), shared, files_of_shared_memory()))
    except BaseException as error:
        pipe.send(repr(error))

class Samples:
    def __init__(self):
        self.collate = pinfeed.Collate()

    def __len__(self):
        return 2

    def __getitem__(self, i):
        for context in map(multiprocessing.get_context, sys.argv[1].split(",")):
            here, there = context.Pipe()
            multiprocessing.current_process()._config["daemon"] = False  # as some users do
            child = context.Process(target=work, args=(self.collate, i, there))
            child.start()
            assert here.poll(60)
            found = here.recv()
            assert found == (i, [i, i], [False, False], []), found
            child.join()
        return np.full(2000, i)

if __name__ == "__main__":
    collate = pinfeed.Collate()
    loader = DataLoader(Samples(), 2, num_workers=1, collate_fn=collate, timeout=90)
    for i, batch in enumerate(loader):
        assert in_arena(batch) and batch[:, 0].tolist() == [2 * i, 2 * i + 1]
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_a_worker_use_their_own_memory(method, tmp_path):
    assert run_script(tmp_path, CHILDREN, method) == ""


NESTED = """
import multiprocessing

def outer(samples):
    multiprocessing.current_process()._config["daemon"] = False
    loader = DataLoader(
        [np.full(5000, i) for i in samples], 1, num_workers=1, collate_fn=inner, timeout=60
    )
    return torch.cat(list(loader))

inner = pinfeed.Collate()
assert inner([1, 2]).tolist() == [1, 2]
for i, batch in enumerate(DataLoader(range(4), 2, num_workers=1, collate_fn=outer, timeout=60)):
    assert batch[:, -1].tolist() == [2 * i, 2 * i + 1]
"""


def test_a_worker_whose_child_is_a_worker():
    assert run_python(SETUP + NESTED) == ""


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
        assert any(part in str(error) for part in ("exited unexpectedly", "killed", "was lost")), error
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
print(good)
"""


@pytest.mark.slow
def test_workers_killed_at_random():
    run_python(SETUP + KILLS, "1", "100", timeout=200)


RANKS = """
import multiprocessing

class Samples:
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return np.full((90, 90), 100 * self.rank + index)

def train(rank, collate, method, results):
    loader = DataLoader(
        Samples(rank), 3, num_workers=2, collate_fn=collate, timeout=60,
        multiprocessing_context=method, persistent_workers=True,
    )
    for _ in range(2):
        batches = list(loader)
    assert [int(b[0, 0, 0]) for b in batches] == [100 * rank + i for i in (0, 3, 6, 9)]
    assert all(in_arena(batch) for batch in batches)
    results.put(pinfeed.testing.worker_memory_stats()["workers"])
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
    assert [results.get(timeout=100) for _ in range(3)] == [2] * 3  # each has workers of its own
    for rank in ranks:
        rank.join(60)
        assert rank.exitcode == 0, rank.exitcode
    assert (kept[0] == 900).all()
    del kept
    nothing_is_left()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_that_start_workers(method, tmp_path):
    """As distributed training does: processes that are started, and start workers themselves."""
    assert run_script(tmp_path, RANKS, method) == ""


FORK_A_TRAINER = """
torch.utils.data._utils.worker.MP_STATUS_CHECK_INTERVAL = 0.5  # so often workers look for the trainer
if pid := os.fork():
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    open(sys.argv[1], "x").close()
    os._exit(0)
"""

KILLED = """
loader = DataLoader(np.ones((64, 5000)), 1, num_workers=2, collate_fn=pinfeed.Collate())
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

pinfeed.set_worker_memory_limit(2**20)  # less than a batch, for which nobody will make room
iterator = iter(DataLoader(Samples(), 1, num_workers=1, collate_fn=pinfeed.Collate(), prefetch_factor=32))
print(*[worker.pid for worker in iterator._workers], flush=True)
while not os.path.exists(sys.argv[1] + ".begun"):  # before that torch's own worker would stay
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


KILLED_WHILE_A_WORKER_WAITS_FOR_ROOM = """
pinfeed.set_worker_memory_limit(2**20)
samples = np.ones((64, 60_000))
iterator = iter(DataLoader(samples, 1, num_workers=1, collate_fn=pinfeed.Collate(), prefetch_factor=32))
kept = next(iterator)
print(*[worker.pid for worker in iterator._workers], flush=True)
while pinfeed.testing.worker_memory_stats()["waits"] == 0:  # behind a batch that nobody will read
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "code", [KILLED, KILLED_BEFORE_THE_FIRST_BATCH, KILLED_WHILE_A_WORKER_WAITS_FOR_ROOM]
)
def test_a_trainer_that_is_killed_takes_its_workers_along(code, tmp_path):
    """As long as one of them can write, run_python waits."""
    killed = SETUP + FORK_A_TRAINER + code
    assert run_python(killed, str(tmp_path / "gone"), timeout=60).split()
