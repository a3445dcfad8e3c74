"""Rows that lie in files: read at once when they are cold, looked at in memory when they are not."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import pinfeed
from arrays import NUMPY_DTYPES, assert_same_bits, random_array
from samples import assert_same, run_python

pytestmark = pytest.mark.kernels

#: Rows that were in memory without a break before a file is mapped, and somewhat more.
HOT = 300

# torch says once per process that it can't mark a tensor over a read-only array as such.
ignore_read_only = pytest.mark.filterwarnings("ignore:The given NumPy array is not writ")


def drop(path: Path) -> None:
    """Has the system forget a file, so that it is read from the disk, where there is one."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def saved(folder: Path, array: Any) -> Path:
    path = folder / f"{np.random.default_rng().integers(1 << 60)}.npy"
    np.save(path, array)
    return path


@pytest.fixture(params=["cold", "cached", "hot"])
def temperature(request: pytest.FixtureRequest) -> str:
    return request.param


def bring_to(temperature: str, dataset: pinfeed.ArrayDataset, path: Path) -> None:
    if temperature == "hot":
        collate = pinfeed.Collate(pinfeed.Keep() if len(dataset) == 0 else None)
        collate(dataset.__getitems__([0] * HOT))
        collate(dataset.__getitems__([0] * HOT))
    elif temperature == "cold":
        drop(path)


FIELDS = {
    "Stack": pinfeed.Stack(),
    "Stack cast": pinfeed.Stack(torch.float64),
    "Image": pinfeed.Image(mean=0.5),
    "Image channels_last": pinfeed.Image(channels_last=True),
    "Image padded": pinfeed.Image(pad_value=0, sizes=True, mask=True, multiple_of=8),
    "Pad": pinfeed.Pad(max_length=3, mask=True),
    "Pad left": pinfeed.Pad(max_length=3, side="left", dtype=torch.int32),
    "Pad time-major": pinfeed.Pad(time_major=True),
    "Jagged": pinfeed.Jagged(),
    "Keep": pinfeed.Keep(),
}


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no file system in memory here")
def test_files_in_memory_are_mapped() -> None:
    array = random_array((1000, 50), np.float64)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = saved(Path(folder), array)
        dataset, collate = pinfeed.ArrayDataset(path), pinfeed.Collate()
        for _ in range(3):
            batch = collate(dataset.__getitems__(np.arange(HOT)))
            assert_same_bits(batch.numpy(), array[:HOT])
        assert mappings(path) == 2


