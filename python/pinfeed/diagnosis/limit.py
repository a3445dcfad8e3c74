"""The measurements, and the stage that bounds the loop."""

from __future__ import annotations

import hashlib
import math
import os
import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from pinfeed import _core
from pinfeed.diagnosis.runs import Run
from pinfeed.limits import cpu_quota
from pinfeed.ranks import ranks_on_this_machine

#: Minimum gain of a change in trials.
MIN_GAIN = 0.03
#: Up to this fraction of waiting, batches count as ready; the rest is the overhead of taking one.
_LITTLE_WAITING = 0.05
#: Maximum overhead per batch of a DataLoader and of measuring, in seconds.
_PER_BATCH = 5e-4
#: A sample is slow from this multiple of the mean; at most this fraction of samples are stragglers.
_SLOW, _FEW = 3.0, 0.1

#: Descriptions of the limits.
LIMITS = {
    "step": "the step: batches are ready before it requests them",
    "sampler": "the sampler: drawing the indices takes most of the time",
    "dataset": "the dataset: getting the samples takes most of the time",
    "files": "the disk: samples wait for files that are not in memory",
    "collate": "the collate function takes most of the time",
    "hand_off": "the hand-off: batches are finished well before they arrive in the loop",
    "batch": "the fixed cost of a batch, whatever its size",
    "start": "the start of the workers: epochs are short, and each starts new ones",
    "stragglers": "a few samples that take much longer than the others",
    "lock": "a lock: more workers are not faster, although CPUs are idle",
    "cpus": "the CPUs: batches keep all CPUs of this process busy",
    "gil": "the GIL: the thread that makes batches and the step compete for it",
    "unexplained": "unexplained: the stages take less than half of the time",
}
#: General remedies, for when no tried change helps.
CURES = {
    "step": "make the step faster",
    "sampler": "use pinfeed.samplers.ShuffleSampler, which draws the indices of a batch in one native call",
    "dataset": "decode once with write_array, or return whole batches from __getitems__",
    "files": "pass the path of the file: ArrayDataset(path) or from_numpy(path)",
    "collate": "use Collate if it makes the same batches, or more workers",
    "hand_off": "use a DeviceLoader without workers, Collate, or fewer and larger tensors",
    "batch": "use a larger batch_size, or from_numpy for arrays",
    "start": "set persistent_workers=True",
    "stragglers": "fix the samples that the report names, or use more workers",
    "lock": "give each worker its own lock, connection or file",
    "cpus": "do less for each sample: decode once, smaller images, native kernels",
    "gil": "use workers instead of the thread",
    "unexplained": "profile the loop with py-spy: it waits outside of all stages",
}


