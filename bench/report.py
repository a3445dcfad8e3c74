"""The report: the machine, tables of workloads, targets and measured values."""

import os
import platform
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pinfeed
from bench.harness import FASTEST, WORKLOADS, NotMeasured, Target, find, measured, ratio
from pinfeed import _core

PACKAGES = ("numpy", "torch", "torchvision", "opencv-python-headless", "albumentations", "numba")
PACKAGES += ("transformers", "datasets", "trl", "ray", "tensorflow-cpu")
Record = Mapping[str, Any]

MAIN_HEADER = (
    "workload",
    "job",
    "fastest alternative",
    "pinfeed",
    "alternative",
    "factor",
    "reference",
)
ALONE_HEADER = ("workload", "job", "pinfeed", "reference")
# The areas of the main table: a heading, a sentence, and the modules of the workloads.
AREAS = (
    ("Epochs", "Whole shuffled epochs, with sampler and DataLoader.", ("epochs",)),
    (
        "Images",
        "Batches of decoded images: normalized, cropped, resized, padded, cut into patches.",
        ("images", "augmentation", "migration", "photographs", "detection", "patches"),
    ),
    ("Sequences", "Batches of tokens and features: padded, joined, packed.", ("sequences",)),
    (
        "Small batches and single rows",
        "The fixed cost of a call, and of memory that is not reused.",
        ("batches",),
    ),
    ("Files and streams", "Rows of files, cached and uncached, and streams.", ("files", "streams")),
    (
        "Workers and threads",
        "Batches from two worker processes, or from two threads.",
        ("workers", "threads"),
    ),
    ("Other frameworks", "NumPy arrays, TensorFlow datasets and Ray batches.", ("conversions",)),
    ("Import time and memory", "Each is measured in a new process.", ("fresh",)),
)


def machine_facts() -> dict[str, Any]:
    """Returns the CPU, the number of usable CPUs, the system, versions, and the instruction set."""
    cpu = platform.processor() or platform.machine()
    if sys.platform == "linux":
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((x.partition(": ")[2] for x in lines if x.startswith("model name")), cpu)
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": cpu,
        "cpus": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {"pinfeed": pinfeed.__version__, **versions},
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


def _digits(value: float) -> str:
    """Formats a number with three digits, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _amount(value: float, unit: str) -> str:
    """Formats a time, or bytes, in the unit that suits it."""
    sizes = (
        (("MB", 1e6), ("B", 1.0)) if unit == "bytes" else (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
    )
    for name, size in sizes:
        if value >= size:
            return f"{_digits(value / size)} {name}"
    return f"{value * 1e9:.0f} ns"


def _median(alternative: Record, quantity: str = "seconds") -> float:
    return statistics.median(alternative["samples"][quantity])


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
        value = ratio(alternative, find(record, "", role, alternative["job"]))
    except NotMeasured:
        return "-"
    return f"{value:.{2 if value < 2 else 1 if value < 10 else 0}f}×"


def result_table(record: Record) -> str:
    """Returns a table of a workload's alternatives, and why some did not run."""
    rows, notes = [], []
    for alternative in record["alternatives"]:
        if alternative["status"] != "ok":
            notes.append(
                f"- {alternative['name']}: {alternative['status']} ({alternative['note']})"
            )
            continue
        name = (
            f"**pinfeed** {alternative['name']}"
            if alternative["role"] == "pinfeed"
            else alternative["name"]
        )
        times = (_median(alternative), min(alternative["samples"]["seconds"]))
        cells = [_amount(value, record["returns"]) for value in times]
        cells += [_factor(record, alternative, role) for role in ("reference", "pinfeed")]
        faults = (
            f"{_median(alternative, 'faults'):,.0f}" if "faults" in alternative["samples"] else "-"
        )
        rows.append([name, *cells, faults])
    header = ["alternative", "median", "best", "to the reference", "to pinfeed", "page faults"]
    heading = f"### `{record['name']}`: {record['title']}"
    return "\n\n".join([heading, table(header, rows), "\n".join(notes)]).strip()


