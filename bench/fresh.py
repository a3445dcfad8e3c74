"""Measurements in a fresh process: import time, memory of a dataset with workers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from torch.utils.data import default_collate

import pinfeed
from bench.data import epochs, held_bytes
from bench.harness import compare, other, ours, reference, workload
from bench.targets import at_most

PATHS, WORKERS, CHARACTERS = 1_000_000, 4, 53


def printed_by(code):
    """Returns the number that a fresh Python prints."""

    def run():
        command, folder = [sys.executable, "-c", code], Path(__file__).parents[1]
        # Without bytecode files, Python would compile each module again.
        environ = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
        result = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env=environ, check=False
        )
        if result.returncode:
            raise RuntimeError((result.stderr.splitlines() or ["no error message"])[-1])
        return float(result.stdout)

    return run


@workload(at_most(0.08, unit="s"))
def importing():
    """`import pinfeed`, after `import torch`."""

    def after(before, module):
        timed = f"start = time.perf_counter()\nimport {module}\nprint(time.perf_counter() - start)"
        return printed_by(f"import time\n{before}\n{timed}")

    # Otherwise a garbage collection of all of torch's objects would fall into the import.
    collected = "import gc, numpy, torch\ngc.collect()"
    return compare(
        ours("`import pinfeed`, after torch and a garbage collection", after(collected, "pinfeed")),
        ours("`import pinfeed`, after torch", after("import numpy, torch", "pinfeed")),
        other("`import torch`, after NumPy", after("import numpy", "torch")),
        other("`import numpy`", after("", "numpy")),
        returns="s",
    )


@workload(at_most(100, unit="bytes"))
def paths():
    """A path of 1,000,000, in a main process and its four forked workers after a shuffled epoch."""

    def bytes_of(kind):
        return printed_by(f"from bench.fresh import path_bytes\nprint(path_bytes({kind!r}))")

    return compare(
        reference("its characters", lambda: CHARACTERS),
        ours("`RaggedArray.from_strings`", bytes_of("pinfeed")),
        other("a list of str", bytes_of("list")),
        other("`np.array(paths, object)`", bytes_of("objects")),
        returns="bytes",
    )


def path_bytes(kind):
    """Returns the bytes per path, of the main process and its workers together, after an epoch."""
    name = "/data/imagenet/train/n{0:08d}/n{0:08d}_{1:07}.JPEG"
    drawn = (name.format(i % 1000 * 7919, i) for i in range(PATHS))
    options = {"workers": WORKERS, "multiprocessing_context": "fork"}
    idle = epochs(range(WORKERS), **options)
    sum(idle())
    before = held_bytes()  # of the processes themselves
    del idle
    if kind == "pinfeed":
        dataset = pinfeed.ArrayDataset(pinfeed.RaggedArray.from_strings(drawn))
    else:
        dataset = list(drawn) if kind == "list" else np.fromiter(drawn, object, PATHS)
    stack = pinfeed.Collate() if kind == "pinfeed" else default_collate
    options["batch_sampler"] = pinfeed.samplers.ShuffleSampler(PATHS, 1000)
    # It reads every path.
    epoch = epochs(dataset, collate=lambda samples: sum(map(len, stack(samples))), **options)
    characters = sum(epoch())
    if characters != CHARACTERS * PATHS:
        raise RuntimeError(f"{kind}: an epoch has {characters} characters, which is wrong")
    return (held_bytes() - before) / PATHS
