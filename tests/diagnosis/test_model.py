"""The limit, the predictions and the advice, from runs whose times are written down here."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pinfeed.diagnosis.changes import Change, find_changes
from pinfeed.diagnosis.model import LIMITS, Cpus, Measured
from pinfeed.diagnosis.report import Report
from pinfeed.diagnosis.runs import CopyTimes, Run, Settings, StepTimes
from pinfeed.diagnosis.stages import Batch
from pinfeed.limits import cpu_quota

CPUS = Cpus(present=4, allowed=4, quota=None, ranks=1)


def run(
    workers,
    period,
    *,
    step=0.0,
    fetch=0.0,
    collate=0.0,
    cpu=0.0,
    queued=0.0,
    slow=None,
    count=40,
    startup=0.0,
    **options,
):
    """A run of `count` batches of four samples, one each `period`; some samples take longer."""
    settings = Settings(workers, **options)
    batches = []
    for number in range(count):
        batch = Batch([4 * number + i for i in range(4 * settings.batch_factor)])
        batch.worker = number % workers if workers else None
        batch.sample_seconds = [(slow or {}).get(index, fetch / 4) for index in batch.indices or []]
        batch.begun = batch.asked = number * period
        batch.fetched = batch.begun + sum(batch.sample_seconds)
        batch.collated, batch.cpu_seconds = batch.fetched + collate, cpu
        batch.disk_bytes, batch.queued_seconds = 0, queued
        batch.done = batch.asked + period
        batch.received = batch.done - step
        batches.append(batch)
    return Run(settings, batches, startup=startup or period, bytes=1000)


def measured(loop, one, others=None, **what):
    """A loop as it is, one worker, and what else was run."""
    step = loop.batches[0].done - loop.batches[0].received
    timed = StepTimes(step, 0.0) if step > 1e-9 else None
    eager = {loop.settings.workers: replace(loop), 0: one, 1: one} | (others or {})
    return Measured(**({"cpus": CPUS, "loop": loop, "step": timed, "eager": eager} | what))


def eager(*periods, **options):
    return {n: run(n, period, **options) for n, period in zip((0, 1, 2, 4), periods, strict=True)}


SLOW_SAMPLES = {"fetch": 0.1, "collate": 0.01, "cpu": 0.1}
# With two workers a batch takes as long as with one, and waits for the other's; or for a CPU.
WAITING = {
    1: run(1, 0.1, fetch=0.1, cpu=0.01),
    2: run(2, 0.1, fetch=0.2, cpu=0.01),
    4: run(4, 0.1, fetch=0.4, cpu=0.01),
}
QUEUEING = {
    1: run(1, 0.1, fetch=0.1, cpu=0.1),
    2: run(2, 0.1, fetch=0.2, cpu=0.1, queued=0.1),
}
CASES = {
    "step": measured(run(1, 0.2, step=0.199), run(1, 0.1, fetch=0.1)),
    "dataset": measured(
        run(0, 0.12, step=0.01, **SLOW_SAMPLES),
        run(1, 0.11, **SLOW_SAMPLES),
        eager(0.11, 0.11, 0.055, 0.028, **SLOW_SAMPLES),
    ),
    "collate": measured(
        run(0, 0.12, step=0.01, fetch=0.01, collate=0.1), run(1, 0.11, fetch=0.01, collate=0.1)
    ),
    "files": measured(
        run(0, 0.12, step=0.01, fetch=0.1, collate=0.01),
        run(1, 0.11, fetch=0.1, collate=0.01),
        warm=run(0, 0.03, fetch=0.02, collate=0.01),
    ),
    "hand_off": measured(
        run(2, 0.1, fetch=0.01),
        run(1, 0.1, fetch=0.01, collate=0.01),
        eager(0.02, 0.1, 0.1, 0.1, fetch=0.01),
        ready=run(1, 0.09),
    ),
    "batch": measured(
        run(0, 0.001, fetch=0.0001),
        run(1, 0.001, fetch=0.0001, collate=0.0008),
        eager(0.001, 0.001, 0.001, 0.001, fetch=0.0001),
        large=run(0, 0.0012, batch_factor=4),
    ),
    "stragglers": measured(
        run(1, 0.02, fetch=0.001),
        run(1, 0.02, fetch=0.02, slow={50: 0.4, 100: 0.4, 150: 0.4}),
    ),
    "start": measured(
        run(1, 0.06, step=0.03, epoch=4),
        run(1, 0.01, fetch=0.01, startup=0.12),
        {1: run(1, 0.01, fetch=0.01, startup=0.12)},
    ),
    "lock": measured(run(2, 0.1, fetch=0.2), WAITING[1], WAITING),
    "cpus": measured(run(2, 0.1, fetch=0.2), QUEUEING[1], QUEUEING),
    "workers": measured(
        run(4, 0.1), QUEUEING[1], QUEUEING | {2: run(2, 0.06), 4: run(4, 0.1, fetch=0.4, cpu=0.4)}
    ),
    "gil": measured(
        run(0, 0.2, step=0.1, in_thread=True),
        run(1, 0.1, fetch=0.1, cpu=0.1),
        eager(0.1, 0.1, 0.05, 0.03, fetch=0.1),
    ),
}


@pytest.mark.parametrize("limit", CASES)
def test_the_limit(limit):
    assert CASES[limit].limit() == limit
    assert set(CASES) == set(LIMITS)
    report = Report(CASES[limit])
    assert report.to_dict()["limit"] == limit
    assert json.loads(json.dumps(report.to_dict()))
    assert f"Limit: {LIMITS[limit]}" in str(report)


def test_predictions():
    case = CASES["dataset"]
    assert case.predict(Settings(0)) == pytest.approx(0.11 + 0.01)
    assert case.predict(Settings(0, in_thread=True)) == pytest.approx(0.11)
    assert case.predict(Settings(2)) == pytest.approx(0.055)
    assert case.predict(Settings(4)) == pytest.approx(0.028)
    assert case.predict(Settings(4), fetch=0.0) == pytest.approx(0.01)  # the step
    assert case.predict(Settings(4), step_saved=0.01) == pytest.approx(0.028)
    assert case.n_effective(2) == pytest.approx(2)
    assert case.n_effective(100) == pytest.approx(4 * 0.11 / 0.1)  # by the CPUs
    assert case.best_workers(Settings(0)) == 4


@pytest.mark.parametrize(
    ("fetch", "limit"), [(0.19, "dataset"), (0.01, "hand_off")], ids=["dataset", "hand_off"]
)
def test_the_limit_if_there_was_time_for_little(fetch, limit):
    loop, loader = run(2, 0.1, fetch=fetch), SimpleNamespace(settings=Settings(2))
    for eager in ({1: run(1, 0.2, fetch=fetch)}, {}):
        case = Measured(CPUS, loop, eager)
        assert case.limit() == limit
        assert find_changes(case, loader) == []


def test_what_is_saved_of_a_stage_is_saved_of_the_batch():
    case = measured(
        run(
            0, 0.32, step=0.01, fetch=0.1, collate=0.2
        ),  # torch's threads wait for each other there
        run(1, 0.11, fetch=0.1, collate=0.01),
        {0: run(0, 0.31, fetch=0.1, collate=0.2)},
    )
    assert case.limit() == "collate"
    assert case.predict(Settings(0), collate=0.1) == pytest.approx(0.31 - 0.18 + 0.01)
    assert case.predict(Settings(0), fetch=0.5, collate=0.0) == pytest.approx(0.06 + 0.01)
    assert case.predict(Settings(1), fetch=0.5) == pytest.approx(0.06)


def test_between_and_beyond_the_numbers_of_workers_that_were_run():
    idle = {"fetch": 0.1, "cpu": 0.0}
    case = measured(run(1, 0.1), run(1, 0.1, **idle), eager(0.1, 0.1, 0.0625, 0.04375, **idle))
    # Each worker beyond the first takes a quarter of a worker from all.
    assert case.n_effective(3) == pytest.approx(3 / 1.5)
    assert case.n_effective(9) == pytest.approx(9 / 3)


def test_a_thread_beside_a_loop_that_frees_many_tensors():
    case = measured(run(0, 0.3, step=0.1), run(1, 0.2))
    for tensors, seconds in ((1, 0.2), (500, 0.3)):
        case.loop.tensors = tensors
        assert case.predict(Settings(0, in_thread=True)) == pytest.approx(seconds)


def test_a_thread_is_predicted_by_the_loop_that_was_run_in_one():
    loop, one = run(2, 0.06, fetch=0.1), run(1, 0.11, fetch=0.1, collate=0.01)
    case = measured(loop, one, thread=run(0, 0.3, fetch=0.2, collate=0.1, in_thread=True))
    thread = Settings(0, in_thread=True)
    assert case.predict(thread) == pytest.approx(0.3)
    assert case.predict(thread, fetch=0.0) == pytest.approx(0.1)


def test_stragglers_of_all_runs_make_the_prediction():
    case = CASES["stragglers"]
    assert case.straggling > 0.5
    # Three of the one worker's 39 batches took 415 ms, in two dictionaries; the loop's 39 none.
    of_one = 2 * (36 * 0.02 + 3 * 0.415) + 39 * 0.001
    assert case.predict(Settings(0)) == pytest.approx(of_one / 117)


def test_a_number_of_workers_that_gains_little_is_left():
    one = run(1, 0.1, fetch=0.1, cpu=0.09)
    case = measured(run(2, 0.051), one, {2: run(2, 0.051), 4: run(4, 0.05)})
    assert case.best_workers(Settings(2)) == 2
    assert case.best_workers(Settings(1)) == 2


def test_a_short_epoch_pays_for_the_start_of_its_workers():
    runs = eager(0.1, 0.1, 0.05, 0.025, fetch=0.1)
    runs[2].startup = 1.1
    case = measured(run(2, 0.15), run(1, 0.1, fetch=0.1), runs)
    assert case.predict(Settings(2, epoch=10)) == pytest.approx(0.05 + 0.1)
    assert case.predict(Settings(2, epoch=10, persistent=True)) == pytest.approx(0.05)


def test_a_start_that_no_run_was_long_enough_for_is_counted():
    """100 batches of 50 ms after 6 s of start."""
    loop = run(2, 0.05, epoch=100, fetch=0.1, startup=6.1)
    assert loop.period == pytest.approx(0.11)
    assert loop.wait_share == pytest.approx(1)
    assert replace(loop, settings=Settings(2, epoch=100, persistent=True)).period < 0.06
    case = measured(loop, run(1, 0.1, fetch=0.1), {2: run(2, 0.05, fetch=0.1, startup=6.1)})
    assert case.limit() == "start"
    loader = SimpleNamespace(
        settings=loop.settings,
        is_stream=True,
        epoch=100,
        holds_files=False,
        repeats=False,
        reuses_memory=False,
        dataset=None,
    )
    stay = next(c for c in find_changes(case, loader) if c.name.startswith("workers that stay"))
    assert stay.predicted == pytest.approx(0.05)


def test_the_end_of_old_workers_is_part_of_the_next_start():
    """Spawned ones, seen in a run of several epochs: 10 batches of 7 ms between changes of 1.5 s."""
    loop = run(2, 0.157, epoch=10, fetch=0.012, startup=0.6)
    ready = run(2, 0.007, fetch=0.012, startup=0.6)
    case = measured(loop, run(1, 0.012, fetch=0.012), {2: ready})
    assert case.starting(loop.settings) == pytest.approx(0.15)
    assert case.limit() == "start"
    assert case.predict(replace(loop.settings, persistent=True)) == pytest.approx(0.007)


def test_workers_for_short_epochs_stay():
    runs = eager(0.1, 0.1, 0.05, 0.025, fetch=0.1)
    runs[1].startup = runs[2].startup = runs[4].startup = 1.1
    case = measured(run(0, 0.1, fetch=0.1), run(1, 0.1, fetch=0.1, startup=1.1), runs)
    assert case.predict(Settings(3, epoch=10)) - case.predict(Settings(3)) == pytest.approx(0.1)
    assert case.best_workers(Settings(0, epoch=3)) == 3
    loader = SimpleNamespace(
        settings=Settings(0),
        is_stream=True,
        epoch=10,
        holds_files=False,
        repeats=False,
        reuses_memory=False,
        dataset=None,
    )
    (workers,) = (c for c in find_changes(case, loader) if "workers" in c.name)
    assert workers.code == "DataLoader(..., num_workers=8, persistent_workers=True)"
    assert workers.settings == Settings(8, epoch=10, persistent=True)
    told = SimpleNamespace(dataset=SimpleNamespace(set_epoch=print))  # of which they would not hear
    loader.dataset = told
    assert not [c for c in find_changes(case, loader) if "workers" in c.name]
    loader.dataset, loader.epoch = None, 100_000
    (workers,) = (c for c in find_changes(case, loader) if "workers" in c.name)
    assert workers.settings == Settings(8, epoch=100_000)


def test_copies_beside_the_step_and_pinned_batches():
    loader = SimpleNamespace(settings=Settings(2), is_stream=True, epoch=None)
    case = measured(
        run(2, 0.05, step=0.04),
        run(1, 0.04, fetch=0.04),
        {2: run(2, 0.02, fetch=0.04)},
        copies=CopyTimes(pinning=0.002, pageable=0.01, pinned=0.004),
    )
    found = {change.name: change for change in find_changes(case, loader)}
    ahead, pinned = found["copies beside the step"], found["pinned batches"]
    assert ahead.predicted == pytest.approx(0.04 - 0.01)
    assert ahead.settings == Settings(2, in_thread=True)
    assert pinned.predicted == pytest.approx(0.04 - 0.006)
    assert pinned.settings == Settings(2, pin_memory=True)
    stages = Report(case).to_dict()["stages"]
    assert (stages["pinning"], stages["copy"]) == (0.002, 0.01)
    loader.settings = Settings(2, pin_memory=True)
    again = {change.name: change for change in find_changes(case, loader)}
    assert again["copies beside the step"].predicted == pytest.approx(0.04 - 0.004)
    assert "pinned batches" not in again


def test_periods():
    one = run(2, 0.5, step=0.1, count=9)
    assert len(one.steady) == 4  # as many from each worker, and not the first four, made ahead
    assert one.period == pytest.approx(0.5)
    assert one.wait_share == pytest.approx(0.8)
    assert run(2, 0.5, batch_factor=4).period == pytest.approx(0.125)


@pytest.mark.parametrize(("count", "epoch"), [(40, 100), (40, 40), (45, 38), (40, 12)])
def test_each_epoch_has_its_start(count, epoch):
    """Of 2 s, before batches of 0.1 s, whether the run has whole epochs or not."""
    loop = run(2, 0.1, epoch=epoch, fetch=0.1, count=count, startup=2.1)
    late = 0
    for number, batch in enumerate(loop.batches):
        batch.asked += late
        late += 2 * (number % epoch == 0)
        batch.received += late
        batch.done += late
    assert loop.period == pytest.approx(0.1 + 2 / epoch)


def test_outliers_name_their_samples():
    slow = {50: 0.4, 103: 0.8}
    one, other = run(1, 0.02, fetch=0.02, slow=slow), run(0, 0.02, fetch=0.02)
    case = measured(run(1, 0.02, fetch=0.02), one, {0: other})
    assert [outlier.samples for outlier in case.outliers()] == [[103], [50]]
    assert "2 batches > 3 × the median: samples 103, 50" in str(Report(case))


def change(before, after):
    how = {"predictions": [0.08, 0.12], "before": before, "after": after}
    return Change("name", "code", Settings(1), lambda m: 0.1, **how)


def test_the_least_of_both_rounds():
    one = change([1.0, 1.5], [0.1, 0.3])
    assert (one.predicted, one.tried) == (0.08, 0.1)
    assert one.error == pytest.approx(-0.2)
    assert one.gain == pytest.approx(9)
    assert change([], []).error is None


@pytest.mark.parametrize(
    ("before", "after", "is_recommended"),
    [
        ([], [], False),  # not tried
        ([1.0, 1.0], [0.9, 0.9], True),
        ([1.0, 1.0], [0.98, 0.98], False),  # less than 3 %
        ([1.0, 1.0], [0.5, 1.1], False),  # one trial lost
    ],
)
def test_only_what_has_gained_is_recommended(before, after, is_recommended):
    one = change(before, after)
    assert one.is_recommended is is_recommended
    report = Report(CASES["dataset"], [one])
    assert report.recommended == [one] * is_recommended
    assert ("Do this: code" in str(report)) is is_recommended
    assert ("Nothing that was tried" in str(report)) is (bool(after) and not is_recommended)
    assert ("No change was tried." in str(report)) is not bool(after)
    assert (" 80 ms         –" in str(report)) is not bool(after)


def test_nothing_is_tried_where_the_step_is_the_limit():
    loader = SimpleNamespace(settings=Settings(1))
    assert find_changes(CASES["step"], loader) == []
    assert "nothing to gain here" in str(Report(CASES["step"]))
    assert "No change that could be tried" in str(Report(CASES["step"]))


@pytest.mark.parametrize(
    ("cpus", "usable"),
    [
        (Cpus(8, 8, None, 1), 8),
        (Cpus(8, 2, None, 1), 2),
        (Cpus(8, 8, 1.5, 1), 1.5),
        (Cpus(8, 8, None, 4), 2),
        (Cpus(8, 2, None, 4), 2),  # pinned to CPUs of its own
        (Cpus(8, 8, 2.0, 4), 1),  # never less than one
    ],
)
def test_cpus(cpus, usable):
    assert cpus.usable == usable


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/job", {"job/cpu.max": "150000 100000"}, 1.5),
        ("0::/job/part", {"job/cpu.max": "400000 100000", "job/part/cpu.max": "max 100000"}, 4.0),
        ("0::/job", {"job/cpu.max": "max 100000"}, None),
        ("2:cpuset:/\n1:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "50000"}, 0.5),
        ("1:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "-1"}, None),
        ("0::/gone", {}, None),
    ],
)
def test_cpu_quota(tmp_path, groups, files, quota):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups + "\n")
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
        if name.endswith("quota_us"):
            path.with_name("cpu.cfs_period_us").write_text("100000\n")
    assert cpu_quota(str(tmp_path / "proc"), str(tmp_path / "cgroup")) == quota
    assert cpu_quota(str(tmp_path / "nothing"), str(tmp_path)) is None
