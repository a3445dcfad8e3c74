"""Lightning: epochs, ranks and checkpoints with `Collate` and `LengthBucketSampler`."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import lightning
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import pinfeed
import reference
from lightning_model import COLLATE, DATASET, EPOCHS, ROWS, TEXTS, TOKENS, Model, loader_of, train
from samples import assert_same

PROGRAM = Path(__file__).with_name("lightning_model.py")


def assert_true_batches(seen):
    """By the plain definition, each batch is that of its rows."""
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

# How ranks are started: Python's arguments, Lightning's strategy, and the samplers to try.
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
    """What each of two ranks saw, and its weights, by sampler."""
    folder = tmp_path_factory.mktemp(request.param)
    launcher, strategy, samplers = LAUNCHES[request.param]
    command = [sys.executable, *launcher, str(PROGRAM), strategy, str(folder), *samplers]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as torchrun has it: ranks share the CPUs
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
        if sampler != "LengthBucketSampler":  # repeats a row, for they don't divide evenly
            everything = rows(batches + others)
            assert set(everything) == set(range(ROWS))
            assert len(everything) == ROWS + 1
        else:  # repeats a batch, if their number is odd
            distinct = set(map(tuple, batches + others))
            assert sorted(rows(distinct)) == list(range(ROWS))
            assert len(batches) == -(-len(distinct) // 2)


LATE = pytest.mark.xfail(strict=True, reason="Lightning calls set_epoch after workers have begun")


@pytest.mark.parametrize("loader_class", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize(
    ("behind_device_loader", "first"),
    [(False, 0), (True, 0), (True, 2), pytest.param(False, 2, marks=LATE)],
)
def test_each_epoch_has_the_order_of_its_number(
    loader_class, behind_device_loader, first, tmp_path
):
    """Over workers, from the beginning and from the checkpoint of an epoch that was over."""

    def new_loader():
        sampler = pinfeed.ShuffleSampler(ROWS, 8)
        loader = loader_class(DATASET, batch_sampler=sampler, collate_fn=COLLATE, num_workers=2)
        return pinfeed.DeviceLoader(loader, "cpu") if behind_device_loader else loader

    checkpoint = None
    if first:
        saving = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, save_on_train_epoch_end=True)
        train(new_loader(), max_epochs=first, callbacks=[saving], enable_checkpointing=True)
        checkpoint = saving.best_model_path
    seen = train(new_loader(), max_epochs=first + 3, ckpt_path=checkpoint).seen
    assert_true_batches(seen)
    sampler = pinfeed.ShuffleSampler(ROWS, 8)
    for number in range(first, first + 3):
        sampler.set_epoch(number)
        batches = [batch["id"].tolist() for epoch, batch in seen if epoch == number]
        assert batches == [batch.tolist() for batch in sampler]


def test_predicting_takes_no_batch_sampler():
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False)
    model = Model()
    packed = pinfeed.PackSampler(TEXTS, seq_length=64)
    for loader in (loader_of("LengthBucketSampler"), DataLoader(DATASET, batch_sampler=packed)):
        with pytest.raises(TypeError, match="predict without a batch sampler"):
            trainer.predict(model, loader)
    loader = DataLoader(DATASET, batch_size=8, collate_fn=COLLATE)
    assert torch.cat(trainer.predict(model, loader)).tolist() == list(range(ROWS))


def test_overfitting_takes_loaders_that_are_not_shuffled():
    arrays = {"id": np.arange(ROWS), "tokens": TEXTS}
    fields = {"tokens": pinfeed.Pad(lengths="lengths")}
    for loader in (
        pinfeed.from_numpy(arrays, 8, fields=fields, device="cpu"),
        pinfeed.DeviceLoader(DataLoader(DATASET, batch_size=8, collate_fn=COLLATE), "cpu"),
    ):
        seen = train(loader, overfit_batches=2).seen
        assert ids_by_epoch(seen) == [[[*range(8)], [*range(8, 16)]]] * EPOCHS


def resumable(workers):
    buckets = pinfeed.LengthBucketSampler(TEXTS, max_tokens=200)
    loader = StatefulDataLoader(
        DATASET, batch_sampler=buckets, collate_fn=COLLATE, num_workers=workers
    )
    return pinfeed.DeviceLoader(loader, "cpu") if workers else loader


@pytest.mark.parametrize("stop", [5, 17])
@pytest.mark.parametrize("workers", [0, 2])
def test_resuming_within_an_epoch(workers, stop, tmp_path):
    whole = train(resumable(workers))
    steps = len(whole.seen)
    assert stop < steps
    sampler = resumable(0).batch_sampler
    for epoch, batches in enumerate(ids_by_epoch(whole.seen)):
        sampler.set_epoch(epoch)
        assert batches == [batch.tolist() for batch in sampler]
    assert stop != steps // EPOCHS
    saving = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=1)
    before = train(
        resumable(workers), max_steps=stop, callbacks=[saving], enable_checkpointing=True
    )
    after = train(resumable(workers), ckpt_path=saving.best_model_path)
    assert_same(before.seen + after.seen, whole.seen)
    for name, weights in whole.state_dict().items():
        assert_same(after.state_dict()[name], weights, name)


class Scheduled(Model):
    """Its schedule asks Lightning for the number of steps, and then Lightning loads no loader's state."""

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (2 * steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class ScheduledAndResumed(Scheduled):
    """The same with the hooks that the guide shows."""

    loader_state = None

    def on_save_checkpoint(self, checkpoint):
        checkpoint["loader"] = self.trainer.train_dataloader.state_dict()

    def on_load_checkpoint(self, checkpoint):
        self.loader_state = checkpoint["loader"]

    def on_train_start(self):
        if self.loader_state is not None:
            self.trainer.train_dataloader.load_state_dict(self.loader_state)


@pytest.mark.parametrize("kind", ["from_numpy", "DeviceLoader"])
@pytest.mark.parametrize("stop", [5, 13, 18])  # in an epoch, at its end, in the next
def test_resuming_with_a_schedule_takes_hooks(kind, stop, tmp_path):
    def new_loader():
        if kind == "from_numpy":
            return loader_of(kind, seed=3)
        sampler = pinfeed.ShuffleSampler(ROWS, 8)
        loader = DataLoader(DATASET, batch_sampler=sampler, collate_fn=COLLATE, num_workers=2)
        return pinfeed.DeviceLoader(loader, "cpu")

    def ids(model):
        return [batch["id"].tolist() for _, batch in model.seen]

    whole = ids(train(new_loader(), ScheduledAndResumed))
    assert len(whole) == 26
    for model, is_right in ((ScheduledAndResumed, True), (Scheduled, stop == 13)):
        saving = lightning.pytorch.callbacks.ModelCheckpoint(
            tmp_path / model.__name__, every_n_train_steps=stop
        )
        options = {"callbacks": [saving], "enable_checkpointing": True}
        before = ids(train(new_loader(), model, max_steps=stop, **options))
        after = ids(train(new_loader(), model, ckpt_path=saving.best_model_path))
        assert (before + after == whole) == is_right