def mappings(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(path.name)


def test_only_what_is_in_memory_is_mapped(tmp_path: Path) -> None:
    path = saved(tmp_path, random_array((1000, 50), np.float64))
    dataset, collate = pinfeed.ArrayDataset(path), pinfeed.Collate()
    assert mappings(path) == 1  # NumPy's, for samples that are looked at one by one
    for _ in range(2):
        collate(dataset.__getitems__([0] * (HOT // 4)))
    assert mappings(path) == 1
    for _ in range(4):
        collate(dataset.__getitems__([0] * (HOT // 4)))
    assert mappings(path) == 2


@ignore_read_only
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kind", ["path", "memmap"])
def test_every_field(field: str, kind: str, temperature: str, tmp_path: Path) -> None:
    array = random_array((1000, 5, 7, 3), np.uint8)
    path = saved(tmp_path, array)
    dataset = pinfeed.ArrayDataset({"x": path if kind == "path" else np.load(path, "r")})
    bring_to(temperature, dataset, path)
    collate = pinfeed.Collate({"x": FIELDS[field]})
    memory = pinfeed.ArrayDataset({"x": array})
    rng = np.random.default_rng(0)
    for indices in (rng.integers(-1000, 1000, 700), np.arange(5, 300), [3], [999, 999, 0, 1, 2]):
        assert_same(collate(dataset.__getitems__(indices)), collate(memory.__getitems__(indices)))


# Views of the memmap of an array of shape (40, 6, 5): with gaps, mirrored, across.
VIEWS: dict[str, Any] = {
    "whole": lambda a: a,
    "some rows": lambda a: a[3:37],
    "backwards": lambda a: a[::-1],
    "stepped": lambda a: a[1::3],
    "crop": lambda a: a[:, 1:-1, 2:],
    "mirrored crop": lambda a: a[:, ::-1, 3:0:-1],
    "column": lambda a: a[:, :, 2],
    "one number a row": lambda a: a[:, 2, 3],
    "across": lambda a: a.transpose(1, 0, 2),
    "far across": lambda a: a.transpose(2, 1, 0),
    "broadcast": lambda a: np.broadcast_to(a[:, :1], (40, 6, 5)),
    "no items": lambda a: a[:, :0],
    "new dtype": lambda a: a.view(np.uint8),
    "bytes in between": lambda a: a.view(np.uint8)[:, :, 1:-1],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("rows")
    yield folder
    shutil.rmtree(folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("view", VIEWS)
def test_views(view: str, temperature: str, folder: Path, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(NUMPY_DTYPES))
    order = (
        data.draw(st.sampled_from("CF")) if view not in ("new dtype", "bytes in between") else "C"
    )
    path = folder / f"{np.dtype(dtype).name}-{order}.npy"
    if not path.exists():
        np.save(path, np.asarray(random_array((40, 6, 5), dtype), order=order))
    expected = VIEWS[view](np.load(path))
    dataset = pinfeed.ArrayDataset(VIEWS[view](np.load(path, mmap_mode="r")))
    bring_to(temperature, dataset, path)
    count = len(expected)
    indices = data.draw(st.lists(st.integers(-count, count - 1), min_size=1, max_size=60))
    assert_same_bits(pinfeed.Collate()(dataset.__getitems__(indices)).numpy(), expected[indices])


def test_ragged_values_are_read_too(temperature: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 40, 500)
    ragged = pinfeed.RaggedArray.from_sequences([rng.integers(0, 99, n) for n in lengths])
    ragged.save(tmp_path / "ragged")
    files = pinfeed.ArrayDataset(pinfeed.RaggedArray.open(tmp_path / "ragged"))
    memory = pinfeed.ArrayDataset(ragged)
    if temperature == "hot":
        pinfeed.Collate(pinfeed.Jagged())(files.__getitems__([0] * HOT))
    elif temperature == "cold":
        drop(tmp_path / "ragged" / "values.npy")
    for field in (pinfeed.Pad(mask=True), pinfeed.Jagged(), pinfeed.Pad(max_length=5, side="left")):
        collate, indices = pinfeed.Collate(field), rng.integers(0, 500, 400)
        assert_same(collate(files.__getitems__(indices)), collate(memory.__getitems__(indices)))


def test_writes_through_the_memmap_are_seen(temperature: str, tmp_path: Path) -> None:
    path = saved(tmp_path, np.zeros((10, 3)))
    memmap = np.load(path, mmap_mode="r+")
    dataset = pinfeed.ArrayDataset(memmap)
    bring_to(temperature, dataset, path)
    memmap[4] = 7
    assert pinfeed.Collate()(dataset.__getitems__([4, 3])).tolist() == [[7, 7, 7], [0, 0, 0]]


def test_changes_of_a_copy_on_write_map_are_seen(tmp_path: Path) -> None:
    memmap = np.load(saved(tmp_path, np.zeros((10, 3))), mmap_mode="c")
    memmap[4] = 7
    dataset = pinfeed.ArrayDataset(memmap)
    assert pinfeed.Collate()(dataset.__getitems__([4]))[0].tolist() == [7, 7, 7]


@pytest.mark.parametrize("how", ["deleted", "replaced"])
@pytest.mark.parametrize("kind", ["path", "memmap"])
def test_the_file_that_was_opened_counts(
    how: str, kind: str, temperature: str, tmp_path: Path
) -> None:
    array = random_array((50, 30), np.int32)
    path = saved(tmp_path, array)
    dataset = pinfeed.ArrayDataset(path if kind == "path" else np.load(path, mmap_mode="r"))
    bring_to(temperature, dataset, path)
    if how == "deleted":
        path.unlink()
    else:
        os.replace(saved(tmp_path, array + 1), path)
    indices = [7, -1, 0, 7]
    assert_same_bits(pinfeed.Collate()(dataset.__getitems__(indices)).numpy(), array[indices])


@pytest.mark.parametrize(
    "field", ["Stack", "Stack cast", "Image", "Pad", "Pad time-major", "Jagged"]
)
@pytest.mark.parametrize("kept", [0, 1, 128, 129, 4096, 5000, 20_127])
def test_a_file_cut_short_is_an_error(
    kept: int, field: str, temperature: str, tmp_path: Path
) -> None:
    path = saved(tmp_path, random_array((200, 20, 5), np.uint8))  # 128 bytes of header, 20,000
    dataset = pinfeed.ArrayDataset(path)
    bring_to(temperature, dataset, path)
    os.truncate(path, kept)
    with pytest.raises(OSError, match=f"{path.name}.*cut short: it has {kept} bytes, the array"):
        pinfeed.Collate(FIELDS[field])(dataset.__getitems__([5, 199]))


CUT_WHILE_READ = """
import os, sys, threading
import numpy as np, pinfeed, torch
path, field, hot = sys.argv[1], eval(sys.argv[2]), sys.argv[3] == "hot"
array = np.random.default_rng(0).integers(1, 256, (2000, 16, 16, 4), np.uint8)
rows = np.random.default_rng(1)
collate = pinfeed.Collate(field)
named = 0
for trial in range(25):
    np.save(path, array)
    dataset = pinfeed.ArrayDataset(path)
    if hot:
        pinfeed.Collate()(dataset.__getitems__([0] * 300))
    size = int(rows.integers(0, os.path.getsize(path)))
    cut = threading.Timer(float(rows.uniform(0, 0.004)), os.truncate, (path, size))
    cut.start()
    memory = pinfeed.ArrayDataset(array)
    while True:
        indices = rows.integers(0, len(array), 256)
        try:
            batch = collate(dataset.__getitems__(indices))
        except OSError as error:
            assert os.path.basename(path) in str(error) and "cut short" in str(error), error
            named += 1
            break
        expected = collate(memory.__getitems__(indices))
        assert torch.equal(*(getattr(b, "values", b) if isinstance(b, tuple) else b
                             for b in (batch, expected))), "what is missing came as data"
    cut.join()
print(named)
"""


@pytest.mark.parametrize("mode", ["read", "hot"])
@pytest.mark.parametrize(
    "field", ["pinfeed.Stack()", "pinfeed.Image()", "pinfeed.Pad()", "pinfeed.Jagged()"]
)
def test_a_file_cut_short_while_it_is_read(field: str, mode: str, tmp_path: Path) -> None:
    printed = run_python(CUT_WHILE_READ, str(tmp_path / "x.npy"), field, mode, timeout=240)
    assert printed.split() == ["25"]


def test_rows_that_nobody_asks_for_stay_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    mapped = np.lib.format.open_memmap(path, "w+", np.uint8, (64, 1 << 20))
    mapped[:] = 1
    mapped.flush()
    del mapped
    drop(path)
    code = """
import os, sys
import numpy as np, pinfeed
def at_hand(file, row):  # asking has the system read on there
    try:
        return os.preadv(file.fileno(), [bytearray(1)], row << 20, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
with open(sys.argv[1], "rb") as file:
    try:
        if at_hand(file, 20):
            raise OSError
    except OSError:
        print("the system does not forget")
        sys.exit()
    dataset, collate = pinfeed.ArrayDataset(sys.argv[1]), pinfeed.Collate()
    for _ in range(100):
        collate(dataset.__getitems__([0, 1, 2, 3, 3, 3]))
    print(at_hand(file, 50))
"""
    printed = run_python(code, str(path)).strip()
    if printed not in ("False", "True"):
        pytest.skip(printed)
    assert printed == "False"


def test_file_names_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.npy")
    array = random_array((20, 3), np.int16)
    np.save(path, array)
    mapped = np.load(path, mmap_mode="r")
    for leaf in (path, mapped, pinfeed.ConcatArray([path, path])):
        dataset = pickle.loads(pickle.dumps(pinfeed.ArrayDataset(leaf)))
        assert_same_bits(pinfeed.Collate()(dataset.__getitems__([7])).numpy(), array[7:8])
    os.truncate(path, 200)
    with pytest.raises(OSError, match="was cut short: it has 200 bytes, row 19 ") as raised:
        pinfeed.Collate()(dataset.__getitems__([19]))
    assert str(raised.value).startswith(str(path))


@pytest.mark.processes
@pytest.mark.parametrize("faulthandler", ["never", "before", "between"])
def test_other_bus_errors_still_end_the_process(faulthandler: str, tmp_path: Path) -> None:
    code = """
import ctypes, faulthandler, mmap, os, sys
import numpy as np, pinfeed
faulthandler.disable()
np.save(sys.argv[1], np.zeros((10, 3)))
dataset = pinfeed.ArrayDataset(sys.argv[1])
for enabled in ("before", "between", "after"):
    if sys.argv[2] == enabled:
        faulthandler.enable(open(os.devnull, "w"))
    for _ in range(2):
        pinfeed.Collate()(dataset.__getitems__([0] * 300))
if os.fork() == 0:
    with open(sys.argv[1] + "x", "wb+") as file:
        file.truncate(8192)
        mapping = mmap.mmap(file.fileno(), 8192)
        file.truncate(0)
        mapping[5000]
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert run_python(code, str(tmp_path / "x.npy"), faulthandler).split() == ["-7"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("kind", ["path", "memmap"])
def test_in_workers(kind: str, method: str, temperature: str, tmp_path: Path) -> None:
    array = random_array((400, 100), np.int16)
    path = saved(tmp_path, array)
    dataset = pinfeed.ArrayDataset(path if kind == "path" else np.load(path, mmap_mode="r"))
    bring_to(temperature, dataset, path)
    loader = DataLoader(
        dataset, 50, collate_fn=pinfeed.Collate(), num_workers=2, multiprocessing_context=method
    )
    for _ in range(2):
        assert_same_bits(torch.cat(list(loader)).numpy(), array)


def test_in_threads(temperature: str, tmp_path: Path) -> None:
    array = random_array((2000, 500), np.int16)
    path = saved(tmp_path, array)
    dataset, collate = pinfeed.ArrayDataset(path), pinfeed.Collate()
    bring_to(temperature, dataset, path)
    wrong = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            indices = rng.integers(0, 2000, 100)
            if not np.array_equal(collate(dataset.__getitems__(indices)).numpy(), array[indices]):
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_pickles_stay_small(temperature: str, tmp_path: Path) -> None:
    array = random_array((1000, 50), np.float64)
    path = saved(tmp_path, array)
    dataset = pinfeed.ArrayDataset(path)
    bring_to(temperature, dataset, path)
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 2000
    copy = pickle.loads(pickled)
    assert_same_bits(pinfeed.Collate()(copy.__getitems__([3, 999])).numpy(), array[[3, 999]])


def test_datasets_close_their_files(temperature: str, tmp_path: Path) -> None:
    path = saved(tmp_path, random_array((1000, 50), np.float64))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        dataset = pinfeed.ArrayDataset((path, np.load(path, mmap_mode="r")))
        bring_to(temperature, dataset, path)
        pinfeed.Collate()(dataset.__getitems__([1, 2]))
    del dataset
    assert len(os.listdir("/proc/self/fd")) == before
    with open("/proc/self/maps") as maps:
        assert path.name not in maps.read()


STREAMED = """
import resource, sys
import numpy as np, pinfeed, torch
path, allowed = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_RSS, (allowed, allowed))  # Linux only takes note of it

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

def epoch(rows):
    loader = pinfeed.from_numpy(rows, 64, shuffle=True, device="cpu")
    return sum(int(batch[:, 0].long().sum()) for batch in loader)

epoch(np.zeros((640, 150_000), np.uint8))
before = peak()
sums = [epoch(path) for _ in range(2)]
assert sums[0] == sums[1], sums
print(peak() - before)
"""


@pytest.mark.processes
def test_memory_stays_bounded(tmp_path: Path) -> None:
    row, count, allowed = 150_000, 1800, 64 << 20  # the file is 4 times what is allowed
    path = tmp_path / "large.npy"
    large = np.lib.format.open_memmap(path, "w+", np.uint8, (count, row))
    for start in range(0, count, 100):
        large[start : start + 100] = random_array((100, row), np.uint8, start)
    del large
    grown = int(run_python(STREAMED, str(path), str(allowed), timeout=300))
    batch = 64 * row
    assert grown < 2 * batch + (16 << 20)


@pytest.mark.processes
def test_an_interrupt_ends_a_loop_over_files(tmp_path: Path) -> None:
    code = """
import signal, sys, threading
import numpy as np, pinfeed
np.save(sys.argv[1], np.zeros((4000, 30_000), np.uint8))
dataset, collate = pinfeed.ArrayDataset(sys.argv[1]), pinfeed.Collate()
rng = np.random.default_rng(0)
for _ in range(5):
    threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,)).start()
    try:
        while True:
            collate(dataset.__getitems__(rng.integers(0, 4000, 256)))
    except KeyboardInterrupt:
        print("interrupted")
"""
    assert run_python(code, str(tmp_path / "x.npy")).split() == ["interrupted"] * 5
