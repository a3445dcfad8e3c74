"""What was found: as text and as a dict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pinfeed.diagnosis.changes import Change
from pinfeed.diagnosis.model import LEAST_GAIN, LIMITS, LITTLE_WAITING, Measured


@dataclass(repr=False)
class Report:
    """What `diagnose` found. Printed, it is a page of text.

    Attributes:
        measured: The runs, and what a model makes of them.
        changes: What could be changed, with the trials.
        notes: What was not measured, and why.
        seconds: How long it took.
        is_complete: Whether there was time for all of it, and no run failed.
    """

    measured: Measured
    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    is_complete: bool = True

    @property
    def limit(self) -> str:
        """What bounds the loop.

        One of ``"step"``, ``"dataset"``, ``"files"``, ``"collate"``, ``"hand_off"``, ``"batch"`` (the cost
        of each), ``"start"`` (of workers), ``"stragglers"``, ``"lock"``, ``"cpus"``, ``"workers"`` (too many), ``"gil"``.
        """
        return self.measured.limit()

    @property
    def recommended(self) -> list[Change]:
        """The changes whose trials showed a gain, the largest first."""
        recommended = [change for change in self.changes if change.is_recommended]
        return sorted(recommended, key=lambda change: -(change.gain or 0.0))

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain numbers and strings, for JSON; times are in seconds for one batch.

        Example:
            >>> loader = torch.utils.data.DataLoader(torch.arange(64), batch_size=4)
            >>> report = pinfeed.diagnose(loader, seconds=0.5)
            >>> report.to_dict()["limit"] == report.limit
            True
        """
        measured, loop, one = self.measured, self.measured.loop, self.measured.one
        made = sorted(batch.seconds for batch in one.batches)
        samples = loop.mean(lambda batch: batch.samples)
        least = measured.step_seconds  # with batches that are always ready
        names = ("name", "code", "note", "predicted", "tried", "error", "gain", "is_recommended")
        return {
            "limit": self.limit,
            "seconds": self.seconds,
            "notes": self.notes,
            "loop": {
                "batch_seconds": loop.period,
                "batch_samples": samples,
                "samples_per_second": samples / loop.period,
                "batches": len(loop.batches),
                "wait_share": loop.wait_share,
                "most_to_gain": max(1.0, loop.period / least) if least else None,
                "stats": loop.stats and loop.stats._asdict(),
            },
            "batch": {
                "bytes": one.bytes,
                "disk_bytes": one.mean(lambda batch: batch.disk_bytes),
                "cpu_seconds": one.cpu,
                "quartiles": [made[len(made) // 4], made[3 * len(made) // 4]],
                "fixed_seconds": measured.per_batch,
            },
            "stages": self._stages(),
            "outliers": [outlier._asdict() for outlier in measured.outliers()],
            "cpus": measured.cpus._asdict() | {"usable": measured.cpus.usable},
            "workers": {str(n): run.period for n, run in sorted(measured.eager.items())},
            "changes": [{name: getattr(c, name) for name in names} for c in self.changes],
        }

    def _stages(self) -> dict[str, float | None]:
        """Seconds of each stage of one batch; None where it was not measured."""
        measured, one = self.measured, self.measured.one
        copies, stats = measured.copies, measured.loop.stats
        copy = copies and copies.pageable
        if stats is not None:
            copy = stats.waiting_for_copy / max(1, stats.batches)
        return {
            "files": measured.disk_share * one.fetch,
            "dataset": (1 - measured.disk_share) * one.fetch,
            "collate": one.collate,
            "hand_off": measured.handoff or None,
            "pinning": copies and copies.pinning,
            "copy": copy,
            "step": measured.step_seconds or None,
        }

    def __repr__(self) -> str:
        found = self.to_dict()
        parts = [_loop_lines(found), _stage_lines(found), _cpu_lines(found), _change_lines(found)]
        parts.append(self._advice_lines())
        return "\n\n".join(filter(None, ("\n".join(part) for part in parts)))

    def _advice_lines(self) -> Iterator[str]:
        for number, change in enumerate(self.recommended):
            yield f"{'Or' if number else 'Do'} this: {change.code}"
            yield f"  {change.name}: {1 + (change.gain or 0):.2f} × the batches in the trial"
            if change.note:
                yield f"  ({change.note})"
        for change in self.changes:
            if len(change.after) == 1 and (gain := change.gain or 0.0) >= LEAST_GAIN:
                yield f"Tried once, which may be chance: {change.code}"
                yield f"  {change.name}: {1 + gain:.2f} × the batches"
            if change.settings is None and change.code:
                yield f"Not tried: {change.code}"
                yield f"  {change.name} ({change.note})"
        tried = [len(change.after) for change in self.changes if change.after]
        if tried:
            if not self.recommended and min(tried) > 1:
                yield "Nothing that was tried gained 3 % and lost in neither round: leave it as it is."
        elif self.is_complete and not any(change.settings for change in self.changes):
            yield "No change that could be tried would gain 3 %: leave it as it is."
        else:
            yield "No change was tried."
        for note in self.notes:
            yield f"Note: {note}."


def _loop_lines(found: dict[str, Any]) -> Iterator[str]:
    loop, limit = found["loop"], found["limit"]
    size = f"{loop['batch_samples']:.1f}".removesuffix(".0")
    yield (
        f"The loop: {_ms(loop['batch_seconds'])} a batch of {size}, "
        f"{loop['samples_per_second']:,.0f} samples/s over {loop['batches']} batches"
    )
    if found["stages"]["step"] is None:
        yield "It only took batches: no step was given."
    else:
        yield f"It waited for batches {loop['wait_share']:.0%} of the time."
    gain = loop["most_to_gain"]
    at_most = f"; at most {gain:.1f} × to gain" if gain and gain < 100 else ""
    if limit == "step" and loop["wait_share"] < LITTLE_WAITING:
        at_most = "" if found["changes"] else "; nothing to gain here"
    yield f"Limit: {LIMITS[limit]}{at_most}"


def _stage_lines(found: dict[str, Any]) -> Iterator[str]:
    stages, batch = found["stages"], found["batch"]
    low, high = batch["quartiles"]
    notes = {
        "files": f"{batch['disk_bytes'] / 1e6:.3g} MB from a disk, the rest from memory",
        "dataset": "",
        "collate": f"half of the batches take {_ms(low)} to {_ms(high)} until here",
        "hand_off": "of a ready batch, from workers to the loop",
        "pinning": "into pinned memory",
        "copy": "to the device",
        "step": "on one batch",
    }
    yield f"Where a batch comes from, in one worker ({batch['bytes'] / 1e6:.3g} MB):"
    whole = sum(stages[name] for name in ("files", "dataset", "collate")) or 1.0
    for name, seconds in stages.items():
        if seconds is None:
            yield f"  {name:9} not measured"
            continue
        share = f"{seconds / whole:5.0%}" if name in ("files", "dataset", "collate") else ""
        yield f"  {name:9}{_ms(seconds):>10}{share:5}  {notes[name]}".rstrip()
    if outliers := found["outliers"]:
        slow = dict.fromkeys(str(s) for outlier in outliers for s in outlier["samples"])
        samples = ", ".join([*slow][:6])
        batches = f"batch{'es' * (len(outliers) > 1)} > 3 × the median"
        yield f"  {len(outliers)} {batches}{': samples ' * bool(samples)}{samples}"


def _cpu_lines(found: dict[str, Any]) -> Iterator[str]:
    cpus = found["cpus"]
    quota = "no quota" if cpus["quota"] is None else f"a quota of {cpus['quota']:.1f}"
    ranks = f", shared by {cpus['ranks']} ranks" * (cpus["ranks"] > 1)
    yield (
        f"CPUs: {cpus['usable']:.3g} for this loader (os.cpu_count() is {cpus['present']}; "
        f"{cpus['allowed']} allowed, {quota}{ranks})"
    )
    if found["workers"]:
        runs = found["workers"].items()
        yield "Without the step: " + ", ".join(
            f"{n} worker{'s' * (n != '1')} {_ms(seconds)}" for n, seconds in runs
        )


def _change_lines(found: dict[str, Any]) -> Iterator[str]:
    if not found["changes"]:
        return
    width = max(len(change["name"]) for change in found["changes"])
    yield f"{'Change':{width}}  predicted     tried  error     gain"
    for change in found["changes"]:
        line = f"{change['name']:{width}} {_ms(change['predicted']):>10}"
        if change["tried"] is None:
            yield f"{line} {'–':>9}"
        else:
            error, gain = change["error"], 1 + change["gain"]
            yield f"{line}{_ms(change['tried']):>10} {error:>+6.0%} {gain:>6.2f} ×"


def _ms(seconds: float) -> str:
    """Milliseconds with three digits."""
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.3g} ms"
