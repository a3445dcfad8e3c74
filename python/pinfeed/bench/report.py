"""Turns measurements into a markdown table and a JSON file."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


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


def _ratio(ratios: Mapping[str, float] | None) -> str:
    return f"{_digits(ratios['median'])} x" if ratios else "-"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a markdown table whose columns line up in plain text too."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    right = [False] + [True] * (len(header) - 1)

    def cells(line: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if align else cell.ljust(width)
            for cell, width, align in zip(line, widths, right, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = (
        "-" * (width - 1) + (":" if align else "-")
        for width, align in zip(widths, right, strict=True)
    )
    return "\n".join([cells(lines[0]), f"| {' | '.join(rule)} |", *map(cells, lines[1:])])


def _timing_rows(result: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    for way in result["ways"]:
        if "median_s" not in way:
            yield [way["name"], way["status"], "-", "-", "-"]
            continue
        yield [
            way["name"],
            duration(way["median_s"]),
            duration(way["min_s"]),
            _ratio(way["to_limit"]),
            _ratio(way["to_pinfeed"]),
        ]


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}"


def _count_rows(result: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    for way in result["ways"]:
        values = way.get("values")
        if values is None:
            yield [way["name"], way["status"], *["-"] * (len(result["columns"]) - 1)]
        else:
            yield [way["name"], *map(_cell, values)]


def _notes(result: Mapping[str, Any]) -> str:
    notes = [
        f"- {way['name']}: {way['status']} ({way['note']})" for way in result["ways"] if way["note"]
    ]
    return "\n".join(["", *notes]) if notes else ""


def workload_table(result: Mapping[str, Any]) -> str:
    """Return the table of one workload under its heading, with what did not run and why."""
    if result["kind"] == "timing":
        header = ["way", "median", "best", "to the limit", "to pinfeed"]
        body = table(header, _timing_rows(result))
    else:
        body = table(["way", *result["columns"]], _count_rows(result))
    return f"### {result['title']}\n\n{body}\n{_notes(result)}"


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


def write_json(path: Path, facts: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> None:
    """Write the machine's facts and every result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"facts": facts, "workloads": results}, indent=1) + "\n")
