"""The measurements, and the stage or resource that bounds the loop."""

from __future__ import annotations

import hashlib
import math
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pinfeed.diagnosis.runs import Run

#: Minimum gain of a change in trials.
MIN_GAIN = 0.03
#: Up to this fraction of waiting, batches count as ready; the rest is the overhead of taking one.
_LITTLE_WAITING = 0.05
#: Maximum overhead per batch of a DataLoader and of measuring, in seconds.
_PER_BATCH = 5e-4
#: A sample is slow from this multiple of the mean. Stragglers are at most the second fraction of samples
#: and take at least the third fraction of the time.
_SLOW, _FEW, _MUCH = 3.0, 0.1, 0.4

#: The stages of a batch, and other limits of the loop.
LIMITS = {
    "sampler": "drawing the indices",
    "files": "reading files that are not in memory",
    "dataset": "getting the samples",
    "collate": "the collate function",
    "hand_off": "passing finished batches from the workers to the loop",
    "start": "starting the workers, in each epoch",
    "step": "the training step",
    "unexplained": "waiting outside of all stages",
    "batch": "the fixed cost of a batch, whatever its size",
    "stragglers": "a few samples that take much longer than the others",
    "lock": "more workers are not faster, although CPUs are idle",
    "cpus": "batches keep all CPUs of this process busy",
}
#: General remedies, for when no tried change helps.
CURES = {
    "sampler": "use pinfeed.samplers.ShuffleSampler, which draws the indices of a batch in one native call",
    "files": "pass the path of the file: ArrayDataset(path) or from_numpy(path)",
    "dataset": "decode once with write_array, or return whole batches from __getitems__",
    "collate": "use Collate if it makes the same batches, or more workers",
    "hand_off": "use a DeviceLoader without workers, Collate, or fewer and larger tensors",
    "start": "set persistent_workers=True",
    "step": "a faster step; leave the loader as it is",
    "unexplained": "profile the loop with py-spy",
    "batch": "use a larger batch_size, or from_numpy for arrays",
    "stragglers": "fix the samples that the report names, or use more workers",
    "lock": "give each worker its own lock, connection or file",
    "cpus": "do less for each sample: decode once, smaller images, native kernels",
}


def usable_cpus(present: int, allowed: int, quota: float | None, ranks: int) -> float:
    """Returns the CPUs for a loader, of those that are present and allowed for this process.

    ``quota``: CPUs' worth of time for its control group; None without a limit.
    ``ranks``: processes of the job on this machine, which share CPUs unless they are pinned.
    """
    usable = allowed / (ranks if allowed == present else 1)
    return max(1.0, min(usable, math.inf if quota is None else quota / ranks))


def other_load(cpus: float, seconds: float) -> float:
    """Measures the fraction of the CPUs taken by other work, by loading all of them."""
    block, end = bytes(1 << 20), time.perf_counter() + seconds

    def share(_: int) -> float:
        start, cpu_start = time.perf_counter(), time.thread_time()
        while time.perf_counter() < end:
            hashlib.sha256(block)  # without the GIL
        return (time.thread_time() - cpu_start) / (time.perf_counter() - start)

    with ThreadPoolExecutor(round(cpus)) as pool:
        return max(0.0, 1 - statistics.fmean(pool.map(share, range(round(cpus)))))


@dataclass
class Measured:
    """The measurements; None, or missing in a dict, if not measured."""

    cpus: float  # for this loader
    loop: Run  # the unchanged loop
    step: float = 0.0  # seconds of the step; 0 without one
    single: Run | None = None  # with one worker, without a step
    warm: Run | None = None  # `loop`'s batches again, when files are cached
    load: float = 0.0  # fraction of the CPUs taken by other work

    @property
    def min_gain(self) -> float:
        """The minimum significant gain of a trial."""
        return max(MIN_GAIN, self.load)

    @property
    def reads_too_much(self) -> bool:
        """Whether far more bytes are read from disk than a batch contains: readahead evicts the files."""
        return self.loop.disk_bytes > 4 * max(self.loop.bytes, 1 << 14)

    @property
    def files(self) -> float:
        """Seconds per batch for reading files: the time that a run with cached files saves.

        If the system evicts the files, such a run saves nothing. Then it is the whole time for getting the
        samples, if they mostly wait.
        """
        loop = self.loop
        if self.reads_too_much and loop.idle > loop.production / 4:
            return float(loop.fetch)
        saved = 0.0 if self.warm is None else loop.fetch - self.warm.fetch
        return float(min(max(0.0, saved), loop.fetch))

    def stages(self) -> dict[str, float]:
        """Returns the seconds per batch of each stage; the stages of workers overlap."""
        loop = self.loop
        return {
            "sampler": loop.sampler,
            "files": self.files,
            "dataset": loop.fetch - self.files,
            "collate": loop.collate,
            "hand_off": loop.hand_off,
            "start": loop.start,
            "step": self.step,
            "unexplained": loop.unexplained,
        }

    def limit(self) -> str:
        """Returns what the loop waits for most, a key of `LIMITS`."""
        loop, workers, stages = self.loop, self.loop.settings.workers, self.stages()
        if self.step and loop.wait < _LITTLE_WAITING * loop.period:
            return "step"
        for name in ("files", "dataset", "collate"):
            stages[name] /= max(1, workers)
        if not workers or stages["step"] < loop.period / 2:
            del stages["step"]  # otherwise only single batches are late
        longest = max(stages, key=stages.__getitem__)
        if longest == "unexplained" and loop.unexplained < _PER_BATCH:
            return "batch"
        if longest == "dataset" and self.stragglers()[0] > _MUCH:
            return "stragglers"
        if longest in ("dataset", "collate"):
            if self.has_lock:
                return "lock"
            if workers >= self.cpus and loop.idle < loop.production / 10:
                return "cpus"
        return longest

    @property
    def has_lock(self) -> bool:
        """Whether several workers are hardly faster than one, and otherwise idle."""
        single, loop, workers = self.single, self.loop, self.loop.settings.workers
        if single is None or workers < 2:
            return False
        # Without CPU contention.
        less, more = single.production - single.queued, loop.production - loop.queued
        gains_little = workers * less < more * (1 + workers) / 2
        return bool(gains_little and loop.idle - single.idle > (more - less) / 2)

    def stragglers(self) -> tuple[float, list[int]]:
        """Returns the fraction of time that a few slow samples take beyond the median, and these samples.

        Of each sample, the fastest time counts. Only runs with at most one worker are used, because several
        may wait for each other.
        """
        fastest = dict[int, float]()
        runs = [run for run in (self.loop, self.single) if run and run.settings.workers < 2]
        for run in runs:
            for batch in run.batches[1:]:
                if batch.indices is not None and len(batch.indices) == len(batch.sample_seconds):
                    for index, seconds in zip(batch.indices, batch.sample_seconds, strict=True):
                        fastest[index] = min(seconds, fastest.get(index, seconds))
        if not fastest:
            return 0.0, []
        median, mean = (of(fastest.values()) for of in (statistics.median, statistics.fmean))
        late = {index: seconds for index, seconds in fastest.items() if seconds > _SLOW * mean}
        if len(late) > _FEW * len(fastest):
            return 0.0, []
        share = sum(seconds - median for seconds in late.values()) / (mean * len(fastest))
        return share, sorted(late)
