"""How long a batch takes, by what its stages take, and which of them the loop is waiting for."""

from __future__ import annotations

import math
import os
import statistics
from dataclasses import dataclass, field
from typing import NamedTuple

from pinfeed import _core
from pinfeed.diagnosis.runs import Run, Settings, StepTimes
from pinfeed.diagnosis.timed import Made
from pinfeed.limits import cpu_quota

#: The loop is at the step if it waits for less.
_LITTLE = 0.05
#: What a loader does for each batch, however many samples that has, takes less than so many seconds.
_QUICK = 2e-3
#: A batch or a sample that takes as many times the median is an outlier.
OUTLIER = 3.0


class Cpus(NamedTuple):
    """The CPUs that a loader may use.

    Attributes:
        present: Those of the machine.
        allowed: Those that this process may run on.
        quota: CPUs' worth of time that its control group may take; None without a limit.
        ranks: Processes of the job on this machine.
    """

    present: int
    allowed: int
    quota: float | None
    ranks: int

    @classmethod
    def here(cls) -> Cpus:
        """Those of this process; the ranks are what torchrun says."""
        ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
        return cls(
            os.cpu_count() or 1,
            _core.available_cpus(),
            cpu_quota(),
            max(1, int(ranks)) if ranks.isdigit() else 1,
        )

    @property
    def usable(self) -> float:
        """What is this rank's; ranks that were pinned to CPUs of their own don't share them."""
        usable = self.allowed / (self.ranks if self.allowed == self.present else 1)
        return max(1.0, min(usable, math.inf if self.quota is None else self.quota / self.ranks))


class Outlier(NamedTuple):
    """A batch that took much longer than the others.

    Attributes:
        times: How many times the median.
        seconds: What it took.
        samples: Those in it that did; their indices, or their places in the stream's batch.
    """

    times: float
    seconds: float
    samples: list[int]


