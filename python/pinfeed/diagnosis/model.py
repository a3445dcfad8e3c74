"""How long a batch takes, by what its stages take, and which of them the loop is waiting for."""

from __future__ import annotations

import functools
import math
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pinfeed import _core
from pinfeed.diagnosis.runs import CopyTimes, Run, Settings, StepTimes
from pinfeed.diagnosis.stages import Batch
from pinfeed.limits import cpu_quota

#: What a change must gain to be tried, and in the trial to be advised.
LEAST_GAIN = 0.03
#: A loop that waits for less has its batches when it asks: the rest is what taking one costs.
LITTLE_WAITING = 0.05
#: To free a tensor, torch lets go of the GIL. A thread that makes batches takes it each time, so that a batch of
#: more tensors than these takes the loop about as long to free as it takes the thread to make.
_MANY = 100
#: A batch or a sample that takes as many times the median is an outlier.
_OUTLIER = 3.0

LIMITS = {
    "step": "the step: batches are ready before it asks",
    "dataset": "the dataset: getting the samples takes most of a worker's time",
    "files": "the disk: samples wait for files that are not in memory",
    "collate": "the collate function takes most of a worker's time",
    "hand_off": "the hand-off: batches take longer from the workers to the loop than to be made",
    "batch": "the cost of each batch, however many samples it has",
    "start": "the start of the workers: an epoch is short, and each begins with new ones",
    "stragglers": "a few samples that take much longer than the others",
    "lock": "workers wait for each other: more of them make no more batches, and CPUs are idle",
    "cpus": "the CPUs: all that may be used are busy making batches",
    "workers": "too many workers: fewer make more batches",
    "gil": "the GIL: the thread that makes batches and the step take it from each other",
}


class Cpus(NamedTuple):
    """The CPUs that a loader may use."""

    present: int  # on the machine
    allowed: int  # for this process
    quota: float | None  # CPUs' worth of time for its control group; None without a limit
    ranks: int  # processes of the job on this machine

    @classmethod
    def here(cls) -> Cpus:
        """Those of this process; the ranks are what torchrun says."""
        ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
        count = max(1, int(ranks)) if ranks.isdigit() else 1
        return cls(os.cpu_count() or 1, _core.available_cpus(), cpu_quota(), count)

    @property
    def usable(self) -> float:
        """What is this rank's; ranks that were pinned to CPUs of their own don't share them."""
        usable = self.allowed / (self.ranks if self.allowed == self.present else 1)
        return max(1.0, min(usable, math.inf if self.quota is None else self.quota / self.ranks))


class Outlier(NamedTuple):
    """A batch whose samples took more than three times the median of the batches of its run."""

    times: float  # the median
    seconds: float
    samples: list[int]  # that did: their indices, or their places in the stream's batch


