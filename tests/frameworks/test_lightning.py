"""Lightning: epochs, ranks and checkpoints with `Collate` and `LengthBucketSampler`."""

import functools
import itertools
import json
import os
import subprocess
import sys
import tomllib
import warnings
from collections import Counter
from pathlib import Path

import lightning
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import pinfeed
import reference
from lightning_model import (
    COLLATE,
    DATASET,
    EPOCHS,
    ROWS,
    TEXTS,
    TOKENS,
    Model,
    loader_of,
    streamed,
    train,
)
from pinfeed.integrations.lightning import ResumeLoaders
from samples import assert_same

PROGRAM = Path(__file__).with_name("lightning_model.py")


def assert_true_batches(seen):
    """Asserts that each batch contains the rows of its rank."""
    for _, batch in seen:
        values, lengths, _ = reference.pad([TOKENS[i] for i in batch["id"]], 0)
        assert_same(batch["tokens"], torch.from_numpy(values))
        assert_same(batch["lengths"], torch.from_numpy(lengths))


def ids_by_epoch(seen):
    return [
        [batch["id"].tolist() for epoch, batch in seen if epoch == number]
        for number in range(EPOCHS)
    ]


def rows(batches):
    return list(itertools.chain(*batches))


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

# How ranks are started: Python's arguments, Lightning's strategy, and the tested samplers.
LAUNCHES = {
    "torchrun": (
        TORCHRUN,
        "ddp",
        ["LengthBucketSampler", "DistributedSampler", "DeviceLoader", "from_numpy"],
    ),
    "spawned": ([], "ddp_spawn", ["LengthBucketSampler", "from_numpy"]),
}


@pytest.fixture(scope="module", params=LAUNCHES)
def ranks(request, tmp_path_factory):
    """Returns the samples and weights of each of two ranks, by sampler."""
    folder = tmp_path_factory.mktemp(request.param)
    launcher, strategy, samplers = LAUNCHES[request.param]
    command = [sys.executable, *launcher, str(PROGRAM), strategy, str(folder), *samplers]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as torchrun does: ranks share CPUs
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=one_thread
    )
    assert done.returncode == 0, done.stderr
    return {name: [torch.load(folder / f"{name}.{rank}") for rank in range(2)] for name in samplers}


def test_ranks_share_the_rows(ranks):
    for sampler, results in ranks.items():
        assert_shared(sampler, *results)


def assert_shared(sampler, result, other_result):
    (seen, weights), (other, other_weights) = result, other_result
    assert_same(weights, other_weights)
    assert_true_batches(seen + other)
    assert ids_by_epoch(seen)[0] != ids_by_epoch(seen)[1]
    for batches, others in zip(ids_by_epoch(seen), ids_by_epoch(other), strict=True):
        assert len(batches) == len(others)
        if sampler != "LengthBucketSampler":  # repeats a row: ranks don't divide ROWS
            everything = rows(batches + others)
            assert set(everything) == set(range(ROWS))
            assert len(everything) == ROWS + 1
        else:  # repeats a batch if their number is odd
            distinct = set(map(tuple, batches + others))
            assert sorted(rows(distinct)) == list(range(ROWS))
            assert len(batches) == -(-len(distinct) // 2)


LATE = pytest.mark.xfail(strict=True, reason="Lightning calls set_epoch after workers have begun")


@pytest.mark.parametrize("loader_class", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize(
    ("behind_device_loader", "first"),
    [(False, 0), (True, 0), (True, 2), pytest.param(False, 2, marks=LATE)],
)
def test_each_epoch_has_its_own_order(loader_class, behind_device_loader, first, tmp_path):
    """With workers, from the beginning and from a checkpoint at the end of an epoch."""

    def new_loader():
        sampler = pinfeed.samplers.ShuffleSampler(ROWS, 8)
        loader = loader_class(DATASET, batch_sampler=sampler, collate_fn=COLLATE, num_workers=2)
        return pinfeed.DeviceLoader(loader, "cpu") if behind_device_loader else loader

    checkpoint = None
    if first:
        saving = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, save_on_train_epoch_end=True)
        train(new_loader(), max_epochs=first, callbacks=[saving], enable_checkpointing=True)
        checkpoint = saving.best_model_path
    seen = train(new_loader(), max_epochs=first + 3, ckpt_path=checkpoint).seen
    assert_true_batches(seen)
    sampler = pinfeed.samplers.ShuffleSampler(ROWS, 8)
    for number in range(first, first + 3):
        sampler.set_epoch(number)
        batches = [batch["id"].tolist() for epoch, batch in seen if epoch == number]
        assert batches == [batch.tolist() for batch in sampler]


def test_predict_rejects_batch_samplers():
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False)
    model = Model()
    packed = pinfeed.samplers.PackSampler(TEXTS, seq_length=64)
    for loader in (loader_of("LengthBucketSampler"), DataLoader(DATASET, batch_sampler=packed)):
        with pytest.raises(TypeError, match="pass a DataLoader without a batch sampler"):
            trainer.predict(model, loader)
    loader = DataLoader(DATASET, batch_size=8, collate_fn=COLLATE)
    assert torch.cat(trainer.predict(model, loader)).tolist() == list(range(ROWS))


