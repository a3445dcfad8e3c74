"""What programs, users and systems do to an arena: each of these once lost, hung or crashed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from programs import run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has arenas")

SETUP = """
import ctypes, errno, gc, logging, os, resource, signal, sys, time, warnings
import numpy as np, pinfeed, torch
from torch.utils.data import DataLoader
from pinfeed import _core
from pinfeed.memory import trainer, worker

warnings.simplefilter("ignore")
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)

def in_arena(tensor):
    return trainer.own_arena() is not None and trainer.own_arena().contains(tensor.data_ptr())

def nothing_is_left():
    gc.collect()
    trainer.own_arena().sweep()
    stats = pinfeed.arena_stats()
    assert stats["live_slots"] == 0 and stats["workers"] == 0, stats
"""


def run_script(tmp_path: Path, code: str, *arguments: str) -> str:
    """For spawn, which imports the script again."""
    script = tmp_path / "script.py"
    script.write_text(SETUP + code)
    run = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    return run_python(run, str(script), *arguments)


FORK_IN_WORKER = """
class Samples:
    def __len__(self):
        return 6

    def __getitem__(self, i):
        collate = pinfeed.Collate()
        collate([np.zeros(3)])
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
        pid = os.fork()
        if pid == 0:  # must not close what is not its own
            try:
                collate([np.zeros(3)])
                [os.fstat(file) for file in files]
                os._exit(0)
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        [os.close(file) for file in files]
        return np.full(1000, i)

if __name__ == "__main__":
    loader = DataLoader(
        Samples(), 2, num_workers=1, collate_fn=pinfeed.Collate(), timeout=60,
        multiprocessing_context=sys.argv[1],
    )
    for i, batch in enumerate(loader):
        assert in_arena(batch) and batch[:, 0].tolist() == [2 * i, 2 * i + 1]
    del batch, loader
    nothing_is_left()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_that_forks(method: str, tmp_path: Path) -> None:
    assert run_script(tmp_path, FORK_IN_WORKER, method) == ""


def test_a_proc_that_shows_other_processes() -> None:
    """As in a PID namespace of its own that has its parent's /proc: numbers don't fit."""
    command = ["unshare", "--pid", "--fork", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("this process may not make PID namespaces")
    code = """
batches = list(DataLoader(np.arange(8)[:, None], 2, num_workers=2, collate_fn=pinfeed.Collate()))
assert [batch.tolist() for batch in batches] == [[[i], [i + 1]] for i in (0, 2, 4, 6)]
assert not in_arena(batches[0])
"""
    done = subprocess.run(
        [*command, sys.executable, "-c", SETUP + code],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is that of another PID namespace" in done.stdout


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
    np.arange(80).reshape(8, 10), 2, num_workers=2, timeout=60, collate_fn=pinfeed.Collate()
)
for i, batch in enumerate(loader):
    assert batch.is_shared() and not in_arena(batch)
    assert batch[:, 0].tolist() == [20 * i, 20 * i + 10]
assert "memfd_create" in trainer.refusal()
"""


def test_torch_s_shared_memory_serves_without_memfd() -> None:
    logged = run_python(SETUP + REFUSE + NO_MEMFD)
    assert logged.count("no arena for batches of workers, torch's shared memory serves") == 1


NO_FALLOCATE = """
dataset = pinfeed.ArrayDataset(np.ones((8, 2**20), np.uint8))
iterator = iter(DataLoader(dataset, 2, num_workers=1, collate_fn=pinfeed.Collate(), timeout=60))
next(iterator)
arena = trainer.own_arena()
arena.join()
refuse(FALLOCATE)
assert arena.allocate(64 * 2**20) is None  # a write to it could end the process by SIGBUS
assert arena.shortage == errno.EPERM
"""


def test_memory_that_the_system_refuses_is_not_written_to() -> None:
    run_python(SETUP + REFUSE + NO_FALLOCATE)


LIMITED_ADDRESSES = """
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, used + 2**31))
loader = DataLoader(np.arange(800).reshape(8, 100), 2, num_workers=1, collate_fn=pinfeed.Collate())
for batch in loader:
    assert in_arena(batch)
np.empty(2**30, np.uint8)  # most of the addresses are the user's
"""


def test_limited_addresses_are_left_to_the_user() -> None:
    assert run_python(SETUP + LIMITED_ADDRESSES) == ""


IDLE = """
dataset = pinfeed.ArrayDataset(np.ones((8, 2**20), np.uint8))
trainer.ensure_arena().set_idle_timeout(0.2)
for batch in DataLoader(dataset, 2, num_workers=2, collate_fn=pinfeed.Collate(), timeout=60):
    pass
assert pinfeed.arena_stats()["resident_bytes"] >= 2 * 2**20
deadline = time.monotonic() + 30
while pinfeed.arena_stats()["resident_bytes"] > 2 * 2**20:
    assert time.monotonic() < deadline, pinfeed.arena_stats()
    time.sleep(0.05)
assert (batch == 1).all()  # what is kept stays
del batch
while pinfeed.arena_stats()["resident_bytes"] > 0:
    assert time.monotonic() < deadline, pinfeed.arena_stats()
    time.sleep(0.05)
while "pinfeed-arena" in [open(f"/proc/self/task/{t}/comm").read().strip() for t in os.listdir("/proc/self/task")]:
    assert time.monotonic() < deadline, "the thread does not end"
    time.sleep(0.05)
"""


def test_memory_is_given_back_when_no_loader_runs() -> None:
    run_python(SETUP + IDLE)


def test_many_small_batches_are_kept() -> None:
    code = """
dataset = pinfeed.ArrayDataset(np.arange(6000)[:, None])
kept = list(DataLoader(dataset, 1, num_workers=2, collate_fn=pinfeed.Collate(), timeout=60))
assert [batch.item() for batch in kept] == list(range(6000)) and in_arena(kept[-1])
assert pinfeed.arena_stats()["live_slots"] == 6000
del kept
nothing_is_left()
"""
    run_python(SETUP + code)


def test_refusals_don_t_stay() -> None:
    code = """
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
files = [os.open("/dev/null", os.O_RDONLY)]
resource.setrlimit(resource.RLIMIT_NOFILE, (files[0], hard))
assert trainer.ensure_arena() is None and trainer.refusal()
assert trainer.ensure_arena() is None
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
assert trainer.ensure_arena() is not None and trainer.refusal() is None
"""
    assert run_python(SETUP + code).count("WARNING") == 1


def test_a_device_that_tensors_are_made_on_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFEED_DEBUG", "1")
    code = """
iterator = iter(DataLoader(np.ones((8, 100)), 2, num_workers=1, collate_fn=pinfeed.Collate()))
torch.set_default_device("meta")
assert [(batch.device.type, float(batch.numpy().sum())) for batch in iterator] == [("cpu", 200)] * 4
"""
    run_python(SETUP + code, fresh=True)
