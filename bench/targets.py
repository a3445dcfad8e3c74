"""Targets of workloads, and their values in a record: medians, compared with another alternative's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

FASTEST = "fastest alternative"
# Reasons for targets that were met on another machine, and in another run on the same machine.
ELSEWHERE, DISTURBED = "not known; met on an AMD EPYC", "not known; passed in another run"
UNITS = {
    "s": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "µs": ("seconds", 1e-6),
    "bytes": ("seconds", 1.0),
    "page faults": ("faults", 1.0),
    "ms of CPU": ("own_cpu", 1e-3),
}
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """A promise about a workload, created by `at_most` or `at_least`.

    Attributes:
        sign: "≤" or "≥".
        bound: Bound of a ratio, or of an absolute value if there is a unit.
        alternative: Beginning of the name of the alternative; "" is pinfeed's first.
        of: Beginning of the name of the alternative that it is compared with.
        quantity: The measured quantity: "seconds", "faults" (page faults), "cpu" (of all processes),
            "own_cpu" (of this one), "peak" (memory).
        unit: Unit of an absolute value, a key of `UNITS`.
        why: If the target is missed on the README's machine: the worst accepted figure, and the
            reason, measured or "not known".
    """

    sign: str
    bound: float
    alternative: str = ""
    of: str = ""
    quantity: str = "seconds"
    unit: str = ""
    why: tuple[float, str] | None = None

    def __str__(self) -> str:
        subject = self.alternative or "pinfeed"
        if self.unit:
            return f"{subject} {self.sign} {self.bound:g} {self.unit}"
        prefix = {"cpu": "CPU time of ", "peak": "peak memory of "}.get(self.quantity, "")
        base = self.of or ("the reference" if self.sign == "≤" else "pinfeed")
        return f"{prefix}{subject} {self.sign} {self.bound:.3g}× {base}"

    def measured(self, record: Record) -> float:
        """Returns its value in a workload's record."""
        alternative = find(record, self.alternative, "pinfeed")
        if self.unit:
            quantity, scale = UNITS[self.unit]
            return value(alternative, quantity) / scale
        base = find(record, self.of, "reference" if self.sign == "≤" else "pinfeed")
        return value(alternative, self.quantity) / value(base, self.quantity)


def at_most(bound: float, alternative: str = "", of: str = "", **options: Any) -> Target:
    """An alternative takes at most `bound` times as long as another: by default pinfeed's and the reference."""
    return Target("≤", bound, alternative, of, **options)


def at_least(bound: float, alternative: str = FASTEST, of: str = "", **options: Any) -> Target:
    """An alternative takes at least `bound` times as long as another: by default the fastest and pinfeed's."""
    return Target("≥", bound, alternative, of, **options)


class NotMeasured(Exception):
    """The workload or alternative did not run."""


def value(alternative: Record, quantity: str = "seconds") -> float:
    """Returns the median of a quantity, or the peak."""
    return alternative["peak"] if quantity == "peak" else median(alternative["samples"][quantity])


def find(record: Record, name: str, role: str, job: str | None = None) -> Record:
    """Returns the alternative whose name begins with `name`, or the first of a role; `job=None` is any."""
    found = [each for each in record["alternatives"] if job in (None, each["job"])]
    if name == FASTEST:
        found = [each for each in found if (each["role"], each["status"]) == ("other", "ok")]
        found.sort(key=value)
    else:
        found = [
            each
            for each in found
            if (each["name"].startswith(name) if name else each["role"] == role)
        ]
    if not found:
        raise NotMeasured(f"no alternative {name or role!r}")
    if found[0]["status"] != "ok":
        raise NotMeasured(f"{found[0]['name']}: {found[0]['status']}")
    return found[0]


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


def check(targets: Sequence[Target], record: Record) -> list[Verdict]:
    """Compares targets with a workload's record, at the two decimals of the table."""
    verdicts = []
    for target in targets:
        accepted, reason = target.why or (target.bound, "")
        sign = 1 if target.sign == "≤" else -1
        try:
            number = round(target.measured(record), 2)
        except NotMeasured as error:
            text, is_met, is_accepted = str(error), None, True
        else:
            text = f"{number:g} {target.unit}" if target.unit else f"{number:.2f}×"
            is_met = sign * number <= sign * target.bound
            is_accepted = is_met or sign * number <= sign * accepted
        why = f"{target.sign} {accepted:g} is accepted: {reason}" if reason else ""
        verdicts.append(Verdict(record["name"], str(target), text, is_met, is_accepted, why))
    return verdicts
