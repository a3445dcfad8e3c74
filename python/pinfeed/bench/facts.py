"""What a reader has to know about the machine to make sense of a measurement."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import pinfeed

PACKAGES = (
    "pinfeed",
    "numpy",
    "torch",
    "torchvision",
    "opencv-python-headless",
    "albumentations",
    "numba",
    "transformers",
)


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine_facts() -> dict[str, Any]:
    """Return the CPU, its usable count, the system, versions, and what pinfeed dispatches to."""
    return {
        "cpu": _cpu_model(),
        "cpus": _cpus(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {package: _version(package) for package in PACKAGES},
        "pinfeed": pinfeed.build_config(),
    }
