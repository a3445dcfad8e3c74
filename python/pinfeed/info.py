"""``python -m pinfeed info``: what a bug report should say."""

from __future__ import annotations

import argparse
import os
import platform

import numpy as np
import torch

from pinfeed import _core
from pinfeed.runtime import build_config, get_num_threads


def main(arguments: list[str]) -> int:
    """Prints one fact a line."""
    argparse.ArgumentParser(prog="python -m pinfeed info", description=__doc__).parse_args(
        arguments
    )
    for name, fact in facts().items():
        print(f"{name:12} {fact}")
    return 0


def facts() -> dict[str, str]:
    """Versions, instruction sets, threads and accelerator of this process."""
    config = build_config()
    isa = config["isa"]
    return {
        "pinfeed": f"{config['version']} ({config['compiler']})",
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "numpy": np.__version__,
        "torch": torch.__version__,
        "isa": f"{isa['active']} in use; this CPU runs {', '.join(isa['available'])}",
        "threads": f"{get_num_threads()} of {_core.available_cpus()} CPUs",
        "accelerator": _accelerator(),
        "batches": "pageable memory, pooled; shared memory in DataLoader workers; pinned: no",
        "debug": "poisoned buffers" if os.environ.get("PINFEED_DEBUG") == "1" else "off",
    }


def _accelerator() -> str:
    if torch.cuda.is_available():
        return f"CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}"
    if torch.accelerator.is_available():
        return str(torch.accelerator.current_accelerator())
    return "none (no CUDA)"
