"""accelerate and Hugging Face's Trainer resume with other rank counts and batch sizes, as in the guide."""

from collections import Counter
from pathlib import Path

import accelerate
import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import pinfeed
from trainers import arguments_in

ROWS = 101
ELSEWHERE = pytest.mark.parametrize(
    ("world_size", "size"), [(2, 4), (1, 4), (3, 4), (2, 2), (2, 8), (3, 8)]
)


def rows_loader(kind, rank, world_size, size, workers=0):
    if kind == "from_numpy":
        options = {"shuffle": True, "seed": 2, "device": "cpu"}
        arrays = {"row": np.arange(ROWS)}
        return pinfeed.from_numpy(arrays, size, rank=rank, world_size=world_size, **options)
    sampler = pinfeed.samplers.ShuffleSampler(ROWS, size, rank=rank, world_size=world_size)
    dataset = pinfeed.ArrayDataset({"row": np.arange(ROWS)})
    options = {"batch_sampler": sampler, "collate_fn": pinfeed.Collate(), "num_workers": workers}
    if kind == "StatefulDataLoader":
        return StatefulDataLoader(dataset, **options)
    return pinfeed.DeviceLoader(DataLoader(dataset, **options), "cpu")


def assert_each_row_once(batches, world_size, times=1):
    """Asserts that each row comes once, except for rows that even out ranks."""
    result = Counter(np.concatenate(batches).tolist())
    assert set(result) == set(range(ROWS))
    assert min(result.values()) == times
    assert result.total() - times * ROWS <= times * (world_size - 1) + 1


KINDS = ["from_numpy", "DeviceLoader", "StatefulDataLoader"]


@pytest.mark.parametrize("kind", KINDS)
@ELSEWHERE
def test_accelerate(kind, world_size, size, tmp_path):
    seen = []
    for rank in reversed(range(2)):  # accelerate saves rank 0's state
        accelerator = accelerate.Accelerator(cpu=True)
        loader = rows_loader(kind, rank, 2, 4)
        accelerator.register_for_checkpointing(loader)
        batches = iter(loader)
        seen += [next(batches)["row"] for _ in range(5)]
        accelerator.save_state(tmp_path / str(rank))
    for rank in range(world_size):
        accelerator = accelerate.Accelerator(cpu=True)
        loader = rows_loader(kind, rank, world_size, size)
        accelerator.register_for_checkpointing(loader)
        accelerator.load_state(tmp_path / "0")
        seen += [batch["row"] for batch in loader]
    assert_each_row_once(seen, world_size)


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (2, 1), (2, 2)])
def test_torchdata_resumes_with_other_worker_counts(before, after):
    """StatefulDataLoader itself requires an equal number of workers."""
    seen, states = [], []
    for rank in range(2):
        loader = rows_loader("StatefulDataLoader", rank, 2, 4, before)
        batches = iter(loader)
        seen += [next(batches)["row"] for _ in range(5)]
        states.append(loader.state_dict())
    for rank in range(3):
        loader = rows_loader("StatefulDataLoader", rank, 3, 4, after)
        if before != after:
            loader.load_state_dict(states[0])
            with pytest.raises(AssertionError):
                iter(loader)
            loader = rows_loader("StatefulDataLoader", rank, 3, 4, after)
        if rank == 0:
            loader.batch_sampler.load_state_dict(states)
        else:
            loader = pinfeed.DeviceLoader(loader, "cpu")
            loader.load_state_dict(states if rank == 1 else states[1])
        seen += [batch["row"] for batch in loader]
    assert_each_row_once(seen, 3)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("as_list", [False, True])
