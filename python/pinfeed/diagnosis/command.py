"""``python -m pinfeed diagnose train.py:make_loader``."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
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
            loader = _named(options.loader)
            if callable(loader):
                loader = _call(loader, options.loader)
            step = None if options.step is None else _named(options.step)
            report = diagnose(loader, step, options.seconds)
    except (TypeError, ValueError, RuntimeError) as error:
        problem = error.args[0] if error.args else None
        if not isinstance(problem, Problem) or problem.subject != "diagnose":
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


def _call(function: Callable[[], Any], location: str) -> Any:
    """Returns the loader that a function creates.

    Raises:
        TypeError: If it needs arguments.
    """
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        wrong = f"{location} must not need arguments, but is {error}"
        hint = "give its arguments defaults, or name a function without arguments that calls it"
        raise TypeError(Problem("diagnose", wrong, hint=hint)) from None
    return function()


def _named(location: str) -> Any:
    """Returns the function or loader ``FILE:NAME``; runs the file once, as a module for workers.

    Raises:
        ValueError: If the file does not exist, or has no such name.
    """
    file, _, name = location.rpartition(":")
    path = Path(file).resolve()
    if not file or not path.is_file():
        hint = "write, for example, train.py:make_loader"
        raise ValueError(
            Problem("diagnose", "FILE.py:NAME of an existing file", repr(location), hint)
        )
    module = sys.modules.get(path.stem)
    if getattr(module, "__file__", None) != str(path):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.parent))
        sys.modules[path.stem] = module
        sys.argv = [file]  # as in a direct run
        spec.loader.exec_module(module)
    value = getattr(module, name, None)
    if value is None:
        wrong = f"{file} has no function or DataLoader {name!r}"
        hint = "define it at the top of the file, outside of if __name__ == '__main__'"
        raise ValueError(Problem("diagnose", wrong, hint=hint))
    return value
