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
    """Replaces the row with the same versions, and writes the table."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = [other for other in rows if any(other[name] != row[name] for name in COLUMNS[:5])]
    rows.append(row)
    rows.sort(key=lambda one: [*map(_number, one["Python"].split(".")), one["torch"], one["NumPy"]])
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    lines = [COLUMNS, ["---"] * len(COLUMNS), *([one[name] for name in COLUMNS] for one in rows)]
    table = "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)
    begin, end = MARK.format("begin"), MARK.format("end")
    text = PAGE.read_text(encoding="utf-8")
    head, tail = text.split(begin)[0], text.split(end)[1]
    PAGE.write_text(head + begin + table + end + tail, encoding="utf-8")


def _number(part: str) -> int:
    return int("".join(filter(str.isdigit, part)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