def test_torchdata_states_at_the_end_of_an_epoch(workers, as_list):
    """Workers use up the sampler before the loop ends."""
    loaders = [rows_loader("StatefulDataLoader", rank, 2, 4, workers) for rank in range(2)]
    assert len([batch for loader in loaders for batch in loader]) == 2 * 13
    states = [loader.state_dict() for loader in loaders]
    resumed = pinfeed.DeviceLoader(rows_loader("StatefulDataLoader", 0, 2, 4, workers), "cpu")
    resumed.load_state_dict(states if as_list else states[0])
    fresh = pinfeed.samplers.ShuffleSampler(ROWS, 4, rank=0, world_size=2)
    fresh.set_epoch(1)
    assert [batch["row"].tolist() for batch in resumed] == [batch.tolist() for batch in fresh]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen = []

    def forward(self, row):
        self.seen.append(row)
        return {"loss": self.weight * 2}


class Passes:
    """Hides the loader's attributes from Trainer, and skips empty passes."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        is_empty = True
        while is_empty:  # an empty pass
            for batch in self.loader:
                is_empty = False
                yield batch


class SaveLoader(transformers.TrainerCallback):
    """Saves the loader's state beside the checkpoint."""

    def __init__(self, loader):
        self.loader = loader

    def on_save(self, args, state, control, **_):
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        torch.save(self.loader.state_dict(), folder / "loader.pt")


def trained(loader, steps, folder, checkpoint=None):
    arguments = arguments_in(folder, max_steps=steps, save_steps=steps, ignore_data_skip=True)
    if checkpoint is not None:
        loader.load_state_dict(torch.load(Path(checkpoint, "loader.pt")))
    model = Model()
    trainer = transformers.Trainer(model, arguments, callbacks=[SaveLoader(loader)])
    trainer.get_train_dataloader = lambda: Passes(loader)
    trainer.train(resume_from_checkpoint=checkpoint)
    return model.seen, str(Path(folder, f"checkpoint-{steps}"))


@pytest.mark.parametrize("kind", ["from_numpy", "DeviceLoader"])
@ELSEWHERE
def test_trainer(kind, world_size, size, tmp_path):
    before = 13 + 5  # in the second epoch
    seen = []
    for rank in reversed(range(2)):
        rows, checkpoint = trained(rows_loader(kind, rank, 2, 4), before, tmp_path / str(rank))
        seen += rows[-5:]
    left = -(-(ROWS - 40) // (world_size * size))
    for rank in range(world_size):
        loader = rows_loader(kind, rank, world_size, size)
        steps = before + left + len(loader)
        seen += trained(loader, steps, tmp_path / "after", checkpoint)[0]
    assert_each_row_once(seen, world_size, 2)


@pytest.mark.parametrize("stop", [5, 13, 18])
def test_trainer_skips_batches_of_a_sampler_with_equal_batch_size(stop, tmp_path):
    def run(steps, checkpoint=None):
        arguments = arguments_in(tmp_path, max_steps=steps, save_steps=steps)
        sampler = pinfeed.samplers.ShuffleSampler(ROWS, 8, rank=0, world_size=1)
        dataset = pinfeed.ArrayDataset({"row": np.arange(ROWS)})
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=pinfeed.Collate())
        trainer = transformers.Trainer(Model(), arguments)
        trainer.get_train_dataloader = lambda: trainer.accelerator.prepare(loader)
        trainer.train(resume_from_checkpoint=checkpoint)
        return [rows.tolist() for rows in trainer.model.seen]

    whole = run(26)
    before = run(stop)
    assert before + run(26, str(tmp_path / f"checkpoint-{stop}")) == whole


def stream_loader():
    shards = [[{"row": 8 * n + i} for i in range(8)] for n in range(12)]
    stream = pinfeed.StreamDataset(shards, 20, open_shard=iter)
    return pinfeed.DeviceLoader(StatefulDataLoader(stream, 8), "cpu")


@pytest.mark.parametrize("stop", [5, 12, 15, 24])
def test_a_stream_in_trainer(stop, tmp_path):
    whole, _ = trained(stream_loader(), 30, tmp_path / "whole")
    before, checkpoint = trained(stream_loader(), stop, tmp_path / "before")
    after, _ = trained(stream_loader(), 30, tmp_path / "after", checkpoint)
    assert [rows.tolist() for rows in before + after] == [rows.tolist() for rows in whole]
    assert len(whole) == 30