def test_overfitting_uses_unshuffled_loaders():
    arrays = {"id": np.arange(ROWS), "tokens": TEXTS}
    fields = {"tokens": pinfeed.Pad(lengths="lengths")}
    for loader in (
        pinfeed.from_numpy(arrays, 8, fields=fields, device="cpu"),
        pinfeed.DeviceLoader(DataLoader(DATASET, batch_size=8, collate_fn=COLLATE), "cpu"),
    ):
        seen = train(loader, overfit_batches=2).seen
        assert ids_by_epoch(seen) == [[[*range(8)], [*range(8, 16)]]] * EPOCHS


def resumable(workers):
    buckets = pinfeed.samplers.LengthBucketSampler(TEXTS, max_tokens=200)
    loader = StatefulDataLoader(
        DATASET, batch_sampler=buckets, collate_fn=COLLATE, num_workers=workers
    )
    return pinfeed.DeviceLoader(loader, "cpu") if workers else loader


class Scheduled(Model):
    """A model whose schedule requests the number of steps, after which Lightning loads no loader state."""

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: 1 - step / (2 * abs(steps) + 99)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def ids_of(model):
    return [batch["id"].tolist() for _, batch in model.seen]


def saved_after(steps, loader, kind, folder, callback):
    """Returns the trained samples, and the path of a checkpoint."""
    saving = lightning.pytorch.callbacks.ModelCheckpoint(folder, every_n_train_steps=1)
    options = {"callbacks": [*callback, saving], "enable_checkpointing": True}
    return train(loader, kind, max_steps=steps, **options), saving.best_model_path


def sampled(kind, size=8, **ranks):
    if kind == "from_numpy":
        fields = {"tokens": pinfeed.Pad(lengths="lengths")}
        arrays = {"id": np.arange(ROWS), "tokens": TEXTS}
        options = {"shuffle": True, "seed": 3, "fields": fields, "device": "cpu"}
        return pinfeed.from_numpy(arrays, size, **options, **ranks)
    sampler = pinfeed.samplers.ShuffleSampler(ROWS, size, **ranks)
    loader_class = StatefulDataLoader if "Stateful" in kind else DataLoader
    loader = loader_class(DATASET, batch_sampler=sampler, collate_fn=COLLATE)
    return pinfeed.DeviceLoader(loader, "cpu") if "Device" in kind else loader


def every_third_state():
    sampler = pinfeed.samplers.ShuffleSampler(ROWS, 8)
    options = {"collate_fn": COLLATE, "num_workers": 1, "snapshot_every_n_steps": 3}
    loader = StatefulDataLoader(DATASET, batch_sampler=sampler, **options)
    return pinfeed.DeviceLoader(loader, "cpu")


