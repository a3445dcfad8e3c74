"""to_numpy: peak memory, released memory, and too little memory."""

import gc
import os
import sys
import weakref

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from pinfeed import to_numpy
from pinfeed.exports.to_numpy.storage import Memory
from pinfeed.limits import free_memory
from programs import run_program
from samples import assert_same

# 100 MB in batches of 3 MB, after a first run that loads modules. Finally, 512 MiB of addresses beyond the
# mapped ones remain, so that the system refuses more.


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_is_the_result_and_two_batches_and_too_little_raises():
    *lines, refused, exact = run_program("to_numpy_memory").splitlines()
    peaks = {name: float(peak) for name, peak in map(str.split, lines)}
    # Inexact, because a busy system evicts pages; `make bench` measures exact values.
    assert peaks.pop("cat") > 1.5  # the measurement includes existing memory
    assert len(peaks) == 3
    assert all(0.5 < peak < 1.4 for peak in peaks.values()), peaks
    count, message = refused.split(maxsplit=1)
    assert message.startswith("the system has no memory for an array of")
    assert int(count) >= 12
    assert exact == "12"


def test_batches_are_released():
    alive = []

    def batches():
        for i in range(6):
            assert sum(ref() is not None for ref in alive) == 0
            batch = {"x": torch.full((2, 3), i), "y": [np.zeros((2, 1))]}
            alive[:] = [weakref.ref(batch["x"]), weakref.ref(batch["y"][0])]
            yield batch
            del batch

    gc.disable()
    try:
        to_numpy(batches())
    finally:
        gc.enable()


def test_a_result_that_does_not_fit_raises_at_the_start():
    drawn = []

    def collate(indices):
        drawn.append(indices)
        assert len(drawn) < 10
        return {"x": np.zeros((len(indices), 100)), "y": np.zeros(len(indices))}

    loader = DataLoader(range(1 << 44), 4, collate_fn=collate)
    message = r"the result of 17,592,186,044,416 samples needs 14,214,486,323,888,128 bytes of mem"
    with pytest.raises(MemoryError, match=f"^to_numpy: {message}") as caught:
        to_numpy(loader)
    assert caught.value.partial["x"].shape == (4, 100)
    assert len(drawn) == 1
    assert to_numpy(loader, max_samples=10)["x"].shape == (10, 100)


def test_growing_stops_before_memory_is_full(monkeypatch):
    left = [10_000_000]
    monkeypatch.setattr("pinfeed.exports.to_numpy.storage.free_memory", lambda: left[0])

    def batches():
        for _ in range(30):
            left[0] -= 1_600_000
            yield np.ones((200, 1000))

    message = r"more samples need .* bytes of .* max_samples"
    with pytest.raises(MemoryError, match=message) as caught:
        to_numpy(batches())
    assert (caught.value.partial == 1).all()
    assert len(caught.value.partial) >= 400


def test_memory_does_not_move_while_a_view_exists():
    memory = Memory(np.dtype(np.int32), ())
    memory.append(np.arange(3, dtype=np.int32))
    view = memory.take(3)
    memory.append(np.arange(3, 2000, dtype=np.int32))
    assert_same(view.copy(), np.arange(3, dtype=np.int32))
    array = memory.take(2000)
    assert_same(memory.take(700), np.arange(700, dtype=np.int32))
    assert array[-1] == 1999


STAT = "anon 5\ninactive_file 30\nactive_file 7\n"
TOTALS = "cache 9\ntotal_inactive_file 40\ntotal_active_file 2\n"
MEMORY = 1024 * 1024  # a machine with 1,000 kB of memory and 24 kB of free swap
V1 = "12:cpu,cpuacct:/x\n4:memory:/docker/abc\n1:name=systemd:/x\n"


def v2(most, used):
    return {"memory.max": most, "memory.current": str(used), "memory.stat": STAT}


def v1(most, used):
    # A container sees only the mount itself.
    files = {"memory.limit_in_bytes": most, "memory.usage_in_bytes": used, "memory.stat": TOTALS}
    return {name: str(text) for name, text in files.items()}


@pytest.mark.parametrize(
    ("cgroup", "groups", "free"),
    [
        ("0::/\n", {}, MEMORY),
        ("0::/user/job\n", {"user/job": v2("max\n", 500)}, MEMORY),
        ("0::/user/job\n", {"user": v2("9000", 500), "user/job": v2("max", 9)}, 9000 - 500 + 37),
        ("0::/user/job\n", {"user": v2("9000", 500), "user/job": v2("600", 500)}, 600 - 500 + 37),
        ("0::/user/job\n", {"user/job": v2("600", 700)}, 0),
        (V1, {"memory": v1(2**63 - 4096, 1)}, MEMORY),
        (V1, {"memory": v1(1000, 800)}, 1000 - 800 + 42),
    ],
)
def test_free_memory(tmp_path, cgroup, groups, free):
    meminfo = "MemTotal: 4000 kB\nMemAvailable:    1000 kB\nSwapFree: 24 kB\nHugePages_Total: 0\n"
    files = {"proc/meminfo": meminfo, "proc/self/cgroup": cgroup}
    files |= {
        f"sys/{group}/{name}": text for group in groups for name, text in groups[group].items()
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_memory(str(tmp_path / "proc"), str(tmp_path / "sys")) == free


def test_free_memory_of_this_machine(tmp_path):
    assert 0 < free_memory() < 1 << 50
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert free_memory(str(tmp_path / "none"), str(tmp_path)) == physical
