"""``python -m pinfeed info | demo | bench``."""

from __future__ import annotations

import importlib
import sys

from pinfeed.optional import MissingExtraError

_USAGE = """usage: python -m pinfeed COMMAND [options]

  info    versions, instruction sets, threads, what accelerator there is
  demo    two real photographs, a small CNN, torch's own way against pinfeed's
  bench   a short benchmark on this machine

python -m pinfeed COMMAND --help tells a command's options."""

_COMMANDS = ("info", "demo", "bench")


def main(arguments: list[str]) -> int:
    """Runs one command and returns the process's exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if arguments else 2
    command, *options = arguments
    if command not in _COMMANDS:
        print(f"pinfeed: no command {command!r}; there are {', '.join(_COMMANDS)}", file=sys.stderr)
        return 2
    # Imported on use: the demo and the bench bring libraries that a training job has no need of.
    try:
        status: int = importlib.import_module(f"pinfeed.{command}").main(options)
    except MissingExtraError as error:
        print(f"pinfeed {command}: {error}", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
