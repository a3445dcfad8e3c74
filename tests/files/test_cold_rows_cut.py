"""Files that are cut, replaced or deleted while their rows are read."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pinfeed
from arrays import assert_same_bits, random_array
from cold_files import FIELDS, bring_to, every_temperature, saved
from programs import run_python

pytestmark = pytest.mark.kernels


@every_temperature
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


@every_temperature
@pytest.mark.parametrize("field", ["Stack", "Stack cast", "Image", "Pad time-major", "Jagged"])
@pytest.mark.parametrize("kept", [0, 1, 128, 4096, 20_127])
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
for trial in range(10):
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
    assert printed.split() == ["10"]


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


@every_temperature
@pytest.mark.parametrize("view", ["windows", "strided", "memoryview", "frombuffer"])
def test_views_that_hide_their_file(view: str, temperature: str, tmp_path: Path) -> None:
    path = saved(tmp_path, random_array((500,), np.int64))
    mapped = np.load(path, mmap_mode="r")
    if view == "windows":
        windows: Any = np.lib.stride_tricks.sliding_window_view(mapped, 8)
    elif view == "memoryview":
        windows = np.asarray(memoryview(mapped)[20:420]).reshape(100, 4)
    elif view == "frombuffer":
        windows = np.frombuffer(memoryview(mapped[20:420]), np.int32).reshape(100, 8)
    else:
        windows = np.lib.stride_tricks.as_strided(mapped, (100, 4), (32, 8))
    dataset = pinfeed.ArrayDataset(windows)
    bring_to(temperature, dataset, path)
    indices = [3, 99, 0, 3]
    assert_same_bits(
        pinfeed.Collate()(dataset.__getitems__(indices)).numpy(), np.array(windows)[indices]
    )
    assert len(pickle.dumps(dataset)) < 1000
    assert_same_bits(pickle.loads(pickle.dumps(dataset))[7], np.array(windows[7]))
    os.truncate(path, 200)
    with pytest.raises(OSError, match="cut short"):
        pinfeed.Collate()(dataset.__getitems__(indices))
    with pytest.raises(OSError, match="cut short"):
        pinfeed.gather(windows, indices)
