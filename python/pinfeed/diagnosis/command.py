"""``python -m pinfeed diagnose train.py:make_loader``."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from pinfeed.diagnosis.diagnose import diagnose


def main(arguments: list[str]) -> int:
    """Diagnoses the loader that a file makes, and prints the report."""
    parser = argparse.ArgumentParser("python -m pinfeed diagnose", description=main.__doc__)
    parser.add_argument("loader", help="train.py:make_loader, a function without arguments")
    parser.add_argument("--step", help="train.py:step, a function of a batch")
    parser.add_argument("--seconds", type=float, default=20, help="how long (default 20)")
    parser.add_argument("--trace", metavar="FILE", help="write trace events for Perfetto there")
    parser.add_argument("--json", action="store_true", help="print numbers instead of text")
    options = parser.parse_args(arguments)
    try:
        loader = _named(options.loader)()
        step = None if options.step is None else _named(options.step)
    except _NotFoundError as error:
        print(f"pinfeed diagnose: {error}", file=sys.stderr)
        return 2
    report = diagnose(loader, step, options.seconds)
    if options.trace is not None:
        report.save_trace(options.trace)
    print(json.dumps(report.to_dict(), indent=1) if options.json else report)
    return 0


class _NotFoundError(Exception):
    """There is no such file, or nothing of that name in it."""


def _named(place: str) -> Any:
    """The function that ``FILE:NAME`` says; the file is run once, as a module that workers can import."""
    file, _, name = place.rpartition(":")
    path = Path(file).resolve()
    if not file or not path.is_file():
        raise _NotFoundError(f"expected FILE:NAME with a file that there is, got {place!r}")
    module = sys.modules.get(path.stem)
    if getattr(module, "__file__", None) != str(path):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.parent))
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise _NotFoundError(f"{file} has no function {name!r}")
    return getattr(module, name)
