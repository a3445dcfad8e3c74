"""What was found: as text, as a dict, as a trace."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinfeed.diagnosis.changes import Change
from pinfeed.diagnosis.model import LIMITS, Measured


@dataclass(repr=False)
class Report:
    """What `diagnose` found. Printed, it is a page of text.

    Attributes:
        measured: The runs, and what a model makes of them.
        changes: What could be changed, with the trials.
        notes: What was not measured, and why.
        seconds: How long it took.
    """

    measured: Measured
    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def limit(self) -> str:
        """What bounds the loop.

        One of ``"step"``, ``"dataset"``, ``"files"``, ``"collate"``, ``"hand-off"``, ``"batch"`` (the cost
        of each), ``"start"`` (of workers), ``"stragglers"``, ``"lock"``, ``"CPUs"``, ``"workers"`` (too many), ``"GIL"``.
        """
        return self.measured.limit()

    @property
    def advised(self) -> list[Change]:
        """The changes whose trials showed a gain, the largest first."""
        advised = [change for change in self.changes if change.is_advised]
        return sorted(advised, key=lambda change: -(change.gain or 0.0))

    @property
    def most_to_gain(self) -> float:
        """How many times the batches could come if they were always ready."""
        measured = self.measured
        assert measured.loop is not None
        handoff = measured.handoff_seconds if measured.loop.settings.workers else 0.0
        least = max(measured.step_seconds, handoff)
        return max(1.0, measured.loop.period / least) if least else float("inf")

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain numbers and strings, for JSON; times are in seconds for one batch.

        Example:
            >>> loader = torch.utils.data.DataLoader(torch.arange(64), batch_size=4)
            >>> report = pinfeed.diagnose(loader, seconds=0.5)
            >>> report.to_dict()["limit"] == report.limit
            True
        """
        measured, loop, one = self.measured, self.measured.loop, self.measured.one_worker
        found: dict[str, Any] = {"limit": self.limit, "seconds": self.seconds, "notes": self.notes}
        if loop is not None:
            found["loop"] = {
                "batch_seconds": loop.period,
                "samples_per_second": loop.samples / loop.period,
                "wait_share": loop.wait_share,
                "batches": len(loop.passed),
                "stats": loop.stats and loop.stats._asdict(),
            }
        if one is not None:
            found["stages"] = {
                "files": measured.disk,
                "dataset": measured.fetch - measured.disk,
                "collate": measured.collate,
                "hand-off": measured.handoff_seconds or None,
                "copy": measured.copy,
                "step": measured.step_seconds or None,
                "cpu": measured.cpu,
                "per_batch": measured.per_batch,
            }
            found["functions"] = dict(measured.functions)
        found["cpus"] = measured.cpus._asdict() | {"usable": measured.cpus.usable}
        found["workers"] = {n: run.period for n, run in sorted(measured.eager.items())}
        found["outliers"] = [outlier._asdict() for outlier in measured.outliers()]
        found["changes"] = [
            {
                "name": change.name,
                "code": change.code,
                "note": change.note,
                "predicted": change.predicted,
                "tried": change.tried,
                "gain": change.gain,
                "error": change.error,
                "is_advised": change.is_advised,
            }
            for change in self.changes
        ]
        return found

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the stages of the loop's batches as trace events, which Perfetto and Chrome show.

        Each worker has a row: getting the samples, collating, and from there to the loop. The loop has
        one: waiting, and the step.
        """
        Path(path).write_text(json.dumps({"traceEvents": list(self._events())}))

    def _events(self) -> Iterator[dict[str, Any]]:
        loop = self.measured.loop
        if loop is None:
            return
        begin = min(min(passed.asked, passed.made.begun) for passed in loop.passed)
        workers = sorted({-1 if p.made.worker is None else p.made.worker for p in loop.passed})
        rows = {0: "loop"}
        rows |= {2 * w + 3: "in this process" if w < 0 else f"worker {w}" for w in workers}
        rows |= {2 * w + 4: f"hand-off of worker {w}" for w in workers if w >= 0}
        for row, name in rows.items():
            yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": row, "args": {"name": name}}
        for number, (asked, received, done, made) in enumerate(loop.passed):
            worker = -1 if made.worker is None else made.worker
            stages = [
                (2 * worker + 3, "dataset", made.begun, made.fetched),
                (2 * worker + 3, "collate", made.fetched, made.collated),
                (0, "wait", asked, received),
                (0, "step", received, done),
            ]
            if worker >= 0:
                stages.append((2 * worker + 4, "hand-off", made.collated, received))
            for row, name, start, end in stages:
                yield {
                    "ph": "X",
                    "name": name,
                    "pid": 0,
                    "tid": row,
                    "ts": round(1e6 * (start - begin), 3),
                    "dur": round(1e6 * (end - start), 3),
                    "args": {"batch": number, "samples": made.indices},
                }

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        loop = self.measured.loop
        if loop is not None:
            yield from self._loop_lines()
        if self.measured.one_worker is not None:
            yield ""
            yield from self._stage_lines()
        yield ""
        yield from self._cpu_lines()
        if self.changes:
            yield ""
            yield from self._change_lines()
        if loop is not None:
            yield ""
            yield from self._advice_lines()
        for note in self.notes:
            yield f"Note: {note}."

    def _loop_lines(self) -> Iterator[str]:
        measured, loop = self.measured, self.measured.loop
        assert loop is not None
        yield (
            f"The loop: {_ms(loop.period)} ms a batch of {loop.samples}, "
            f"{loop.samples / loop.period:,.0f} samples/s over {len(loop.passed)} batches"
        )
        if measured.step is None:
            yield "It only took batches, for no step was given."
        else:
            yield f"It waited for batches {loop.wait_share:.0%} of the time."
        gain = self.most_to_gain
        at_most = f"; at most {gain:.1f} × to gain" if self.limit != "step" and gain < 1000 else ""
        yield f"Limit: {LIMITS[self.limit]}{at_most}"

    def _stage_lines(self) -> Iterator[str]:
        measured, one = self.measured, self.measured.one_worker
        assert one is not None
        where = "one worker" if one.settings.workers else "this process"
        stages = [
            ("files", measured.disk, "saved when they are in memory")
            if measured.warm
            else ("files", None, "nothing was read from a disk"),
            ("dataset", measured.fetch - measured.disk, _functions(measured.functions)),
            ("collate", measured.collate, _spread(one.passed)),
            (
                "hand-off",
                measured.handoff_seconds or None,
                "of a ready batch, to the loop",
            ),
            ("copy", measured.copy, "to the device, in the DeviceLoader's thread"),
            ("step", measured.step_seconds or None, "on one batch"),
        ]
        if measured.copy is None:
            del stages[4]
        whole = sum(seconds for _, seconds, _ in stages[:3] if seconds)
        yield f"Where a batch comes from, in {where} ({one.bytes / 1e6:,.2f} MB):"
        for name, seconds, note in stages:
            if seconds is None:
                yield f"  {name:10} {'–':>9}      {note if name == 'files' else 'not measured'}".rstrip()
                continue
            share = f"{seconds / whole:4.0%}" if name in ("files", "dataset", "collate") else "    "
            yield f"  {name:10} {_ms(seconds):>9} ms {share}  {note}".rstrip()
        if measured.loop is not None and not measured.loop.settings.workers:
            fetch, collate = measured.loop.stages
            yield f"  in the loop itself: dataset {_ms(fetch)} ms, collate {_ms(collate)} ms"
        outliers = measured.outliers()
        if outliers:
            samples = [str(sample) for outlier in outliers for sample in outlier.samples][:6]
            times = f"batch{'es' * (len(outliers) > 1)} > 3 × the median"
            yield f"  {len(outliers)} {times}{': samples ' * bool(samples)}{', '.join(samples)}"

    def _cpu_lines(self) -> Iterator[str]:
        cpus = self.measured.cpus
        quota = "no quota" if cpus.quota is None else f"a quota of {cpus.quota:.1f}"
        ranks = f", shared by {cpus.ranks} ranks" * (cpus.ranks > 1)
        yield (
            f"CPUs: {cpus.usable:.3g} for this loader (os.cpu_count() is {cpus.present}; "
            f"{cpus.allowed} allowed, {quota}{ranks})"
        )
        if self.measured.eager:
            yield "Without the step: " + ", ".join(
                f"{n} worker{'s' * (n != 1)} {_ms(run.period)} ms"
                for n, run in sorted(self.measured.eager.items())
            )

    def _change_lines(self) -> Iterator[str]:
        width = max(len(change.name) for change in self.changes)
        yield f"{'Change':{width}}  predicted     tried   error    gain"
        for change in self.changes:
            line = f"{change.name:{width}} {_ms(change.predicted):>7} ms"
            if change.tried is None or change.error is None or change.gain is None:
                yield f"{line}  not tried"
                continue
            yield f"{line} {_ms(change.tried):>6} ms {change.error:>+7.0%} {1 + change.gain:>6.2f} ×"

    def _advice_lines(self) -> Iterator[str]:
        advised = self.advised
        if not advised:
            yield "Nothing that was tried gained 3 %: leave it as it is."
            return
        for word, change in zip(("Do this:", "Or this:"), advised, strict=False):
            yield f"{word} {change.code}"
            yield f"  {change.name}: {1 + (change.gain or 0):.2f} × the batches in the trial"
            if change.note:
                yield f"  ({change.note})"


def _functions(functions: list[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in functions[:3])


def _spread(passed: list[Any]) -> str:
    """The middle half of the batches, in ms."""
    seconds = sorted(p.made.collated - p.made.begun for p in passed)
    low, high = seconds[len(seconds) // 4], seconds[3 * len(seconds) // 4]
    return f"half of the batches take {_ms(low)}–{_ms(high)} ms until here"


def _ms(seconds: float) -> str:
    """Milliseconds with three digits."""
    ms = 1000 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"
