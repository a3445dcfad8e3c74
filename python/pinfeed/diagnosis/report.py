"""The results of `diagnose`, as text and as a dict."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pinfeed.diagnosis.changes import Change
from pinfeed.diagnosis.limit import CURES, LIMITS, MIN_GAIN, Measured

_STAGES = {
    "sampler": "the indices",
    "files": "reading the files of the samples",
    "dataset": "the rest of getting the samples",
    "collate": "the collate function",
    "hand_off": "from a finished batch in a worker to the loop",
    "start": "of the workers, spread over the batches of an epoch",
    "step": "on one batch",
    "unexplained": "waiting outside of all stages",
}


@dataclass(repr=False)
class Report:
    """The results of `diagnose`. ``print`` shows them as a page of text.

    Attributes:
        measured: Times of the loops that were run.
        changes: Possible changes, each with a ``name``, the ``code`` to write, a ``note``, the seconds per
            batch ``before`` and ``after`` it in each trial, and its ``gain``: the speedup minus 1.
        notes: Notes about accuracy, and about skipped measurements.
        seconds: Duration of the diagnosis.
    """

    measured: Measured
    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def limit(self) -> str:
        """The stage or resource that bounds the loop.

        One of ``"step"``, ``"sampler"``, ``"dataset"``, ``"files"``, ``"collate"``, ``"hand_off"``,
        ``"batch"``, ``"start"``, ``"stragglers"``, ``"lock"``, ``"cpus"`` and ``"unexplained"``; ``print``
        explains it.
        """
        return self.measured.limit()

    @property
    def recommended(self) -> list[Change]:
        """The changes that were faster in every trial.

        The first is the simplest change whose speedup is within 10 % of the best one.
        """
        candidates = [change for change in self.changes if change.is_recommended]
        best_gain = max((1 + change.gain for change in candidates), default=1.0)
        best = next((change for change in candidates if 1 + change.gain > 0.9 * best_gain), None)
        return sorted(candidates, key=lambda change: (change is not best, -change.gain))

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as plain numbers and strings, for JSON; times are seconds per batch.

        Example:
            >>> loader = torch.utils.data.DataLoader(torch.arange(64), batch_size=4)
            >>> report = pinfeed.diagnose(loader, seconds=0.5)
            >>> report.to_dict()["limit"] == report.limit
            True
        """
        measured, loop = self.measured, self.measured.loop
        share, stragglers = measured.stragglers()
        names = ["name", "code", "note", "before", "after", "tried", "gain", "max_speedup"]
        return {
            "limit": self.limit,
            "seconds": self.seconds,
            "notes": self.notes,
            "loop": {
                "batch_seconds": loop.period,
                "batch_samples": loop.samples,
                "samples_per_second": loop.samples / loop.period,
                "batches": len(loop.batches),
                "wait_share": loop.wait / (loop.wait + loop.step),
                "max_speedup": loop.period / measured.step if measured.has_step else None,
            },
            "batch": {
                "bytes": loop.bytes,
                "disk_bytes": loop.disk_bytes,
                "cpu_seconds": loop.cpu,
                "idle_seconds": loop.idle,
            },
            "stages": measured.stages(),
            "stragglers": {"share": share, "samples": stragglers},
            "cpus": {"usable": measured.cpus, "load": measured.load},
            "changes": [
                {name: getattr(c, name) for name in [*names, "is_recommended"]}
                for c in self.changes
            ],
        }

    def __repr__(self) -> str:
        results = self.to_dict()
        parts = [self._loop_lines(results), _stage_lines(results), _cpu_lines(results)]
        parts += [self._change_lines(), self._advice_lines()]
        return "\n\n".join(filter(None, ("\n".join(part) for part in parts)))

    def _loop_lines(self, results: dict[str, Any]) -> Iterator[str]:
        loop, limit = results["loop"], results["limit"]
        size = f"{loop['batch_samples']:.1f}".removesuffix(".0")
        yield (
            f"The loop: {_ms(loop['batch_seconds'])} a batch of {size}, "
            f"{loop['samples_per_second']:,.0f} samples/s over {loop['batches']} batches"
        )
        if not results["stages"]["step"]:
            yield "No step was passed, so it only took batches."
        else:
            yield f"It waited for batches {loop['wait_share']:.0%} of the time."
        gain = loop["max_speedup"]
        max_speedup = f"; at most {gain:.1f}× faster" if gain and gain < 100 else ""
        if limit == "step" and not self.recommended:
            max_speedup = "; nothing to gain here"
        yield f"Limit: {LIMITS[limit]}{max_speedup}"

    def _change_lines(self) -> Iterator[str]:
        tried = [change for change in self.changes if change.after]
        width = max((len(change.name) for change in tried), default=0)
        for change in tried:
            if change is tried[0]:
                yield f"{'Change':{width}}     as it is      tried     gain"
            times = [_ms(statistics.fmean(times)) for times in (change.before, change.after)]
            gain = f"{1 + change.gain:>6.2f}×" if abs(change.gain) > change.min_gain else "  –"
            yield f"{change.name:{width}} {times[0]:>12} {times[1]:>10} {gain}"

    def _advice_lines(self) -> Iterator[str]:
        limit, recommended = self.limit, self.recommended
        for number, change in enumerate(recommended):
            yield f"{'Or' if number else 'Do'} this: {change.code}"
            yield f"  {change.name}: {1 + change.gain:.2f}× as fast in the trials"
            if change.note:
                yield f"  ({change.note})"
        for change in self.changes:
            if change.settings is None:
                yield f"Not tried: {change.code}"
                yield f"  {change.name}: at most {change.max_speedup:.1f}× ({change.note})"
        if not recommended:
            min_gain = self.measured.min_gain
            gained = f"No change gained more than {1 + min_gain:.2f}× in each trial"
            yield f"{gained}." if any(c.after for c in self.changes) else "No change was tried."
        yield f"What helps against this limit: {CURES[limit]}."
        for note in self.notes:
            yield f"Note: {note}."


def _stage_lines(results: dict[str, Any]) -> Iterator[str]:
    batch, stages = results["batch"], results["stages"]
    yield f"Time per batch of {batch['bytes'] / 1e6:.3g} MB:"
    for name, seconds in stages.items():
        if seconds:
            note = _STAGES[name]
            if name == "files":
                note += f": {batch['disk_bytes'] / 1e6:.3g} MB from a disk"
            yield f"  {name:11}{_ms(seconds):>10}  {note}"
    if samples := results["stragglers"]["samples"] if results["limit"] == "stragglers" else []:
        yield f"  slow samples: {', '.join(map(str, samples[:6]))}{', …' * (len(samples) > 6)}"


def _cpu_lines(results: dict[str, Any]) -> Iterator[str]:
    cpus = results["cpus"]
    yield f"CPUs for this loader: {cpus['usable']:.3g}"
    if (load := cpus["load"]) > MIN_GAIN:
        yield f"Other work uses {load:.0%} of them: gains below {1 + load:.2f}× are not shown."


def _ms(seconds: float) -> str:
    """Formats milliseconds with three digits."""
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.3g} ms"
