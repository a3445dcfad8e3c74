"""Draws memory over time while a loader becomes one array: ``PYTHONPATH=. python docs/plots/to_numpy_memory.py``.

Linux only, because it reads /proc. Each alternative runs in its own process.
"""

import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from drawing import LIMIT, OTHER_PEER, PEER, PINFEED, new_plot, save_plot
from torch.utils.data import DataLoader

import pinfeed

SAMPLES, WIDTH, BATCH = 250_000, 1024, 1000  # 1.02 GB of float32

ALTERNATIVES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "pinfeed.to_numpy(loader)": (PINFEED, pinfeed.to_numpy),
    "torch.cat(list(loader))": (PEER, lambda loader: torch.cat(list(loader)).numpy()),
    "np.concatenate([...])": (
        OTHER_PEER,
        lambda loader: np.concatenate([batch.numpy() for batch in loader]),
    ),
}


def predictions(size: int) -> DataLoader[Any]:
    """Returns a loader whose batches are fresh memory each time, like the outputs of a model."""
    outputs = torch.arange(float(WIDTH)).repeat(BATCH, 1)
    return DataLoader(range(size), BATCH, collate_fn=lambda indices: outputs + indices[0])


def run(name: str) -> None:
    """Runs in its own process, after a small run that imports modules and allocates lasting memory."""
    torch.set_num_threads(1)
    convert = ALTERNATIVES[name][1]
    convert(predictions(2 * BATCH))
    print("ready", flush=True)
    input()
    result = convert(predictions(SAMPLES))
    print("done", flush=True)
    input()  # the result lives on for a moment
    assert len(result) == SAMPLES


def trace(name: str) -> tuple[list[float], list[float]]:
    """Returns seconds since the start, and gigabytes above the initial memory of the process."""
    command = [sys.executable, __file__, name]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, bufsize=1, **pipes) as child:
        child.stdout.readline()
        before, start = resident(child.pid), time.perf_counter()
        child.stdin.write("\n")
        seconds, gigabytes = [], []
        is_done = False
        while not is_done:
            is_done = bool(select.select([child.stdout], [], [], 0.002)[0])
            seconds.append(time.perf_counter() - start)
            gigabytes.append((resident(child.pid) - before) / 1e9)
        child.stdout.readline()
        child.stdin.write("\n")
    if child.returncode:
        raise RuntimeError(f"{name} failed")
    return seconds, gigabytes


def resident(pid: int) -> int:
    """Bytes of memory that the process uses."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def main() -> None:
    """Draws one line per alternative."""
    figure, axes = new_plot(f"Memory while {SAMPLES:,} predictions become one array")
    size = SAMPLES * WIDTH * 4 / 1e9
    axes.axhline(size, color=LIMIT, linewidth=1, linestyle="--", label=f"the result: {size:.2f} GB")
    for name, (color, _) in ALTERNATIVES.items():
        seconds, gigabytes = trace(name)
        peak = max(gigabytes)
        axes.plot(seconds, gigabytes, color=color, label=f"{name}: peak {peak:.2f} GB")
        axes.plot(seconds[-1], gigabytes[-1], "o", color=color, markersize=4)
        print(f"{name}: {seconds[-1]:.2f} s, peak {peak:.3f} GB, {peak / size:.3f} of the result")
    axes.set(xlabel="seconds", ylabel="GB", xlim=0, ylim=0)
    axes.legend(frameon=False, fontsize=9)
    save_plot(figure, "to-numpy-memory")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1])
    else:
        main()
