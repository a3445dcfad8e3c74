"""The report: the machine, tables of workloads, targets and measured values."""

import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pinfeed
from bench.harness import WORKLOADS
from bench.targets import FASTEST, NotMeasured, Record, Verdict, find, value
from pinfeed import _core

PACKAGES = ("numpy", "torch", "torchvision", "opencv-python-headless", "albumentations", "numba")
PACKAGES += ("transformers", "datasets", "trl", "ray", "tensorflow-cpu")

ALONE_HEADER = ("workload", "job", "pinfeed", "reference")
MAIN_HEADER = (*ALONE_HEADER[:2], FASTEST, "pinfeed", "alternative", "factor", "reference")
# The areas of the main table: a heading and a sentence, by the module of a workload.
IMAGES = (
    "Images",
    "Batches of decoded images: normalized, cropped, resized, padded, cut into patches.",
)
AREAS = {
    "epochs": ("Epochs", "Whole shuffled epochs, with sampler and DataLoader."),
    "images": IMAGES,
    "augmentation": IMAGES,
    "photographs": IMAGES,
    "detection": IMAGES,
    "patches": IMAGES,
    "sequences": ("Sequences", "Batches of tokens and features: padded, joined, packed."),
    "batches": (
        "Small batches and single rows",
        "The fixed cost of a call, and of memory that is not reused.",
    ),
    "files": ("Files and streams", "Rows of files, cached and uncached, and streams."),
    "workers": ("Workers and threads", "Batches from two worker processes, or from two threads."),
    "conversions": ("Other frameworks", "NumPy arrays, TensorFlow datasets and Ray batches."),
    "fresh": ("Import time and memory", "Each is measured in a new process."),
}


def machine_facts() -> dict[str, Any]:
    """Returns the CPU, the number of usable CPUs, the system, versions, and the instruction set."""
    cpu = platform.processor() or platform.machine()
    if sys.platform == "linux":
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((x.partition(": ")[2] for x in lines if x.startswith("model name")), cpu)
    versions = {"pinfeed": pinfeed.__version__}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "cpu": cpu,
        "cpus": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": versions,
        "isa": _core.active_isa(),
    }


def facts_line(facts: Record) -> str:
    """Returns the machine and the versions in one line."""
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    machine = f"{facts['cpu']}, {facts['cpus']} CPUs, {facts['system']}, Python {facts['python']}"
    return f"{machine}, {packages}; instruction set: {facts['isa']}"


def short_facts_line(facts: Record) -> str:
    """Returns the machine and the main versions in one line."""
    machine = f"{facts['cpu']} ({facts['isa'].upper()}), {facts['cpus']} CPUs, {facts['system']}"
    return f"{machine}, Python {facts['python']}, torch {facts['packages']['torch']}"


