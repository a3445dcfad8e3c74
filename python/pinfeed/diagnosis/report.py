"""The results of `diagnose`, as text and as a dict."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pinfeed.diagnosis.changes import Change
from pinfeed.diagnosis.limit import CURES, LIMITS, MIN_GAIN, Measured


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
                "wait_share": loop.wait / loop.period,
                "max_speedup": loop.period / measured.step if measured.step else None,
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
                {name: getattr(change, name) for name in [*names, "is_recommended"]}
                for change in self.changes
            ],
        }

    def __repr__(self) -> str:
        parts = (
            self._of_loop(),
            self._of_stages(),
            self._of_cpus(),
            self._of_trials(),
            self._advice(),
        )
        return "\n\n".join(filter(None, ("\n".join(part) for part in parts)))

    def _of_loop(self) -> Iterator[str]:
        measured, loop = self.measured, self.measured.loop
        size = f"{loop.samples:.1f}".removesuffix(".0")
        yield (
            f"The loop: {_ms(loop.period)} a batch of {size}, {loop.samples / loop.period:,.0f} samples/s "
            f"over {len(loop.batches)} batches"
        )
        if measured.step:
            yield f"It waited for batches {loop.wait / loop.period:.0%} of the time."
        else:
            yield "No step was passed, so it only took batches."
        gain = loop.period / measured.step if measured.step else 100
        bound = f"; at most {gain:.1f}× faster" if gain < 100 else ""
        if self.limit == "step" and not self.recommended:
            bound = "; nothing to gain here"
        yield f"Limit: {self.limit} ({LIMITS[self.limit]}){bound}"

    def _of_stages(self) -> Iterator[str]:
        loop = self.measured.loop
        yield f"Time per batch of {loop.bytes / 1e6:.3g} MB:"
        for name, seconds in self.measured.stages().items():
            if seconds:
                note = f": {loop.disk_bytes / 1e6:.3g} MB from a disk" * (name == "files")
                yield f"  {name:11}{_ms(seconds):>10}  {LIMITS[name]}{note}"
        if self.limit == "stragglers":
            _, samples = self.measured.stragglers()
            yield f"  slow samples: {', '.join(map(str, samples[:6]))}{', …' * (len(samples) > 6)}"

    def _of_cpus(self) -> Iterator[str]:
        load = self.measured.load
        yield f"CPUs for this loader: {self.measured.cpus:.3g}"
        if load > MIN_GAIN:
            yield f"Other work uses {load:.0%} of them: gains below {1 + load:.2f}× are not shown."

    def _of_trials(self) -> Iterator[str]:
        tried = [change for change in self.changes if change.after]
        width = max((len(change.name) for change in tried), default=0)
        if tried:
            yield f"{'Change':{width}}     as it is      tried     gain"
        for change in tried:
            before, after = (
                _ms(statistics.fmean(times)) for times in (change.before, change.after)
            )
            gain = f"{1 + change.gain:>6.2f}×" if abs(change.gain) > change.min_gain else "  –"
            yield f"{change.name:{width}} {before:>12} {after:>10} {gain}"

    def _advice(self) -> Iterator[str]:
        for number, change in enumerate(self.recommended):
            yield f"{'Or' if number else 'Do'} this: {change.code}"
            yield f"  {change.name}: {1 + change.gain:.2f}× as fast in the trials"
            if change.note:
                yield f"  ({change.note})"
        for change in self.changes:
            if change.settings is None:
                yield f"Not tried: {change.code}"
                yield f"  {change.name}: at most {change.max_speedup:.1f}× ({change.note})"
        if not any(change.after for change in self.changes):
            yield "No change was tried."
        elif not self.recommended:
            yield f"No change gained more than {1 + self.measured.min_gain:.2f}× in each trial."
        yield f"What helps against this limit: {CURES[self.limit]}."
        yield from (f"Note: {note}." for note in self.notes)


def _ms(seconds: float) -> str:
    """Formats milliseconds with three digits."""
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.3g} ms"
