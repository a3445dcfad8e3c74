"""``python -m pinfeed info | diagnose``, and ``--version``."""

from __future__ import annotations

import argparse
import os
import platform
import sys

import numpy as np
import torch

from pinfeed import _core
from pinfeed.arguments import nearest
from pinfeed.diagnosis.command import main as diagnose
from pinfeed.functions import torch_ops
from pinfeed.memory.main_process import worker_memory_limit
from pinfeed.runtime import build_config, get_num_threads

_USAGE = """usage: python -m pinfeed COMMAND [options]

  info       versions, CPU, threads and accelerator, for a bug report
  diagnose   find the slow stage of your training loop, and what to change

  --version  the version of pinfeed

python -m pinfeed COMMAND --help lists the options of a command."""

_COMMANDS = ("info", "diagnose")


def main(arguments: list[str]) -> int:
    """Runs one command and returns the process's exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if arguments else 2
    command, *options = arguments
    if command in ("-V", "--version"):
        print(f"pinfeed {_core.version}")
        return 0
    if command not in _COMMANDS:
        hint = nearest(command, _COMMANDS) or f"there are {', '.join(_COMMANDS)}"
        print(f"pinfeed: there is no command {command!r}; {hint}", file=sys.stderr)
        return 2
    return info(options) if command == "info" else diagnose(options)


def info(arguments: list[str]) -> int:
    """Prints versions, CPU, threads and accelerator, for a bug report."""
    argparse.ArgumentParser("python -m pinfeed info", description=info.__doc__).parse_args(
        arguments
    )
    for name, fact in facts().items():
        print(f"{name:12} {fact}")
    return 0


def facts() -> dict[str, str]:
    """Versions, instruction sets, threads and accelerator of this process."""
    config = build_config()
    isa = config["isa"]
    has_accelerator = torch.accelerator.is_available()
    pinned = "pinned once the accelerator is in use" if has_accelerator else "not pinned"
    return {
        "pinfeed": f"{config['version']} (built with {config['compiler']})",
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "numpy": np.__version__,
        "torch": torch.__version__,
        "kernels": f"{isa['active']}; this CPU runs {', '.join(isa['available'])}",
        "threads": f"{get_num_threads()} on {_core.available_cpus()} CPUs",
        "accelerator": _accelerator(),
        "torch ops": torch_ops.status(),
        "batches": f"in memory that is used again, {pinned}",
        "workers": _workers(),
        "debug": f"PINFEED_DEBUG={os.environ.get('PINFEED_DEBUG', '0')}",
    }


def _workers() -> str:
    """Where the batches of DataLoader workers go."""
    try:
        os.close(_core.create_shared_file("pinfeed"))
    except OSError as error:
        return f"send batches through torch's shared memory, as pinfeed's can't be had: {error}"
    limit = f"{worker_memory_limit() / 2**30:.1f} GiB for each loader"
    return f"send batches through shared memory that is used again, at most {limit}"


def _accelerator() -> str:
    if torch.cuda.is_available():
        return f"CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}"
    if torch.accelerator.is_available():
        return str(torch.accelerator.current_accelerator())
    return "none"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
