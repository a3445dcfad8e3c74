"""``python -m pinfeed diagnose train.py:make_loader``."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pinfeed.arguments import Problem
from pinfeed.diagnosis.diagnose import diagnose


def main(arguments: list[str]) -> int:
    """Diagnoses the loader of a Python file, and prints the report."""
    parser = argparse.ArgumentParser("python -m pinfeed diagnose", description=main.__doc__)
    parser.add_argument("loader", help="train.py:make_loader, a function, or a DataLoader")
    parser.add_argument("--step", help="train.py:step, a function of a batch")
    parser.add_argument("--seconds", type=float, default=20, help="how long (default 20)")
    parser.add_argument("--json", action="store_true", help="print numbers instead of text")
    options = parser.parse_args(arguments)
    if not 0.1 <= options.seconds <= 1e6:
        parser.error("--seconds must be from 0.1 to 1e6")
    try:
        with _printing_to_stderr():
            loader = _made(_named(options.loader), options.loader)
            step = None if options.step is None else _named(options.step)
            report = diagnose(loader, step, options.seconds)
    except (TypeError, ValueError, RuntimeError) as error:
        problem = Problem.of(error)
        if problem is None or problem.subject != "diagnose":
            raise  # an error of the user's code
        print(f"pinfeed {problem}", file=sys.stderr)
        return 2
    print(json.dumps(report.to_dict(), indent=1) if options.json else report)
    return 0


@contextlib.contextmanager
def _printing_to_stderr() -> Iterator[None]:
    """Redirects the file's and its workers' output to stderr, so that stdout has only the report."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def _named(location: str) -> Any:
    """Returns the loader or function ``FILE:NAME``; runs the file once, as a module for workers."""
    file, _, name = location.rpartition(":")
    path = Path(file).resolve()
    if not file or not path.is_file():
        hint = "write, for example, train.py:make_loader"
        raise ValueError(
            Problem("diagnose", "FILE.py:NAME of an existing file", repr(location), hint)
        )
    sys.path.insert(0, str(path.parent))
    sys.argv = [file]  # as in a direct run
    value = getattr(importlib.import_module(path.stem), name, None)
    if value is None:
        wrong = f"{file} has no function or DataLoader {name!r}"
        hint = "define it at the top of the file, outside of if __name__ == '__main__'"
        raise ValueError(Problem("diagnose", wrong, hint=hint))
    return value


def _made(loader: Any, location: str) -> Any:
    """Returns the loader, or calls the function that returns it."""
    try:
        return loader() if callable(loader) else loader
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next:  # raised by the function
            raise
        hint = "give its arguments defaults, or name a function without arguments that calls it"
        wrong = f"{location} must not need arguments: {error}"
        raise TypeError(Problem("diagnose", wrong, hint=hint)) from None