class Verdict(NamedTuple):
    """A target of a workload, its measured value or why it has none, and whether it is met.

    A target that is missed by no more than its accepted figure is accepted.
    """

    workload: str
    text: str
    measured: str
    is_met: bool | None
    is_accepted: bool
    why: str


def _text(target: Target) -> str:
    subject = target.alternative or "pinfeed"
    if target.unit:
        return f"{subject} {target.sign} {target.bound:g} {target.unit}"
    prefix = {"cpu": "CPU time of ", "peak": "peak memory of "}.get(target.quantity, "")
    base = target.of or ("the reference" if target.sign == "≤" else "pinfeed")
    return f"{prefix}{subject} {target.sign} {target.bound:.3g}× {base}"


def _meets(value: float, sign: str, bound: float) -> bool:
    return value <= bound if sign == "≤" else value >= bound


def check(record: Record) -> list[Verdict]:
    """Compares a workload's targets with its record, at the two decimals of the table."""
    verdicts = []
    for target in WORKLOADS[record["name"]].targets:
        try:
            value = round(measured(target, record), 2)
        except NotMeasured as reason:
            text, is_met, is_accepted = str(reason), None, True
        else:
            text = f"{value:g} {target.unit}" if target.unit else f"{value:.2f}×"
            is_met = _meets(value, target.sign, target.bound)
            is_accepted = is_met or bool(target.why and _meets(value, target.sign, target.why[0]))
        why = f"{target.sign} {target.why[0]:g} is accepted: {target.why[1]}" if target.why else ""
        verdicts.append(Verdict(record["name"], _text(target), text, is_met, is_accepted, why))
    return verdicts


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
        f"{record['name']}: {alternative['name']}: {alternative['status']} ({alternative['note']})"
        for record in records
        for alternative in record["alternatives"]
        if alternative["status"] in ("failed", "wrong")
    ]
    return lines + [f"{v.workload}: {v.text}: {v.measured}" for v in verdicts if not v.is_accepted]


def _cells(record: Record, name: str, role: str, job: str | None = None) -> tuple[str, str, str]:
    """Returns an alternative's name, its time, and the factor to pinfeed's; "-" if it has not run."""
    try:
        alternative = find(record, name, role, job)
    except NotMeasured:
        return "-", "-", "-"
    time = _amount(_median(alternative), record["returns"])
    return alternative["name"], time, _factor(record, alternative)


def main_tables(records: Mapping[str, Record]) -> tuple[str, str]:
    """Returns the tables of jobs with an alternative, slower jobs first, and the table of the others."""
    parts, slower, alone = [], [], []
    for title, text, modules in AREAS:
        rows = []
        for name, record in records.items():
            if WORKLOADS[name].make.__module__.removeprefix("bench.") not in modules:
                continue
            for job in dict.fromkeys(a["job"] for a in record["alternatives"]):
                words = [f"`{name}`", f"{record['title']}{job and f': {job}'}"]
                ours = _cells(record, "", "pinfeed", job)[1]
                reference = _cells(record, "", "reference", job)[1]
                other, time, factor = _cells(record, FASTEST, "other", job)
                if ours == "-":
                    continue  # it has not run; `failures` lists it
                if factor == "-":
                    alone.append([*words, ours, reference])
                    continue
                rows.append([*words, other, ours, time, factor, reference])
                slower += rows[-1:] if float(factor.rstrip("×")) < 1 else []
        if rows:
            parts += [f"## {title}", text, table(MAIN_HEADER, rows, words=3)]
    if slower:
        text = "In these jobs, the fastest alternative is faster than pinfeed:"
        parts = ["## Where pinfeed is slower", text, table(MAIN_HEADER, slower, words=3), *parts]
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
