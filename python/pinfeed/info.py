"""``python -m pinfeed info``: what a bug report should say."""

from __future__ import annotations

import argparse
import os
import platform

import numpy as np
import torch

from pinfeed import _core
from pinfeed.memory.trainer import ensure_arena, refusal
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
        "batches": f"pooled memory; pinned: {_pinned()}",
        "workers": _workers(),
        "debug": "poisoned buffers" if os.environ.get("PINFEED_DEBUG") == "1" else "off",
    }


def _pinned() -> str:
    """Whether batches that are made in the trainer's process are pinned."""
    if torch.accelerator.is_available():
        return "once the accelerator is in use"
    return "no"


def _workers() -> str:
    """Where the batches of DataLoader workers go."""
    arena = ensure_arena()
    if arena is None:
        return f"torch's shared memory, for an arena can't be had: {refusal()}"
    can_pin = "once CUDA is in use" if torch.cuda.is_available() else "no"
    return f"an arena of at most {arena.stats()['max_bytes'] / 2**30:.1f} GiB; pinned: {can_pin}"


def _accelerator() -> str:
    if torch.cuda.is_available():
        return f"CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}"
    if torch.accelerator.is_available():
        return str(torch.accelerator.current_accelerator())
    return "none (no CUDA)"