class Cpus(NamedTuple):
    """The CPUs that a loader may use."""

    present: int  # on the machine
    allowed: int  # for this process
    quota: float | None  # CPUs' worth of time for its control group; None without a limit
    ranks: int  # processes of the job on this machine

    @classmethod
    def here(cls) -> Cpus:
        """Returns the CPUs of this process; torchrun sets the number of ranks."""
        cpus = os.cpu_count() or 1, _core.available_cpus()
        return cls(*cpus, cpu_quota(), ranks_on_this_machine())

    @property
    def usable(self) -> float:
        """This rank's share; ranks pinned to separate CPUs don't share them."""
        usable = self.allowed / (self.ranks if self.allowed == self.present else 1)
        return max(1.0, min(usable, math.inf if self.quota is None else self.quota / self.ranks))

    def load(self, seconds: float) -> float:
        """Measures the fraction of the usable CPUs taken by other work, by loading all of them."""
        block, shares, end = bytes(1 << 20), list[float](), time.perf_counter() + seconds

        def work() -> None:
            start, cpu_start = time.perf_counter(), time.thread_time()
            while time.perf_counter() < end:
                hashlib.sha256(block)  # without the GIL
            shares.append((time.thread_time() - cpu_start) / (time.perf_counter() - start))

        threads = [threading.Thread(target=work) for _ in range(round(self.usable))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return max(0.0, 1 - statistics.fmean(shares))


@dataclass
class Measured:
    """The measurements; None, or missing in a dict, if not measured."""

    cpus: Cpus
    loop: Run  # the unchanged loop
    runs: dict[int, Run] = field(default_factory=dict)  # without a step, by the number of workers
    warm: Run | None = None  # `loop`'s batches again, without a step, when files are cached
    step: float | None = None  # seconds of the step alone
    load: float = 0.0  # fraction of the CPUs taken by other work

    @property
    def min_gain(self) -> float:
        """The minimum significant gain of a trial."""
        return max(MIN_GAIN, self.load)

    @property
    def step_seconds(self) -> float:
        """Seconds of the step, alone or in the loop, whichever was faster; 0 without a step."""
        return 0.0 if self.step is None else min(self.step, self.loop.step)

    @property
    def reads_too_much(self) -> bool:
        """Whether far more bytes are read from disk than a batch contains."""
        return self.loop.disk_bytes > 4 * max(self.loop.bytes, 1 << 14)

    @property
    def files(self) -> float:
        """The time per batch for reading files: the time saved when they are cached.

        If far more bytes are read than a batch contains, readahead evicts the files and nothing is saved;
        then it is the idle time of the samples.
        """
        loop = self.loop
        saved = 0.0 if self.warm is None else loop.fetch - self.warm.fetch
        return float(min(max(0.0, saved, loop.idle if self.reads_too_much else 0.0), loop.fetch))

    def limit(self) -> str:
        """Returns what the loop waits for most, a key of `LIMITS`."""
        loop, settings, step = self.loop, self.loop.settings, self.step_seconds
        workers, is_thread = settings.workers, settings.in_thread and not settings.workers
        if self.step is not None and loop.wait < _LITTLE_WAITING * loop.period:
            return "step"
        alone = (self.runs.get(1) or loop).production  # in parallel, the longer one counts
        less, more = sorted((step, alone))
        if is_thread and loop.period > more + less / 2 and less > loop.period / 5:
            return "gil"
        wait = loop.period if is_thread else loop.wait
        if loop.starting > wait / 2:
            return "start"
        outside = 0.0 if workers or is_thread else loop.queued_outside
        sampler = max(0.0, loop.sampler - outside)
        stages = {"sampler": sampler, "dataset": loop.fetch, "collate": loop.collate}
        if sampler > max((wait - outside) / 2, wait / 8):
            return "sampler"
        if loop.production > wait / 2:  # all workers may wait for a single batch
            threshold = (loop.production - loop.queued) / (4 if self.reads_too_much else 2)
            if self.files > max(threshold, loop.production / 8):
                return "files"
            if self.straggling()[0] > 0.4:
                return "stragglers"
        if not workers:
            rest = loop.period - max(step, loop.sampler + loop.production)
            missing = rest if is_thread else loop.unexplained
            threshold = (wait - loop.queued - loop.queued_outside - loop.clocks) / 2
            # Inconclusive if the loop mostly waits for a CPU.
            if missing > max(threshold, wait / 8):
                return "batch" if missing < _PER_BATCH else "unexplained"
            return max(stages, key=stages.__getitem__)
        if step > max(loop.production / workers, loop.hand_off) and step > loop.period / 2:
            return "step"  # only single batches are late
        # Batches may wait for the loop's CPU while all workers are busy.
        if loop.hand_off > loop.making and loop.production < 0.7 * workers * loop.period:
            return "hand_off"
        if self.has_lock(workers):
            return "lock"
        if workers >= self.cpus.usable and loop.idle < loop.production / 10:
            return "cpus"
        return "dataset" if loop.fetch > loop.collate else "collate"

    def has_lock(self, workers: int) -> bool:
        """Whether several workers are hardly faster than one, and otherwise idle."""
        single, multiple = self.runs.get(1), self.runs.get(workers, self.loop)
        if single is None or workers < 2:
            return False
        # Without CPU contention.
        less, more = single.production - single.queued, multiple.production - multiple.queued
        gains_little = workers * less < more * (1 + workers) / 2
        return bool(gains_little and multiple.idle - single.idle > (more - less) / 2)

    def straggling(self) -> tuple[float, list[int]]:
        """Returns the fraction of time that a few slow samples take beyond the median, and these samples.

        Only runs with at most one worker are used, because several may wait for each other. Time waiting
        for a CPU doesn't count.
        """
        runs = [run for run in (self.loop, *self.runs.values()) if run.settings.workers < 2]
        excess, total, count, late_count, multiples = 0.0, 0.0, 0, 0, dict[int, float]()
        for run in runs or [self.loop]:
            batches = run.batches[max(1, run.settings.workers) :]
            if len(batches) < 4:
                continue
            samples = [seconds for batch in batches for seconds in batch.sample_seconds]
            median, slow = statistics.median(samples), _SLOW * statistics.fmean(samples)
            for batch in batches:
                seconds_by_sample = batch.sample_seconds
                late = [seconds for seconds in seconds_by_sample if seconds > slow]
                seconds_of_batch = max(batch.cpu_seconds, batch.seconds - batch.queued_seconds)
                more = min(
                    sum(late) - median * len(late),
                    seconds_of_batch - median * len(seconds_by_sample),
                )
                total, count = total + seconds_of_batch, count + len(seconds_by_sample)
                excess, late_count = excess + max(0.0, more), late_count + len(late) * (more > 0)
                if batch.indices is not None and len(batch.indices) == len(seconds_by_sample):
                    for index, seconds in zip(batch.indices, seconds_by_sample, strict=True):
                        multiples[index] = min(seconds / slow, multiples.get(index, math.inf))
        share = excess / total if total and late_count <= _FEW * count else 0.0
        return share, sorted(index for index, times in multiples.items() if times > 1)
