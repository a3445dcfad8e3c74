"""Runs tests and adds the result to the table of docs/compatibility.md.

Usage: PYTHON tools/compatibility.py NAME [PYTEST ARGUMENTS], with the Python to test and a name for these
tests. The row in compatibility.json, the source of the table, is replaced by the next run of the same tests
with the same versions.
"""

import collections
import json
import platform
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

DOCS = Path(__file__).parents[1] / "docs"
RESULTS, PAGE = Path(__file__).with_suffix(".json"), DOCS / "compatibility.md"
COLUMNS = ("Python", "torch", "NumPy", "system", "tests", "passed", "failed", "skipped")
MARK = "<!-- compatibility: {} -->\n"


class Outcomes:
    """Counts passed, failed and skipped tests; an error in setup, teardown or collection counts as a failure."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self._broken: set[str] = set()  # files, which each process reports

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Receives pytest's hook for each file or folder."""
        if report.failed and report.nodeid not in self._broken:
            self._broken.add(report.nodeid)
            self.counts["failed"] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Receives pytest's hook for each phase of a test."""
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1


def main(name: str, arguments: list[str]) -> int:
    """Runs pytest with these arguments and returns its exit status."""
    outcomes = Outcomes()
    status = pytest.main(arguments, plugins=[outcomes])
    is_free_threaded = sysconfig.get_config_var("Py_GIL_DISABLED") == 1
    row = {
        "Python": platform.python_version() + "t" * is_free_threaded,
        "torch": torch.__version__,
        "NumPy": numpy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "tests": name,
        **{outcome: outcomes.counts[outcome] for outcome in ("passed", "failed", "skipped")},
    }
    if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        write(row)
    return int(status)


def write(row: dict[str, str | int]) -> None:
    """Replaces the row with the same versions, and writes the table into the page."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = [other for other in rows if any(other[name] != row[name] for name in COLUMNS[:5])]
    rows.append(row)
    rows.sort(key=lambda one: [*_numbers(one["Python"]), one["torch"], one["NumPy"]])
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    table = matrix(rows)
    begin, end = MARK.format("begin"), MARK.format("end")
    text = PAGE.read_text(encoding="utf-8")
    head, tail = text.split(begin)[0], text.split(end)[1]
    PAGE.write_text(head + begin + table + end + tail, encoding="utf-8")


def matrix(rows: list[dict[str, Any]]) -> str:
    """Returns a table of Python versions by torch versions, with the tests that ran."""
    versions = sorted({_minor(row["torch"]) for row in rows}, key=_numbers)
    header = ["Python", *(f"torch {version}" for version in versions), "NumPy"]
    lines = [header, ["---"] * len(header)]
    for python in dict.fromkeys(row["Python"] for row in rows):
        ours = [row for row in rows if row["Python"] == python]
        cells = []
        for version in versions:
            runs = [row for row in ours if _minor(row["torch"]) == version]
            is_full = any(row["tests"] != "smoke" for row in runs)
            failed = sum(row["failed"] for row in runs)
            text = ("all" if is_full else "smoke") + (f", {failed} failed" if failed else "")
            cells.append(text if runs else "")
        lines.append([python, *cells, ", ".join(dict.fromkeys(row["NumPy"] for row in ours))])
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _numbers(version: str) -> list[int]:
    return [*map(_number, version.split("."))]


def _number(part: str) -> int:
    return int("".join(filter(str.isdigit, part)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