def _amount(amount: float, unit: str | None) -> str:
    """Formats a time, or bytes, in the unit that suits it, with three digits, without an exponent."""
    units = {"MB": 1e6, "B": 1.0} if unit == "bytes" else {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    for name, size in units.items():
        if amount >= size:
            number = amount / size
            return f"{number:,.{0 if number >= 100 else 1 if number >= 10 else 2}f} {name}"
    return f"{amount * 1e9:.0f} ns"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Returns a Markdown table that lines up in plain text too; the first `words` columns are text."""
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width if i < words else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    aligned = [str.ljust if i < words else str.rjust for i in range(len(widths))]
    return "\n".join(
        f"| {' | '.join(f(x, w) for f, x, w in zip(aligned, line, widths, strict=True))} |"
        for line in (lines[0], rule, *lines[1:])
    )


def _factor(record: Record, alternative: Record, role: str = "pinfeed") -> str:
    """Formats an alternative's time as a multiple of the time of the role's first alternative."""
    try:
        factor = value(alternative) / value(find(record, "", role, alternative["job"]))
    except NotMeasured:
        return "-"
    return f"{factor:.{2 if factor < 2 else 1 if factor < 10 else 0}f}×"


def result_table(record: Record) -> str:
    """Returns a table of a workload's alternatives, and why some did not run."""
    rows, notes = [], []
    for each in record["alternatives"]:
        if each["status"] != "ok":
            notes.append(f"- {each['name']}: {each['status']} ({each['note']})")
            continue
        cells = [f"**pinfeed** {each['name']}" if each["role"] == "pinfeed" else each["name"]]
        times = value(each), min(each["samples"]["seconds"])
        cells += [_amount(time, record["returns"]) for time in times]
        cells += [_factor(record, each, role) for role in ("reference", "pinfeed")]
        has_faults = "faults" in each["samples"]
        rows.append([*cells, f"{value(each, 'faults'):,.0f}" if has_faults else "-"])
    header = ["alternative", "median", "best", "to the reference", "to pinfeed", "page faults"]
    heading = f"### `{record['name']}`: {record['title']}"
    return "\n\n".join([heading, table(header, rows), "\n".join(notes)]).strip()


def target_table(verdicts: Sequence[Verdict], missed: bool = False) -> str:
    """Returns the number of met targets, and a table of all targets, or of the missed ones."""
    words = {True: "met", False: "not met", None: "not measured"}
    rows = []
    for v in verdicts:
        why = f"; {v.why}" if v.why and not v.is_met else ""
        verdict = f"{words[v.is_met]}{why}"
        if missed and v.is_met is False:
            verdict = v.why.partition(": ")[2]
        if not (missed and v.is_met):
            rows.append([f"`{v.workload}`", v.text, v.measured, verdict])
    met = sum(v.is_met is True for v in verdicts)
    line = f"{met} of {len(verdicts)} targets are met{'. These are missed:' if missed and rows else '.'}"
    header = ["workload", "target", "measured", "reason" if missed else "verdict"]
    return f"{line}\n\n{table(header, rows, words=4) if rows else ''}"


def failures(records: Iterable[Record], verdicts: Iterable[Verdict]) -> list[str]:
    """Returns failed and wrong alternatives, and targets that are missed by more than is accepted."""
    lines = [
        f"{record['name']}: {each['name']}: {each['status']} ({each['note']})"
        for record in records
        for each in record["alternatives"]
        if each["status"] in ("failed", "wrong")
    ]
    return lines + [f"{v.workload}: {v.text}: {v.measured}" for v in verdicts if not v.is_accepted]


def _cells(record: Record, name: str, role: str, job: str | None = None) -> tuple[str, str, str]:
    """Returns an alternative's name, its time, and the factor to pinfeed's; "-" if it has not run."""
    try:
        alternative = find(record, name, role, job)
    except NotMeasured:
        return "-", "-", "-"
    time = _amount(value(alternative), record["returns"])
    return alternative["name"], time, _factor(record, alternative)


def main_tables(records: Mapping[str, Record]) -> tuple[str, str]:
    """Returns the tables of jobs with an alternative, slower jobs first, and the table of the others."""
    slower = (
        "Where pinfeed is slower",
        "In these jobs, the fastest alternative is faster than pinfeed:",
    )
    tables: dict[tuple[str, str], list[list[str]]] = {slower: []}
    alone = []
    for name, record in records.items():
        area = tables.setdefault(AREAS[WORKLOADS[name].make.__module__.removeprefix("bench.")], [])
        for job in dict.fromkeys(each["job"] for each in record["alternatives"]):
            words = [f"`{name}`", f"{record['title']}{job and f': {job}'}"]
            ours = _cells(record, "", "pinfeed", job)[1]
            reference = _cells(record, "", "reference", job)[1]
            other, time, factor = _cells(record, FASTEST, "other", job)
            if ours == "-":
                continue  # it has not run; `failures` lists it
            if factor == "-":
                alone.append([*words, ours, reference])
                continue
            area.append([*words, other, ours, time, factor, reference])
            if float(factor.rstrip("×")) < 1:
                tables[slower].append(area[-1])
    parts = [
        part
        for (title, text), rows in tables.items()
        if rows
        for part in (f"## {title}", text, table(MAIN_HEADER, rows, words=3))
    ]
    return "\n\n".join(parts), table(ALONE_HEADER, alone, words=2)


def readme_table(records: Mapping[str, Record]) -> str:
    """Returns the workloads with a `usual` implementation: pinfeed's time, and the factors of the others."""
    rows = []
    for name, record in records.items():
        if usual := WORKLOADS[name].usual:
            others = [_cells(record, wanted, "other") for wanted in (usual, FASTEST)]
            cells = ["-" if name == "-" else f"{factor} ({name})" for name, _, factor in others]
            rows.append([record["title"], _cells(record, "", "pinfeed")[1], *cells])
    header = ["one CPU thread", "pinfeed", "usual PyTorch code", "fastest alternative"]
    return table(header, rows)
