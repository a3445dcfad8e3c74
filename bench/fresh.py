"""What only a fresh process shows: page faults batch by batch, peak memory, and import time."""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BATCHES = 8

# What bench.probe can do in a fresh process: the key for it, and what a table calls it.
WAYS = {
    "pinfeed": "**pinfeed** `normalize`, pooled",
    "collate": "**pinfeed** `ArrayDataset`, `Collate(Image)`",
    "out": "**pinfeed** `normalize(out=)`",
    "torch": "torch, as usually written",
    "torch-out": "torch, best by hand, into `out`",
    "numpy": "NumPy, as usually written",
}


def _python(*arguments: str) -> str:
    """Run Python on the arguments and return what it prints; RuntimeError with its last line."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )
    if done.returncode:
        raise RuntimeError(
            (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        )
    return done.stdout


def probe_json(arguments: Sequence[str]) -> Any:
    """Run a module with its arguments in a fresh process and return the JSON it prints."""
    return json.loads(_python("-m", *arguments))


def probe(name: str, role: str, arguments: Sequence[str], values) -> dict[str, Any]:
    """Run a probe, given as a module and its arguments, and make a row of what it reports."""
    way: dict[str, Any] = {"name": name, "role": role, "status": "ok", "note": ""}
    try:
        way["report"] = probe_json(arguments)
        way["values"] = values(way["report"])
    except RuntimeError as error:
        missing = "ModuleNotFoundError" in str(error)
        way["status"] = "not installed" if missing else "failed"
        way["note"] = str(error)[:200]
    return way


def _role(key: str) -> str:
    return "pinfeed" if key in ("pinfeed", "collate", "out") else "peer"


def faults(name: str) -> dict[str, Any]:
    """Minor page faults of each of the first batches, and what the later ones cost."""
    ways = []
    for kept in (0, 1):
        pattern = "the last one kept" if kept else "each one dropped"
        for key, label in WAYS.items():
            ways.append(
                probe(
                    f"{label}, {pattern}",
                    _role(key),
                    ["bench.probe", "faults", key, str(BATCHES), str(kept)],
                    lambda report: [
                        *report["faults"],
                        f"{statistics.median(report['seconds'][2:]) * 1e3:.1f} ms",
                    ],
                )
            )
            ways[-1] |= {"key": key, "kept": kept}
    return {
        "name": name,
        "title": "Minor page faults per batch in a fresh process, 256x224x224x3 → float32 NCHW",
        "kind": "counts",
        "columns": [*(f"batch {i + 1}" for i in range(BATCHES)), "median of 3 and on"],
        "ways": ways,
    }


def memory(name: str) -> dict[str, Any]:
    """Peak memory beyond the input and the batches that the caller holds."""
    ways = []
    for kept in (0, 1, 4):
        for key, label in WAYS.items():
            if kept and key in ("out", "torch-out"):
                continue  # one output can't hold several batches
            ways.append(
                probe(
                    f"{label}, {kept} kept",
                    _role(key),
                    ["bench.probe", "memory", key, "24", str(kept)],
                    lambda report: [report["beyond"]],
                )
            )
            ways[-1] |= {"key": key, "kept": kept}
    return {
        "name": name,
        "title": "Peak memory beyond the input and the batches kept, in batches of 154 MB",
        "kind": "counts",
        "columns": ["batches"],
        "ways": ways,
    }


def import_time(name: str) -> dict[str, Any]:
    """Seconds that `import pinfeed` takes after `import torch`, the runs alternating."""
    modules = {
        "numpy": "numpy",
        "torch": "torch, after numpy",
        "pinfeed": "**pinfeed**, after torch",
    }
    samples: dict[str, list[float]] = {module: [] for module in modules}
    notes: dict[str, str] = {}
    for _ in range(7):
        for module in modules:
            before = {"numpy": "", "torch": "import numpy\n"}.get(module, "import numpy, torch\n")
            code = (
                f"import time\n{before}start = time.perf_counter()\nimport {module}\n"
                "print(time.perf_counter() - start)"
            )
            try:
                samples[module].append(float(_python("-c", code)))
            except RuntimeError as error:
                notes[module] = str(error)[:200]
    ways = [
        {
            "name": label,
            "role": "pinfeed" if module == "pinfeed" else "peer",
            "status": "failed" if module in notes else "ok",
            "note": notes.get(module, ""),
            "values": [statistics.median(samples[module]), min(samples[module])]
            if samples[module]
            else None,
        }
        for module, label in modules.items()
    ]
    return {
        "name": name,
        "title": "Import time",
        "kind": "counts",
        "columns": ["median, s", "best, s"],
        "ways": ways,
    }


WORKLOADS = {"page-faults": faults, "memory": memory, "import": import_time}