@dataclass
class Measured:
    """What was measured. None, or nothing in a dict, is what was not.

    Attributes:
        cpus: What may be used.
        one_worker: The stages, in a worker of its own (or in this process, where none can be had).
        warm: The same batches again, if the first time something was read from a disk.
        loop: The loop as it is.
        eager: Loops without a step, by the number of workers.
        handoff: Batches that are ready, from workers to a loop without a step.
        large: Four batches in one.
        step: The step alone.
        functions: Names of functions and their share of the samples' time.
    """

    cpus: Cpus
    one_worker: Run | None = None
    warm: Run | None = None
    loop: Run | None = None
    eager: dict[int, Run] = field(default_factory=dict)
    handoff: Run | None = None
    large: Run | None = None
    step: StepTimes | None = None
    functions: list[tuple[str, float]] = field(default_factory=list)

    # Stages of one batch in one worker.

    @property
    def fetch(self) -> float:
        """Seconds for the samples of a batch."""
        return 0.0 if self.one_worker is None else self.one_worker.stages[0]

    @property
    def collate(self) -> float:
        """Seconds for the collate function."""
        return 0.0 if self.one_worker is None else self.one_worker.stages[1]

    @property
    def disk(self) -> float:
        """Seconds of these that are saved when what is read lies in memory."""
        if self.warm is None or self.one_worker is None:
            return 0.0
        again = [passed.made.fetch_seconds for passed in self.warm.passed]
        first = [passed.made.fetch_seconds for passed in self.one_worker.passed[: len(again)]]
        return max(0.0, statistics.fmean(first) - statistics.fmean(again))

    @property
    def cpu(self) -> float:
        """Seconds of processor time for the samples and the collate function."""
        return (
            0.0 if self.one_worker is None else self.one_worker.mean(lambda made: made.cpu_seconds)
        )

    @property
    def queued(self) -> float:
        """Seconds in which the worker waited for a CPU, because other work had it."""
        run = self.one_worker
        return 0.0 if run is None else run.mean(lambda made: made.queued_seconds or 0.0)

    @property
    def idle(self) -> float:
        """Seconds in which the worker waited for something else than a CPU."""
        return max(0.0, self.fetch + self.collate - self.cpu - self.queued)

    @property
    def step_seconds(self) -> float:
        """Seconds of the step; 0 without one."""
        return 0.0 if self.step is None else self.step.seconds

    @property
    def handoff_seconds(self) -> float:
        """Seconds from one ready batch to the next."""
        return 0.0 if self.handoff is None else self.handoff.period

    @property
    def copy(self) -> float | None:
        """Seconds of a DeviceLoader's thread for copies and fields; None without one."""
        stats = None if self.loop is None or not self.loop.settings.in_thread else self.loop.stats
        return None if stats is None else stats.waiting_for_copy / max(1, stats.batches)

    @property
    def per_batch(self) -> float:
        """Seconds that a batch costs however many samples it has."""
        if self.large is None or self.large.settings.workers not in self.eager:
            return 0.0
        small, large = self.eager[self.large.settings.workers].period, self.large.period
        factor = self.large.settings.batch_factor
        return min(small, max(0.0, (small - large) * factor / (factor - 1)))

    # The model.

    def n_effective(self, workers: int) -> float:
        """How many times the batches of one worker this many workers make, without a step.

        As it was measured; between and beyond, each worker takes the same share from the others,
        and together they have the CPUs that may be used.
        """
        if 1 not in self.eager:
            return float(workers)
        one = self.eager[1].period
        if workers in self.eager:
            return one / self.eager[workers].period
        most = max(self.eager)
        slowdown = 0.0
        if most > 1:
            slowdown = max(0.0, (most * self.eager[most].period / one - 1) / (most - 1))
        by_cpus = self.cpus.usable * one / self.cpu if self.cpu > 0 else math.inf
        return max(1.0, min(workers / (1 + slowdown * (workers - 1)), by_cpus))

    def predict(
        self, settings: Settings, fetch: float | None = None, collate: float | None = None
    ) -> float:
        """Seconds for a batch in such a loop: max(step, worker / n_effective, hand-off, CPUs).

        Without workers and without a thread the loop does one thing after the other. A thread is taken
        to run beside the step: both let go of the GIL.

        Args:
            settings: How the loop would be run.
            fetch: What the samples of a batch would take instead.
            collate: What the collate function would take instead.
        """
        step = self.step_seconds
        inside = self.eager.get(0) if settings.workers == 0 else None
        now = (self.fetch, self.collate) if inside is None else inside.stages
        made = sum(now)
        changed = (now[0] if fetch is None else fetch) + (now[1] if collate is None else collate)
        share = changed / made if made else 1.0
        saved = self.per_batch * (1 - 1 / settings.batch_factor)
        if settings.workers == 0:
            inline = share * (self.eager[0].period if 0 in self.eager else made) - saved
            return max(step, inline) if settings.in_thread else step + max(0.0, inline)
        worker = share * (self.eager[1].period if 1 in self.eager else made) - saved
        step_cpu = self.step.cpu_seconds if self.step else 0.0
        return self.starting(settings) + max(
            step,
            worker / self.n_effective(settings.workers),
            self.handoff_seconds / settings.batch_factor,
            (min(share, 1.0) * self.cpu + step_cpu) / self.cpus.usable,
        )

    def starting(self, settings: Settings) -> float:
        """Seconds of the workers' start for each batch of an epoch."""
        run = self.eager.get(settings.workers)
        if run is None or settings.epoch is None or settings.persistent:
            return 0.0
        return max(0.0, run.startup - self.fetch - self.collate) / settings.epoch

    def best_workers(self, settings: Settings) -> int:
        """The smallest number of workers that is within 3 % of the best."""
        most = max(1, *self.eager, round(self.cpus.usable))
        if self.idle > self.cpu:  # they wait for something else than CPUs
            most = max(most, min(16, 2 * most))
        choices = {n: self.predict(_with_workers(settings, n)) for n in range(1, most + 1)}
        best = min(choices.values())
        return next(n for n, seconds in choices.items() if seconds <= 1.03 * best)

    # What the loop is waiting for.

    def limit(self) -> str:
        """The name of what bounds the loop, a key of `LIMITS`."""
        loop, one = self.loop, self.one_worker
        if loop is None or one is None:
            return "unknown"
        settings = loop.settings
        if settings.in_thread and settings.workers == 0 and self.step is not None:
            alone = self.eager[0].period if 0 in self.eager else self.fetch + self.collate
            if loop.period > 1.3 * max(self.step_seconds, alone):
                return "GIL"
        if self.step is not None and loop.wait_share < _LITTLE:
            return "step"
        if self.starting(settings) > 0.5 * loop.wait_share * loop.period:
            return "start"
        workers = settings.workers
        fewer = [run.period for n, run in self.eager.items() if 0 < n < workers]
        is_crowded = workers > self.cpus.usable and workers in self.eager and fewer
        if is_crowded and min(fewer) < 0.9 * self.eager[workers].period:
            return "workers"
        worker = self.fetch + self.collate
        if self.disk > 0.5 * worker:
            return "files"
        if self.straggling() > 0.3:
            return "stragglers"
        alone = self.eager[workers].period if workers in self.eager else math.inf
        if workers and max(alone, 4 * self.handoff_seconds) < self.step_seconds:
            return "step"  # batches come faster than it takes them, but for single ones
        small = self.eager.get(workers, loop)
        if self.per_batch > 0.5 * small.period and small.period < _QUICK:
            return "batch"
        if workers and self.handoff_seconds > max(
            0.5 * small.period, worker / self.n_effective(workers)
        ):
            return "hand-off"
        several = max(n for n in (1, *self.eager) if n <= max(2, self.cpus.usable))
        if several > 1 and workers and self.n_effective(several) < 1 + 0.25 * (several - 1):
            run = self.eager[several]
            busy = run.mean(lambda made: made.cpu_seconds + (made.queued_seconds or 0.0))
            return "CPUs" if busy > 0.75 * sum(run.stages) else "lock"
        if workers > 1 and self.cpu / small.period > 0.85 * self.cpus.usable:
            return "CPUs"
        fetch, collate = loop.stages  # there, where they may take longer than in a worker alone
        disk = fetch * self.disk / self.fetch if self.fetch else 0.0
        stages = {"files": disk, "dataset": fetch - disk, "collate": collate}
        return max(stages, key=stages.__getitem__)

    def straggling(self) -> float:
        """The share of the workers' time that outliers among the samples, a tenth at most, cost more."""
        more = whole = 0.0
        for run in self._runs():
            seconds = sorted(second for made in run for second in made.sample_seconds)
            least = OUTLIER * statistics.median(seconds)
            slowest = [s for s in seconds[len(seconds) - len(seconds) // 10 :] if s > least]
            beyond = sum(slowest) - len(slowest) * least / OUTLIER
            # A sample that waited for a CPU is not slow by itself.
            more += max(0.0, beyond - sum(made.queued_seconds or 0.0 for made in run))
            whole += sum(made.collated - made.begun for made in run)
        return more / whole if whole else 0.0

    def outliers(self) -> list[Outlier]:
        """Batches that took more than three times the median of their run, the slowest first."""
        found = []
        for run in self._runs():
            whole = statistics.median(made.collated - made.begun for made in run)
            sample = statistics.median(second for made in run for second in made.sample_seconds)
            for made in run:
                seconds = made.collated - made.begun
                if seconds > OUTLIER * whole:
                    slow = [i for i, s in enumerate(made.sample_seconds) if s > OUTLIER * sample]
                    if made.indices is not None and len(made.sample_seconds) == len(made.indices):
                        slow = [made.indices[i] for i in slow]
                    found.append(Outlier(seconds / whole, seconds, slow))
        return sorted(found, reverse=True)

    def _runs(self) -> list[list[Made]]:
        """How batches were made in runs of some length, the first of each worker left out."""
        runs = [self.one_worker, self.loop, *self.eager.values()]
        return [
            [passed.made for passed in run.passed[max(1, run.settings.workers) :]]
            for run in runs
            if run is not None and len(run.steady) >= 5
        ]


def _with_workers(settings: Settings, workers: int) -> Settings:
    return Settings(workers, in_thread=settings.in_thread and workers == 0)


LIMITS = {
    "step": "the step is the limit: nothing to gain here",
    "dataset": "the dataset: getting the samples takes most of a worker's time",
    "files": "the disk: samples wait for files that are not in memory",
    "collate": "the collate function takes most of a worker's time",
    "hand-off": "the hand-off: batches take longer from the workers to the loop than to be made",
    "batch": "the cost of each batch, however many samples it has",
    "start": "the start of the workers: an epoch is short, and each begins with new ones",
    "stragglers": "a few samples that take much longer than the others",
    "lock": "workers wait for each other: more of them make no more batches, and CPUs are idle",
    "CPUs": "the CPUs: all that may be used are busy making batches",
    "workers": "too many workers: fewer make more batches",
    "GIL": "the GIL: the thread that makes batches and the step take it from each other",
    "unknown": "not known: too little was measured",
}
