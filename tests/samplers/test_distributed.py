"""Two ranks, as torchrun starts them, train a small model, and see each sample once per epoch."""

import itertools
import json
from pathlib import Path

import pytest
from accelerate.utils import concatenate
from filelock import FileLock
from torch.utils.data import default_collate

import distributed_job
from distributed_job import EPOCHS, SAMPLES
from pinfeed import Collate, Pad
from programs import run_python

RANKS = 2


@pytest.fixture(scope="session")
def results(tmp_path_factory, worker_id):
    """The results of all ranks, from one job for all test processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "ranks"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "lock"):
        if not (folder / "0.json").exists():
            job = distributed_job.__file__
            code = Path(job).read_text(encoding="utf-8")
            run_python(code, str(folder), path=job, timeout=300, ranks=RANKS)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


def samples_of(ranks):
    """Returns the samples of all ranks, and asserts that their batch counts are equal."""
    assert len({len(batches) for batches in ranks}) == 1
    return list(itertools.chain(*itertools.chain(*ranks)))


def epochs_of(results, job):
    return [samples_of([result[job][epoch] for result in results]) for epoch in range(EPOCHS)]


@pytest.mark.parametrize(
    ("job", "repeated"),
    [
        *((job, 0) for job in ("array", "ahead", "from_numpy", "bucket", "shuffled", "stream")),
        ("stream in turn", 0),
        ("stream with workers", 0),
        ("accelerate, from_numpy", 0),
        ("accelerate, DataLoader", 2),  # they fill up the last batch
        ("accelerate, DeviceLoader", 2),
    ],
)
def test_each_sample_once(job, repeated, results):
    epochs = epochs_of(results, job)
    for samples in epochs:
        assert set(samples) == set(range(SAMPLES))
        assert len(samples) == SAMPLES + repeated
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("count", [640, 641])
def test_samplers_that_accelerate_prepares(count, results):
    """A sampler that is already sharded raises; the suggested fix yields each sample once."""
    actual = [result["prepared samplers"][str(count)] for result in results]
    for rank in actual:
        assert len(rank["errors"]) == 2 * len(rank["split"])
        for message in rank["errors"]:
            assert "these are already split among 2" in message
            assert "rank=0, world_size=1" in message
    for name in actual[0]["split"]:
        epochs = epochs_of([rank["split"] for rank in actual], name)
        for samples in epochs:
            # accelerate evens the ranks out with the first samples.
            assert len(samples) <= count + 2 * 32
            if count == 640 and name not in ("pack", "max_tokens"):
                assert len(samples) == count
            if name != "balanced":
                assert len(set(samples)) == (640 if name == "drop_last" else count)
        assert epochs[0] != epochs[1]


def test_batches_that_accelerate_cuts(results):
    """Ranks of equal size get each sample once; with different sizes samples would be lost."""
    actual = [result["cut batches"] for result in results]
    for name, samples in actual[0].items():
        if name.startswith("ShuffleSampler"):
            every = samples + actual[1][name]
            assert set(every) == set(range(SAMPLES))
            assert len(every) <= SAMPLES + distributed_job.BATCH
        elif name.endswith("False, True"):
            assert "leave out dispatch_batches" in samples
        else:
            assert "split_batches==True` you must have a `batch_size`" in samples


def test_streams_that_accelerate_prepares(results):
    """A stream that is already sharded raises; the suggested fix yields each sample once."""
    actual = [result["prepared streams"] for result in results]
    assert [len(rank["errors"]) for rank in actual] == [2 * 3 * 2 + 1, 3 * 2]
    for message in itertools.chain(*(rank["errors"] for rank in actual)):
        assert "is sharded over 2 ranks already" in message
        assert "rank=0, world_size=1" in message
    for name, samples in actual[0]["dealt out"].items():
        every = samples + actual[1]["dealt out"][name]
        assert set(every) == set(range(SAMPLES))
        assert len(every) <= SAMPLES + 2 * distributed_job.BATCH  # accelerate evens the ranks out


def test_an_unsharded_loader_warns_once(results):
    for rank, result in enumerate(results):
        said = result["warnings"]
        for name in ("shuffled", "in order", "torchdata", "prepared outside", "nested"):
            (message,) = said.pop(name)
            assert f"rank {rank} of 2, and every rank gets all samples" in message
        assert not any(said.values())


@pytest.mark.parametrize("uneven", ["drop", "repeat"])
def test_uneven_shards(uneven, results):
    """Ranks don't wait for each other, so the job ended."""
    for samples in epochs_of(results, f"stream, uneven shards, {uneven}"):
        assert set(samples) <= set(range(SAMPLES))
        assert abs(len(samples) - SAMPLES) <= 2  # one per worker, except the first rank's
        if uneven == "drop":
            assert len(set(samples)) == len(samples)
        else:
            assert set(samples) == set(range(SAMPLES))


def test_ranks_come_from_the_process_group(results):
    for rank, result in enumerate(results):
        mine = list(range(rank, 10, RANKS))
        assert result["made before the group"] == mine
        assert result["without environment"] == [mine] * 4 + [list(range(10))] * 2


def test_results_that_accelerate_and_torch_concatenate():
    """Batches contain only tensors: None in place of unrequested lengths or masks is an error in accelerate."""
    samples = [[1, 2], [3]]
    both = Collate(Pad(lengths=True, mask=True))(samples)
    for joined in (concatenate([both, both]), default_collate([both, both])):
        assert type(joined) is type(both)
        assert joined.lengths.flatten().tolist() == [2, 1, 2, 1]
        assert joined.mask.flatten().tolist() == [True, True, True, False] * 2
    named = Collate({"x": Pad(lengths="lengths")})([{"x": sample} for sample in samples])
    assert concatenate([named, named])["lengths"].tolist() == [2, 1, 2, 1]
    bare = Collate(Pad())(samples)
    for join in (concatenate, default_collate):
        with pytest.raises(TypeError, match="NoneType"):
            join([bare, bare])
