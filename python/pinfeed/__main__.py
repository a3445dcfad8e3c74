"""``python -m pinfeed info | diagnose``, and ``--version``."""

from __future__ import annotations

import argparse
import sys

from pinfeed import _core
from pinfeed.arguments import nearest
from pinfeed.diagnosis.command import main as diagnose
from pinfeed.diagnosis.configuration import show_config

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
        print(f"pinfeed: unknown command {command!r}; {hint}", file=sys.stderr)
        return 2
    return info(options) if command == "info" else diagnose(options)


def info(arguments: list[str]) -> int:
    """Prints what `pinfeed.show_config` prints."""
    argparse.ArgumentParser("python -m pinfeed info", description=info.__doc__).parse_args(
        arguments
    )
    show_config()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