@dataclass
class Measured:
    """What was measured, the loop first; None, or nothing in a dict, is what was not."""

    cpus: Cpus
    loop: Run  # as it is
    eager: dict[int, Run] = field(default_factory=dict)  # without a step, by the number of workers
    thread: Run | None = None  # without a step and workers, in a `DeviceLoader`'s thread
    warm: Run | None = None  # with the loader's own workers and no step, its files in memory
    ready: Run | None = None  # batches that are ready, from workers to a loop without a step
    large: Run | None = None  # several batches in one, with the loader's own workers and no step
    step: StepTimes | None = None  # alone
    copies: CopyTimes | None = None  # a batch's way to the device
    earlier: list[Run] = field(default_factory=list)  # runs of the first round, in the second one

    @property
    def one(self) -> Run:
        """The run that shows best how long one batch takes: of a single worker, if there was one."""
        return self.eager.get(1) or self.eager.get(0) or self.loop

    @property
    def fewest_batches(self) -> int:
        """How many counted in the shortest of the loops."""
        return min(len(run.steady) for run in (self.loop, *self.eager.values()))

    @property
    def step_seconds(self) -> float:
        """Seconds of the step, alone or in the loop, where other work had less of the CPUs; 0 without one."""
        if self.step is None:
            return 0.0
        return min(self.step.seconds, self.loop.mean(lambda batch: batch.done - batch.received))

    @property
    def disk_share(self) -> float:
        """The share of the samples' time that is saved when their files are in memory."""
        if self.warm is None:
            return 0.0
        return max(0.0, 1 - self.warm.fetch / self.eager[self.warm.settings.workers].fetch)

    @property
    def handoff(self) -> float:
        """Seconds from one ready batch to the next."""
        return 0.0 if self.ready is None else self.ready.period

    @property
    def per_batch(self) -> float:
        """Seconds that a batch costs however many samples it has."""
        if self.large is None:
            return 0.0
        settings = self.large.settings
        small, factor = self.eager[settings.workers].period, settings.batch_factor
        return min(small, max(0.0, (small - self.large.period) * factor / (factor - 1)))

    # The model.

    def n_effective(self, workers: int) -> float:
        """How many times the batches of one worker this many workers make, without a step.

        As it was measured; between and beyond, each worker takes the same share from the others,
        and together they have the CPUs that may be used.
        """
        one = self.one
        if workers in self.eager:
            return one.period / self.eager[workers].period
        most = max(self.eager, default=0)
        slowdown = 0.0
        if most > 1:
            slowdown = max(0.0, (most / self.n_effective(most) - 1) / (most - 1))
        by_cpus = self.cpus.usable * one.period / max(one.cpu, 1e-9)
        return max(1.0, min(workers / (1 + slowdown * (workers - 1)), by_cpus))

    def predict(
        self,
        settings: Settings,
        *,
        run: Run | None = None,
        fetch: float = 1.0,
        collate: float = 1.0,
        step_saved: float = 0.0,
    ) -> float:
        """Seconds for a batch in such a loop: max(step + hand-off, worker / n_effective, CPUs).

        Without workers and without a thread the loop does one thing after the other. A thread runs
        beside the step, which is taken to let go of the GIL.

        Args:
            settings: How the loop would be run.
            run: Of it without a step, if there was one.
            fetch: What part of the time for the samples would be left.
            collate: What part of the collate function's.
            step_saved: Seconds that are taken from the step.
        """
        workers, step = settings.workers, max(0.0, self.step_seconds - step_saved)
        made, left = self._making(settings, fetch, collate)
        if run is not None:
            made = run.period * (self.n_effective(workers) if workers else 1.0)
        in_turns = self.shares_gil or self.loop.tensors > _MANY
        if settings.makes_its_own or (workers == 0 and in_turns):
            return step + made
        if workers == 0:
            return max(step, made)
        # Without a thread the loop itself takes what workers send, before the step.
        handoff = self.handoff / settings.batch_factor
        serial = max(step, handoff) if settings.in_thread else step + handoff
        return self.starting(settings) + max(
            serial, made / self.n_effective(workers), self._by_cpus(left)
        )

    def _making(self, settings: Settings, fetch: float, collate: float) -> tuple[float, float]:
        """How long one batch takes where such a loop makes them, and what part that is of what it takes now."""
        run = self.one
        if settings.workers == 0:
            run = (self.thread if settings.in_thread else None) or self.eager.get(0) or run
        seconds = run.period
        if settings.makes_its_own and self.loop.settings.makes_its_own:
            run, seconds = self.loop, self.loop.wait_share * self.loop.period
        saved = (1 - fetch) * run.fetch + (1 - collate) * run.collate
        left = max(0.0, 1 - saved / seconds)
        # The few batches of one run may have had more of the stragglers, or fewer, than others.
        return left * (self.mean_made if self.straggling > 0.5 else seconds), left

    @property
    def shares_gil(self) -> bool:
        """Whether a thread and the step go in turns: beside each other they'd take as long as the longer."""
        loop, made, step = self.loop, self.thread or self.eager.get(0), self.step_seconds
        if made is None or loop.settings.workers or not loop.settings.in_thread:
            return False
        return step > 0 and loop.period > (max(step, made.period) + step + made.period) / 2

    def _by_cpus(self, share: float = 1.0) -> float:
        """Seconds for a batch if all usable CPUs work on it, its hand-off and the step."""
        step = 0.0 if self.step is None else self.step.cpu_seconds
        return (share * self.one.cpu + self.handoff + step) / self.cpus.usable

    def starting(self, settings: Settings) -> float:
        """Seconds of the workers' start for each batch of an epoch."""
        epoch, workers, loop = settings.epoch, settings.workers, self.loop
        if not workers or settings.persistent or not epoch:
            return 0.0
        runs = {n: run for n, run in ({loop.settings.workers: loop} | self.eager).items() if n}
        nearest = min(runs, key=lambda n: abs(n - workers), default=None)
        seconds = 0.0 if nearest is None else runs[nearest].startup - runs[nearest].made
        own = loop.settings.workers
        if (
            (length := loop.settings.starts_after)
            and len(loop.batches) > length
            and own in self.eager
        ):
            # The end of the old workers, too, which spawned ones take long for.
            between = loop.period - max(self.step_seconds, self.eager[own].period)
            seconds = max(seconds, between * length)
        return max(0.0, seconds) / epoch

    def best_workers(self, settings: Settings) -> int:
        """The loader's own number of workers, if no other gains something; else the smallest of the best."""
        most = max(1, *self.eager, round(self.cpus.usable))
        one, own = self.one, settings.workers
        if one.idle > one.cpu:  # they wait for something else than CPUs
            most = max(most, min(16, 2 * most))
        most = min(most, settings.epoch or most)  # each has a batch
        choices = {n: self.predict(Settings(n)) for n in range(1, most + 1)}
        enough = (1 + LEAST_GAIN) * min(choices.values())
        if own in choices and choices[own] <= enough:
            return own
        return next(n for n, seconds in choices.items() if seconds <= enough)

    # What the loop is waiting for.

    def limit(self) -> str:
        """The name of what bounds the loop, a key of `LIMITS`: the largest of the model's terms.

        Where that is what workers make, the largest part of it.
        """
        loop, one = self.loop, self.one
        workers, step = loop.settings.workers, self.step_seconds
        if self.step is not None and loop.wait_share < LITTLE_WAITING:
            return "step"
        if self.shares_gil:
            return "gil"
        if self.starting(loop.settings) > loop.wait_share * loop.period / 2:
            return "start"
        rare = {
            "files": self.disk_share * one.fetch / one.made,
            "stragglers": self.straggling,
        }
        largest = max(rare, key=rare.__getitem__)
        if rare[largest] > 0.5:
            return largest
        eager = self.eager.get(workers, loop)
        if workers:
            if step > max(eager.period, self.handoff) and loop.wait_share < 0.5:
                return "step"  # but for single batches
            # The period has the hand-off in it, and these stages don't.
            if self.handoff > max(eager.period / 2, one.made / workers):
                return "hand_off"
        # Many workers wait for a CPU with batches that are made, too.
        made = max(eager.made / workers, one.made / self.cpus.usable) if workers else eager.made
        if self.per_batch > eager.period / 2 > made:
            return "batch"
        if workers and self.ready is None and eager.period / 2 > made and loop.wait_share > 0.5:
            return "hand_off"
        if workers > 1 and (shared := self._shared(workers)):
            return shared
        stages = {"dataset": loop.fetch, "collate": loop.collate}  # there they may take longer
        return max(stages, key=stages.__getitem__)

    def _shared(self, workers: int) -> str | None:
        """What several workers take from each other, if that is most of what they could make."""
        one, several = self.eager.get(1), self.eager.get(workers)
        if one is None or several is None:
            return None
        if self.n_effective(workers) < (1 + workers) / 2:
            if several.idle - one.idle > (several.made - one.made) / 2:
                return "lock"
            fewer = min(run.period for n, run in self.eager.items() if 0 < n < workers)
            return "workers" if fewer < (1 - LEAST_GAIN) * several.period else "cpus"
        return "cpus" if self._by_cpus() > 0.9 * several.period else None

    def outliers(self) -> list[Outlier]:
        """Batches whose samples took more than three times the median of all, the slowest first.

        A batch that waited for a CPU meanwhile is not slow by itself.
        """
        found = []
        for batches in self._long_runs():
            median = statistics.median(batch.own_seconds for batch in batches)
            sample = statistics.median(s for batch in batches for s in batch.sample_seconds)
            for batch in batches:
                seconds = batch.fetched - batch.begun - batch.queued_seconds
                if seconds > _OUTLIER * median:
                    slow = [i for i, s in enumerate(batch.sample_seconds) if s > _OUTLIER * sample]
                    if batch.indices is not None:
                        is_each = len(batch.sample_seconds) == batch.samples
                        slow = [batch.indices[i] for i in slow] if is_each else []
                    found.append(Outlier(seconds / median, seconds, slow))
        return sorted(found, reverse=True)

    @functools.cached_property
    def straggling(self) -> float:
        """The share of the time that outliers take beyond the median, once all is measured."""
        whole = sum(batch.own_seconds for batches in self._long_runs() for batch in batches)
        beyond = sum(outlier.seconds * (1 - 1 / outlier.times) for outlier in self.outliers())
        return beyond / whole if whole else 0.0

    @property
    def mean_made(self) -> float:
        """Mean seconds in which a batch was made, over all runs of some length."""
        return statistics.fmean(batch.seconds for batches in self._long_runs() for batch in batches)

    def _long_runs(self) -> Iterator[list[Batch]]:
        """The batches of runs of some length, the first of each worker left out."""
        for run in [self.loop, *self.eager.values(), *self.earlier]:
            if len(run.steady) >= 5:
                yield run.batches[max(1, run.settings.workers) :]
