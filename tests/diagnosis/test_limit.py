"""The limit and the recommendations, computed from fixed times."""

import hashlib
import json
import threading
import time
from pathlib import Path

import pytest

from pinfeed.diagnosis.changes import Change
from pinfeed.diagnosis.limit import CURES, LIMITS, Measured, other_load, usable_cpus
from pinfeed.diagnosis.report import Report
from pinfeed.diagnosis.runs import Run, Settings
from pinfeed.diagnosis.stages import Batch
from pinfeed.limits import cpu_quota


def run(
    workers=0, *, wait=0.1, step=0.0, fetch=0.0, collate=0.0, sampler=0.0, cpu=0.0, queued=0.0,
    disk_bytes=0, lag=0.0, slow=(), epoch=None, start=0.0, **options,
):  # fmt: skip
    """Returns a run of 40 batches of four samples; `lag` is the time from a finished batch to the loop."""
    run = Run(Settings(workers, **options), bytes=1000, epoch=epoch, draws=[sampler] * 40)
    now = 0.0
    for number in range(40):
        batch = Batch([4 * number + i for i in range(4)])
        batch.requested = now
        batch.received = now + wait + start * (number == 0)
        batch.end = now = batch.received + step
        batch.collated = batch.received - lag
        batch.sample_seconds = [50 * fetch if i in slow else fetch / 4 for i in batch.indices]
        batch.fetched = batch.collated - collate
        batch.start = batch.fetched - sum(batch.sample_seconds)
        batch.cpu_seconds, batch.disk_bytes, batch.queued_seconds = cpu, disk_bytes, queued
        run.batches.append(batch)
    return run


def measured(loop, **what):
    return Measured(**({"cpus": 4.0, "loop": loop, "step": loop.step} | what))