# Loaders, and the numbers of steps after which a run stops: in an epoch, at its end, in the next one.
RESUMED = {
    "buckets": (lambda: resumable(0), [5, 17]),
    "buckets, workers": (lambda: resumable(2), [5, 17]),
    "every third state": (every_third_state, [5]),
    "stream": (lambda: pinfeed.DeviceLoader(streamed(0, 20), "cpu"), [1, 5, 11, 12, 13, 23]),
    "stream, workers": (lambda: pinfeed.DeviceLoader(streamed(2, 0), "cpu"), [5]),
} | {
    kind: (functools.partial(sampled, kind), [5, 13, 18])
    for kind in ("from_numpy", "DeviceLoader", "Stateful", "DeviceLoader, Stateful")
}


@pytest.mark.parametrize("model", [Model, Scheduled])
@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run(name, model, tmp_path):
    """A resumed run has the batches of one that didn't stop, and, without a schedule, its weights."""
    new_loader, stops = RESUMED[name]
    whole = train(new_loader(), model)
    for stop in stops:
        callback = [ResumeLoaders()]
        before, path = saved_after(stop, new_loader(), model, tmp_path, callback)
        after = train(new_loader(), model, ckpt_path=path, callbacks=callback)
        assert_same(before.seen + after.seen, whole.seen)
        if model is Model:  # the schedule of the others depends on max_steps
            assert_same(after.state_dict(), whole.state_dict())


def test_the_entry_point_adds_the_callback(tmp_path, monkeypatch):
    project = tomllib.loads((PROGRAM.parents[2] / "pyproject.toml").read_text())["project"]
    (group, entries), *others = project["entry-points"].items()
    assert others == []
    folder = tmp_path / "pinfeed_entry-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pinfeed-entry\nVersion: 0\n")
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    trainer = lightning.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    assert any(type(callback) is ResumeLoaders for callback in trainer.callbacks)


def of_a_rank(kind, size, rank, world_size):
    if kind == "stream":
        return pinfeed.DeviceLoader(streamed(rank=rank, world_size=world_size), "cpu")
    return sampled(kind, size, rank=rank, world_size=world_size)


@pytest.mark.parametrize("kind", ["from_numpy", "DeviceLoader, Stateful", "stream"])
@pytest.mark.parametrize(("world_size", "size"), [(1, 8), (3, 8), (2, 8), (2, 4), (2, 16)])
def test_a_checkpoint_of_two_ranks_resumes_on_other_ranks(kind, world_size, size, tmp_path):
    if kind == "stream" and size != 8:
        return  # DataLoader makes the batches
    callback, seen = [ResumeLoaders()], []
    for rank in reversed(range(2)):  # Lightning saves rank 0's
        loader = of_a_rank(kind, 8, rank, 2)
        before, path = saved_after(4, loader, Model, tmp_path / str(rank), callback)
        seen += before.seen
    for rank in range(world_size):
        loader = of_a_rank(kind, size, rank, world_size)
        seen += train(loader, ckpt_path=path, callbacks=callback).seen
    for batches in ids_by_epoch(seen):
        times = Counter(rows(batches))
        if kind == "stream":  # uneven="drop"
            assert len(times) == times.total() >= 96 - (world_size - 1)
        else:
            assert set(times) == set(range(ROWS))
            assert times.total() - ROWS < world_size + 1


