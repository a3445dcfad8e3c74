"""The limit, the predictions and the advice, from runs whose times are written down here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pinfeed.diagnosis.changes import Change, find_changes
from pinfeed.diagnosis.model import LIMITS, Cpus, Measured
from pinfeed.diagnosis.report import Report
from pinfeed.diagnosis.runs import Passed, Run, Settings, StepTimes
from pinfeed.diagnosis.timed import Made
from pinfeed.limits import cpu_quota

CPUS = Cpus(present=4, allowed=4, quota=None, ranks=1)


def run(
    workers: int,
    period: float,
    *,
    step: float = 0.0,
    fetch: float = 0.0,
    collate: float = 0.0,
    cpu: float = 0.0,
    slow: dict[int, float] | None = None,
    count: int = 40,
    size: int = 1000,
    startup: float = 0.0,
    **options: Any,
) -> Run:
    """A run of `count` batches of four samples, one each `period`; some samples take longer."""
    passed = []
    for number in range(count):
        made = Made([4 * number + i for i in range(4)])
        made.worker = number % workers if workers else None
        made.sample_seconds = [(slow or {}).get(index, fetch / 4) for index in made.indices or []]
        begun = number * period
        made.begun, made.fetched = begun, begun + sum(made.sample_seconds)
        made.collated, made.cpu_seconds = made.fetched + collate, cpu
        made.disk_bytes, made.queued_seconds = 0, 0.0
        passed.append(Passed(begun, begun + period - step, begun + period, made))
    return Run(
        Settings(workers, **options), passed, startup=startup or period, samples=4, bytes=size
    )


def measured(loop: Run, **what: Any) -> Measured:
    step = loop.passed[0].done - loop.passed[0].received
    timed = StepTimes(step, 0.0, False) if step > 1e-9 else None
    return Measured(**({"cpus": CPUS, "loop": loop, "step": timed} | what))


def eager(*periods: float, **options: Any) -> dict[int, Run]:
    return {n: run(n, period, **options) for n, period in zip((0, 1, 2, 4), periods, strict=True)}


SLOW_SAMPLES = {"fetch": 0.1, "collate": 0.01, "cpu": 0.1}
CASES = {
    "step": measured(run(1, 0.2, step=0.199), one_worker=run(1, 0.1, fetch=0.1)),
    "dataset": measured(
        run(0, 0.12, step=0.01, **SLOW_SAMPLES),
        one_worker=run(1, 0.11, **SLOW_SAMPLES),
        eager=eager(0.11, 0.11, 0.055, 0.028, **SLOW_SAMPLES),
    ),
    "collate": measured(
        run(0, 0.12, step=0.01, fetch=0.01, collate=0.1),
        one_worker=run(1, 0.11, fetch=0.01, collate=0.1),
    ),
    "files": measured(
        run(0, 0.12, step=0.01, fetch=0.1, collate=0.01),
        one_worker=run(1, 0.11, fetch=0.1, collate=0.01),
        warm=run(1, 0.03, fetch=0.02, collate=0.01),
    ),
    "hand-off": measured(
        run(2, 0.1, fetch=0.01),
        one_worker=run(1, 0.1, fetch=0.01, collate=0.01),
        handoff=run(1, 0.09),
        eager=eager(0.02, 0.1, 0.1, 0.1, size=1 << 27),
    ),
    "batch": measured(
        run(0, 0.001, fetch=0.0001),
        one_worker=run(1, 0.001, fetch=0.0001, collate=0.0008),
        eager=eager(0.001, 0.001, 0.001, 0.001),
        large=run(0, 0.0012, batch_factor=4),
    ),
    "stragglers": measured(
        run(1, 0.02), one_worker=run(1, 0.02, fetch=0.02, slow={50: 0.4, 100: 0.4, 150: 0.4})
    ),
    "start": measured(
        run(1, 0.06, step=0.03, epoch=4),
        one_worker=run(1, 0.01, fetch=0.01),
        eager={1: run(1, 0.01, startup=0.12)},
    ),
    "lock": measured(
        run(2, 0.1),
        one_worker=run(1, 0.1, fetch=0.1, cpu=0.001),
        eager=eager(0.1, 0.1, 0.1, 0.1, fetch=0.1, cpu=0.001),
    ),
    "CPUs": measured(
        run(4, 0.03),
        one_worker=run(1, 0.1, fetch=0.1, cpu=0.1),
        eager=eager(0.1, 0.1, 0.05, 0.0255),
    ),
    "workers": measured(
        run(4, 0.1),
        cpus=Cpus(2, 2, None, 1),
        one_worker=run(1, 0.1, fetch=0.1, cpu=0.1),
        eager=eager(0.1, 0.1, 0.05, 0.1),
    ),
    "GIL": measured(
        run(0, 0.2, step=0.1, in_thread=True),
        one_worker=run(1, 0.1, fetch=0.1, cpu=0.1),
        eager=eager(0.1, 0.1, 0.05, 0.03),
    ),
    "unknown": Measured(CPUS),
}


@pytest.mark.parametrize("limit", CASES)
def test_the_limit(limit: str) -> None:
    assert CASES[limit].limit() == limit
    assert set(CASES) == set(LIMITS)
    report = Report(CASES[limit])
    assert report.to_dict()["limit"] == limit
    assert json.loads(json.dumps(report.to_dict()))
    if limit != "unknown":
        assert f"Limit: {LIMITS[limit]}" in str(report)


def test_predictions() -> None:
    case = CASES["dataset"]
    assert case.predict(Settings(0)) == pytest.approx(0.11 + 0.01)
    assert case.predict(Settings(0, in_thread=True)) == pytest.approx(0.11)
    assert case.predict(Settings(2)) == pytest.approx(0.055)
    assert case.predict(Settings(4)) == pytest.approx(0.028)
    assert case.predict(Settings(4), fetch=0.0) == pytest.approx(0.01)  # the step
    assert case.n_effective(2) == pytest.approx(2)
    assert case.n_effective(100) == pytest.approx(4 * 0.11 / 0.1)  # by the CPUs
    assert case.best_workers(Settings(0)) == 4


def test_stages_may_take_longer_in_the_loop_itself() -> None:
    case = measured(
        run(0, 0.3, fetch=0.1, collate=0.2),  # torch's threads wait for each other there
        one_worker=run(1, 0.11, fetch=0.1, collate=0.01),
        eager={0: run(0, 0.3, fetch=0.1, collate=0.2)},
    )
    assert case.limit() == "collate"
    assert case.predict(Settings(0), collate=0.01) == pytest.approx(0.11)
    assert "in the loop itself: dataset 100 ms, collate 200 ms" in str(Report(case))


def test_between_and_beyond_the_numbers_of_workers_that_were_run() -> None:
    idle = {"fetch": 0.1, "cpu": 0.0}
    case = measured(
        run(1, 0.1), one_worker=run(1, 0.1, **idle), eager=eager(0.1, 0.1, 0.0625, 0.04375)
    )
    # Each worker beyond the first takes a quarter of a worker from all.
    assert case.n_effective(3) == pytest.approx(3 / 1.5)
    assert case.n_effective(9) == pytest.approx(9 / 3)


def test_a_short_epoch_pays_for_the_start_of_its_workers() -> None:
    runs = eager(0.1, 0.1, 0.05, 0.025)
    runs[2].startup = 1.1
    case = measured(run(2, 0.15), one_worker=run(1, 0.1, fetch=0.1), eager=runs)
    assert case.predict(Settings(2, epoch=10)) == pytest.approx(0.05 + 0.1)
    assert case.predict(Settings(2, epoch=10, persistent=True)) == pytest.approx(0.05)


def test_periods() -> None:
    one = run(2, 0.5, step=0.1, count=9)
    assert len(one.steady) == 6  # as many from each worker, and not the first two
    assert one.period == pytest.approx(0.5)
    assert one.wait_share == pytest.approx(0.8)
    assert run(2, 0.5, batch_factor=4).period == pytest.approx(0.125)


def test_outliers_name_their_samples() -> None:
    slow = {50: 0.4, 103: 0.8}
    case = measured(run(1, 0.02), one_worker=run(1, 0.02, fetch=0.02, slow=slow))
    assert [outlier.samples for outlier in case.outliers()] == [[103], [50]]
    assert "2 batches > 3 × the median: samples 103, 50" in str(Report(case))


def change(before: list[float], after: list[float]) -> Change:
    return Change("name", "code", Settings(1), 0.1, before=before, after=after)


@pytest.mark.parametrize(
    ("before", "after", "is_advised"),
    [
        ([], [], False),  # not tried
        ([1.0, 1.0], [0.9, 0.9], True),
        ([1.0, 1.0], [0.98, 0.98], False),  # less than 3 %
        ([1.0, 1.0], [0.5, 1.1], False),  # one trial lost
    ],
)
def test_only_what_has_gained_is_advised(
    before: list[float], after: list[float], is_advised: bool
) -> None:
    one = change(before, after)
    assert one.is_advised is is_advised
    report = Report(CASES["dataset"], [one])
    assert report.advised == [one] * is_advised
    assert ("Do this: code" in str(report)) is is_advised
    assert ("Nothing that was tried" in str(report)) is not is_advised
    assert ("not tried" in str(report)) is not bool(after)


def test_nothing_is_tried_where_the_step_is_the_limit() -> None:
    no_loader: Any = None
    assert find_changes(CASES["step"], no_loader) == []
    assert find_changes(CASES["unknown"], no_loader) == []


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
def test_cpus(cpus: Cpus, usable: float) -> None:
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
def test_cpu_quota(tmp_path: Path, groups: str, files: dict[str, str], quota: float | None) -> None:
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
