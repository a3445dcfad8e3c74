"""What the benchmarks print and write: the machine, the times of a workload, tables."""

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pinfeed

PACKAGES = (
    "pinfeed",
    "numpy",
    "torch",
    "torchvision",
    "opencv-python-headless",
    "albumentations",
    "numba",
    "transformers",
)


def show_progress(line: str) -> None:
    """Overwrite the last line of a terminal; say nothing to a file or a pipe."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def machine_facts() -> dict[str, Any]:
    """Return the CPU, its usable count, the system, versions, and what pinfeed dispatches to."""
    return {
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {package: _version(package) for package in PACKAGES},
        "pinfeed": pinfeed.build_config(),
    }


def _cpu_model() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def facts_line(facts: Mapping[str, Any]) -> str:
    """Return the machine and the versions in one line."""
    packages = ", ".join(
        f"{name} {version}"
        for name, version in facts["packages"].items()
        if version != "not installed"
    )
    return (
        f"{facts['cpu']}, {facts['cpus']} CPUs, {facts['system']}, Python {facts['python']}, "
        f"{packages}; instruction set: {facts['pinfeed']['isa']['active']}"
    )


def workload_table(result: Mapping[str, Any]) -> str:
    """Return the times of one workload under its heading, with what did not run and why."""
    header = ["way", "median", "best", "to the limit", "to pinfeed"]
    rows = []
    for way in result["ways"]:
        if "median_s" in way:
            ratios = [way["to_limit"], way["to_pinfeed"]]
            cells = [f"{_digits(ratio['median'])} x" if ratio else "-" for ratio in ratios]
            rows.append([way["name"], duration(way["median_s"]), duration(way["min_s"]), *cells])
        else:
            rows.append([way["name"], way["status"], "-", "-", "-"])
    notes = [
        f"- {way['name']}: {way['status']} ({way['note']})" for way in result["ways"] if way["note"]
    ]
    return "\n".join([f"### {result['title']}", "", table(header, rows), "", *notes])


def duration(seconds: float) -> str:
    """Write a time with the unit that suits it, to three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _digits(value: float) -> str:
    """Write a number to three digits, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a markdown table whose columns line up in plain text too."""
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(
        "| " + " | ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) + " |"
        for line in (lines[0], rule, *lines[1:])
    )


def write_json(path: Path, facts: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> None:
    """Write the machine's facts and every result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"facts": facts, "workloads": results}, indent=1) + "\n")
