"""`RayCollate` in two workers of Ray Train, each with a shard of a dataset, under DDP."""

import itertools
from pathlib import Path

import pytest
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

from samples import assert_same
from test_ray_data import BATCH, ROWS, SPEC, expected_batch, make_rows

EPOCHS = 2


def train(config):
    """Trains a linear model, and writes its batches and weights to a file."""
    from pinfeed.integrations.ray import RayCollate

    torch.manual_seed(0)
    model = prepare_model(torch.nn.Linear(8 * 6 * 3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    shard = ray.train.get_dataset_shard("train")
    epochs = []
    for _ in range(EPOCHS):
        batches = shard.iter_torch_batches(batch_size=BATCH // 2, collate_fn=RayCollate(SPEC))
        epochs.append([])
        for batch in batches:
            loss = (model(batch["image"].flatten(1)).squeeze(1) - batch["lengths"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epochs[-1].append(batch)
    rank = ray.train.get_context().get_world_rank()
    weights = [parameter.detach() for parameter in model.parameters()]
    torch.save((type(model).__name__, epochs, weights), Path(config["folder"], f"{rank}.pt"))
    ray.train.report({"loss": loss.item()})


@pytest.fixture(scope="module")
def results(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("train")
    ids = cluster.data.range(ROWS, override_num_blocks=10)
    trainer = TorchTrainer(
        train,
        train_loop_config={"folder": str(folder)},
        datasets={"train": ids.map_batches(make_rows, batch_size=None)},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(storage_path=str(folder)),
    )
    trainer.fit()
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("epoch", range(EPOCHS))
def test_each_row_reaches_one_worker(results, epoch):
    ids = [torch.cat([batch["id"] for batch in epochs[epoch]]) for _, epochs, _ in results]
    assert len(ids[0]) == len(ids[1]) == ROWS // 2
    assert sorted(torch.cat(ids).tolist()) == list(range(ROWS))


def test_batches(results):
    for _, epochs, _ in results:
        for batch in itertools.chain(*epochs):
            assert_same(batch, expected_batch(batch["id"].tolist()))


def test_workers_train_one_model(results):
    (kind, _, weights), (_, _, other) = results
    assert kind == "DistributedDataParallel"
    assert_same(weights, other)
