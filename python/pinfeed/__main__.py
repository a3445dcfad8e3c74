"""``python -m pinfeed info | demo | diagnose``."""

from __future__ import annotations

import argparse
import os
import platform
import sys

import numpy as np
import torch

from pinfeed import _core
from pinfeed.diagnosis.command import main as diagnose
from pinfeed.memory.trainer import arena_limit
from pinfeed.optional import MissingExtraError
from pinfeed.runtime import build_config, get_num_threads

_USAGE = """usage: python -m pinfeed COMMAND [options]

  info      versions, instruction sets, threads, what accelerator there is
  demo      two real photographs, a small CNN, torch's own way against pinfeed's
  diagnose  which stage of a training loop is slow, and what to change

python -m pinfeed COMMAND --help tells a command's options."""

_COMMANDS = ("info", "demo", "diagnose")


def main(arguments: list[str]) -> int:
    """Runs one command and returns the process's exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if arguments else 2
    command, *options = arguments
    if command not in _COMMANDS:
        print(f"pinfeed: no command {command!r}; there are {', '.join(_COMMANDS)}", file=sys.stderr)
        return 2
    if command == "info":
        return info(options)
    if command == "diagnose":
        return diagnose(options)
    # Imported on use: the demo brings libraries that a training job has no need of.
    from pinfeed import demo

    try:
        return demo.main(options)
    except MissingExtraError as error:
        print(f"pinfeed demo: {error}", file=sys.stderr)
        return 1


def info(arguments: list[str]) -> int:
    """Prints what a bug report should say, one fact a line."""
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
    pinned = "once the accelerator is in use" if has_accelerator else "no"
    return {
        "pinfeed": f"{config['version']} ({config['compiler']})",
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "numpy": np.__version__,
        "torch": torch.__version__,
        "isa": f"{isa['active']} in use; this CPU runs {', '.join(isa['available'])}",
        "threads": f"{get_num_threads()} of {_core.available_cpus()} CPUs",
        "accelerator": _accelerator(),
        "batches": f"pooled memory; pinned: {pinned}",
        "workers": _workers(),
        "debug": "poisoned buffers" if os.environ.get("PINFEED_DEBUG") == "1" else "off",
    }


def _workers() -> str:
    """Where the batches of DataLoader workers go."""
    try:
        os.close(_core.create_shared_file("pinfeed"))
    except OSError as error:
        return f"torch's shared memory, for an arena can't be had: {error}"
    return f"an arena of at most {arena_limit() / 2**30:.1f} GiB for each loader"


def _accelerator() -> str:
    if torch.cuda.is_available():
        return f"CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}"
    if torch.accelerator.is_available():
        return str(torch.accelerator.current_accelerator())
    return "none (no CUDA)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