ONE = run(1, fetch=0.1, cpu=0.01)
CASES = {
    "step": measured(run(1, wait=0.001, step=0.2, fetch=0.1)),
    "step beside single late batches": measured(run(2, wait=0.02, step=0.2, fetch=0.1)),
    "sampler": measured(run(step=0.01, sampler=0.09, fetch=0.005)),
    "sampler with workers": measured(run(2, sampler=0.09, fetch=0.05, lag=0.1)),
    "dataset": measured(run(step=0.01, fetch=0.09, collate=0.01)),
    "dataset with workers": measured(run(2, wait=0.05, fetch=0.1, lag=0.01), single=ONE),
    "dataset in a thread": measured(run(step=0.1, fetch=0.2, in_thread=True), single=ONE),
    "collate": measured(run(step=0.01, fetch=0.01, collate=0.09)),
    "files": measured(run(fetch=0.1, disk_bytes=1000), warm=run(wait=0.03, fetch=0.02, collate=0.01)),
    "files that are evicted": measured(run(fetch=0.1, cpu=0.02, disk_bytes=1 << 20), warm=run(fetch=0.1)),
    "hand_off": measured(run(2, fetch=0.01, lag=0.1), single=ONE),
    "batch": measured(run(wait=0.0001, fetch=0.00002)),
    "unexplained": measured(run(fetch=0.02)),
    "unexplained in a thread": measured(run(fetch=0.02, in_thread=True)),
    "unexplained with workers": measured(run(2, fetch=0.02)),
    "start": measured(run(1, wait=0.01, step=0.03, fetch=0.01, epoch=4, start=0.2)),
    "stragglers": measured(run(wait=0.03, fetch=0.01, slow=(50, 100, 150))),
    "lock": measured(run(2, fetch=0.2, cpu=0.01), single=ONE),
    "lock beside other work": measured(
        run(2, wait=0.15, fetch=0.3, cpu=0.01, queued=0.12),
        single=run(1, wait=0.15, fetch=0.15, cpu=0.01, queued=0.06),
    ),
    "cpus": measured(run(4, wait=0.05, fetch=0.2, cpu=0.1, queued=0.1), single=ONE),
    "cpus whose loop waits for one, too": measured(run(4, wait=0.05, fetch=0.19, cpu=0.1, queued=0.09, lag=0.05)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_limit(name):
    report, limit = Report(CASES[name]), name.split()[0]
    result = json.loads(json.dumps(report.to_dict()))
    assert report.limit == result["limit"] == limit
    assert f"Limit: {limit} ({LIMITS[limit]})" in str(report)
    assert str(report).endswith(f"\nWhat helps against this limit: {CURES[limit]}.")
    assert ("slow samples: 50, 100, 150\n" in str(report)) is (limit == "stragglers")


def test_the_page_documents_each_limit():
    page = (Path(__file__).parents[2] / "docs/profile-your-loader.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert rows == {case.split()[0] for case in CASES} == set(LIMITS) == set(CURES)


def test_the_stages_add_up():
    stages = Report(CASES["sampler"]).to_dict()["stages"]
    assert stages["sampler"] == pytest.approx(0.09)
    assert sum(stages.values()) == pytest.approx(0.1 + 0.01)
    loop = CASES["start"].loop
    assert loop.start == pytest.approx(0.2 / 4)
    assert loop.period == pytest.approx(0.01 + 0.03 + 0.2 / 4)


TRIED = {
    "not tried": ([], [], 0.0, False),
    "twice": ([1.0, 1.0], [0.9, 0.9], 0.0, True),
    "once": ([1.0], [0.5], 0.0, False),
    "less than 3 %": ([1.0, 1.0], [0.98, 0.98], 0.0, False),
    "one round lost": ([1.0, 1.0], [0.5, 1.1], 0.0, False),
    "as it is varies more": ([1.0, 2.0], [0.9, 1.5], 0.0, False),
    "less than other work": ([1.0, 1.0], [0.8, 0.8], 0.4, False),
    "more than other work": ([1.0, 1.0], [0.5, 0.5], 0.4, True),
}


@pytest.mark.parametrize("name", TRIED)
def test_only_gains_beyond_other_work_count(name):
    before, after, load, is_recommended = TRIED[name]
    case = measured(run(fetch=0.09), load=load)
    change = Change("name", "code", Settings(1), before=before, after=after, min_gain=case.min_gain)
    report = Report(case, [change])
    assert change.is_recommended is is_recommended
    assert report.recommended == [change] * is_recommended
    text = str(report)
    assert ("Do this: code" in text) is is_recommended
    assert ("No change gained more than" in text) is (bool(after) and not is_recommended)
    assert ("No change was tried." in text) is (not after)
    assert ("gains below 1.40× are not shown" in text) is (load > 0)
    shows = bool(after) and abs(change.gain) > case.min_gain
    assert ("× as fast" in text or f"{1 + change.gain:.2f}×\n" in text) is shows


def test_printed_times_match_the_printed_gain():
    change = Change("name", "code", Settings(1), before=[0.4, 0.5], after=[0.1, 0.2])
    text = str(Report(measured(run(fetch=0.09)), [change]))
    assert "name       450 ms     150 ms   3.00×" in text
    assert change.gain == pytest.approx(2)


@pytest.mark.parametrize(
    ("cpus", "usable"),
    [
        ((8, 8, None, 1), 8),
        ((8, 2, None, 1), 2),
        ((8, 8, 1.5, 1), 1.5),
        ((8, 8, None, 4), 2),
        ((8, 2, None, 4), 2),  # pinned to its own CPUs
        ((8, 8, 2.0, 4), 1),  # at least one
    ],
)
def test_cpus(cpus, usable):
    assert usable_cpus(*cpus) == usable


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


def test_other_work_is_measured():
    """Six threads on two CPUs leave less than half of them."""
    end = time.perf_counter() + 1.0

    def work():
        while time.perf_counter() < end:
            hashlib.sha256(bytes(1 << 20))

    cpus = usable_cpus(1, 1, cpu_quota(), 1)
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert 0.3 < other_load(cpus, 0.3) < 1
    for thread in threads:
        thread.join()
