"""Versions and settings for a bug report."""

from __future__ import annotations

import os
import platform

import numpy as np
import torch

from pinfeed import _core
from pinfeed.functional import torch_ops
from pinfeed.memory.main_process import worker_memory_limit
from pinfeed.runtime import get_num_threads


def show_config() -> None:
    """Prints versions, CPU, threads and accelerator, for a bug report.

    ``python -m pinfeed info`` prints the same.

    Example:
        >>> pinfeed.show_config()  # doctest: +ELLIPSIS
        pinfeed      ... (built with ...)
        python       3...
        numpy        ...
        torch        ...
        kernels      ...; this CPU runs ...scalar
        threads      ...
        ...
    """
    for name, fact in facts().items():
        print(f"{name:12} {fact}")


def facts() -> dict[str, str]:
    """Returns versions, instruction sets, threads and accelerator of this process."""
    has_accelerator = torch.accelerator.is_available()
    pinned = "pinned once the accelerator is in use" if has_accelerator else "not pinned"
    return {
        "pinfeed": f"{_core.version} (built with {_core.compiler})",
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "numpy": np.__version__,
        "torch": torch.__version__,
        "kernels": f"{_core.active_isa()}; this CPU runs {', '.join(_core.available_isas())}",
        "threads": f"{get_num_threads()} on {_core.available_cpus()} CPUs",
        "accelerator": _accelerator(),
        "torch ops": torch_ops.status(),
        "batches": f"reused buffers, {pinned}",
        "workers": _worker_batches(),
        "debug": f"PINFEED_DEBUG={os.environ.get('PINFEED_DEBUG', '0')}",
    }


def _worker_batches() -> str:
    """How DataLoader workers send batches."""
    try:
        os.close(_core.create_shared_file("pinfeed"))
    except OSError as error:
        return f"torch's shared memory, because pinfeed's is not available: {error}"
    return f"reused shared memory, at most {worker_memory_limit() / 2**30:.1f} GiB per loader"


def _accelerator() -> str:
    if torch.cuda.is_available():
        return f"CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}"
    if torch.accelerator.is_available():
        return str(torch.accelerator.current_accelerator())
    return "none"