class OfAnySize(lightning.LightningModule):
    """A model that counts the samples of each loader by epoch, and records the steps before validations."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.samples, self.validated = Counter(), []

    def training_step(self, batches, number):
        for name, batch in batches.items():
            self.samples[self.current_epoch, name] += len(batch)
        return self.weight * 2

    def validation_step(self, batch, number):
        self.validated.append(self.global_step)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.parametrize(
    ("limit", "stop", "size", "counts", "validated"),
    [
        (1.0, 3, 4, [(80, 80), (80, 80)], [3 + 14, 17 + 20]),
        (1.0, 3, 16, [(80, 80), (80, 72)], [3 + 4, 7 + 5]),
        (1.0, 7, 4, [(80, 80), (80, 80)], [7 + 6, 13 + 20]),  # the second pass of the other loader
        (100, 7, 4, [(80, 80), (80, 80)], [7 + 6, 13 + 20]),
        (0.5, 3, 4, [(40, 40), (40, 40)], [3 + 4, 7 + 10]),
        (0.5, 4, 16, [(48, 40), (32, 32)], [4 + 1, 5 + 2]),  # more than half is done: one batch
        (0.5, 5, 8, [(40, 40), (40, 40)], [5 + 5]),  # the limit is reached
        (0.5, 5, 4, [(40, 40), (40, 40)], [5 + 10]),
        (5, 3, 4, [(32, 32), (20, 20)], [5, 10]),  # numbers of batches of any size
        (5, 3, 32, [(80, 72), (80, 72)], [3 + 2, 5 + 3]),  # no limit
    ],
)
def test_two_loaders_with_different_batch_sizes(limit, stop, size, counts, validated, tmp_path):
    def fit(size, **options):
        loaders = {
            name: pinfeed.from_numpy(np.arange(count), size, shuffle=True, seed=1, device="cpu")
            for name, count in (("long", 80), ("short", 40))
        }
        model = OfAnySize()
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=EPOCHS,
            limit_train_batches=limit,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[ResumeLoaders(), saving],
            max_steps=options.pop("max_steps", -1),
        )
        trainer.fit(model, loaders, DataLoader([0]), **options)
        return model

    saving = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=1)
    before = fit(8, max_steps=stop)
    after = fit(size, ckpt_path=saving.best_model_path)
    total = before.samples + after.samples
    assert [(total[n, "long"], total[n, "short"]) for n in range(EPOCHS)] == counts
    assert [step for step in after.validated if step] == validated


@pytest.mark.parametrize("kind", [Model, Scheduled])
def test_a_stream_counts_epochs_after_an_epoch_checkpoint(kind, tmp_path):
    new_loader, _ = RESUMED["stream"]
    whole = ids_of(train(new_loader(), kind))
    saving = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, save_on_train_epoch_end=True)
    options = {"callbacks": [ResumeLoaders(), saving], "enable_checkpointing": True}
    before = train(new_loader(), kind, max_epochs=1, **options)
    after = train(new_loader(), kind, ckpt_path=saving.best_model_path, callbacks=[ResumeLoaders()])
    assert ids_of(before) + ids_of(after) == whole


def test_ranks_that_are_processes_resume(tmp_path):
    program = PROGRAM.with_name("lightning_resume.py")
    results = {}
    for what, world_size in (("save", 2), ("resume", 3)):
        launcher = [*TORCHRUN[:-1], f"--nproc-per-node={world_size}"]
        done = subprocess.run(
            [sys.executable, *launcher, str(program), what, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
        results[what] = [
            json.loads((tmp_path / f"{what}.{rank}").read_text()) for rank in range(world_size)
        ]
    for epoch in range(EPOCHS):
        times = Counter(
            row
            for seen in (*results["save"], *results["resume"])
            for number, ids in seen
            for row in ids
            if number == epoch
        )
        assert set(times.values()) == {1}
        assert len(times) >= 96 - 2  # uneven="drop"


def test_a_stream_needs_a_device_loader(tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before, path = saved_after(5, streamed(), Model, tmp_path, [ResumeLoaders()])
    actual = [str(warning.message) for warning in caught if "ResumeLoaders" in str(warning.message)]
    assert "a resumed run skips that batch; pass Lightning pinfeed.DeviceLoader" in actual[0]
    after = train(streamed(), ckpt_path=path, callbacks=[ResumeLoaders()])
    assert len(before.seen + after.seen) == 24 - 1
