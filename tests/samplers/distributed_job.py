"""The program of each rank in `test_distributed.py`: ``torchrun distributed_job.py FOLDER``."""

import itertools
import json
import os
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed
from accelerate import Accelerator
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

import pinfeed

SAMPLES, BATCH, EPOCHS, CLASSES = 46, 4, 2, 10
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

IMAGES = np.random.default_rng(0).integers(0, 256, (SAMPLES, 8, 8, 3), np.uint8)
COLLATE = pinfeed.Collate({"image": pinfeed.Image(MEAN, STD)})


def sample(number):
    return {"image": IMAGES[number], "label": number % CLASSES, "number": number}


def read_shard(numbers):
    return map(sample, numbers)


def array_dataset():
    numbers = np.arange(SAMPLES)
    return pinfeed.ArrayDataset({"image": IMAGES, "label": numbers % CLASSES, "number": numbers})


def array():
    dataset = array_dataset()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, BATCH, sampler=sampler, collate_fn=COLLATE)
    return loader, sampler.set_epoch


def ahead():
    loader, set_epoch = array()
    return pinfeed.DeviceLoader(loader, "cpu"), set_epoch


def from_numpy():
    fields = {"image": pinfeed.Image(MEAN, STD)}
    loader = pinfeed.from_numpy(array_dataset(), BATCH, shuffle=True, fields=fields, device="cpu")
    return loader, lambda epoch: None  # a new order without set_epoch


def prepared(kind):
    """Prepares loaders with accelerate."""

    def make():
        accelerator = Accelerator(cpu=True)
        plain = DataLoader(array_dataset(), BATCH, shuffle=True, collate_fn=COLLATE)
        loader = accelerator.prepare(from_numpy()[0] if kind == "from_numpy" else plain)
        if kind == "DeviceLoader":
            loader = pinfeed.DeviceLoader(loader, "cpu")
        return loader, lambda epoch: None

    return make


def bucket():
    sampler = pinfeed.samplers.LengthBucketSampler(np.arange(SAMPLES) % 9, 4, drop_last=False)
    loader = DataLoader(array_dataset(), batch_sampler=sampler, collate_fn=COLLATE)
    return loader, sampler.set_epoch


def shuffled():
    dataset = array_dataset()
    sampler = pinfeed.samplers.ShuffleSampler(dataset, BATCH)
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=COLLATE), sampler.set_epoch


def stream(shard_size, workers, **options):
    def make():
        shards = [range(SAMPLES)[i : i + shard_size] for i in range(0, SAMPLES, shard_size)]
        dataset = pinfeed.StreamDataset(shards, 8, open_shard=read_shard, **options)
        loader = DataLoader(dataset, BATCH, collate_fn=COLLATE, num_workers=workers)
        return loader, dataset.set_epoch

    return make


JOBS = {
    "array": array,
    "ahead": ahead,
    "from_numpy": from_numpy,
    "accelerate, DataLoader": prepared("DataLoader"),
    "accelerate, DeviceLoader": prepared("DeviceLoader"),
    "accelerate, from_numpy": prepared("from_numpy"),
    "bucket": bucket,
    "shuffled": shuffled,
    "stream": stream(1, 0),
    "stream in turn": stream(SAMPLES, 0),
    "stream with workers": stream(1, 2),
    "stream, uneven shards, drop": stream(7, 2, uneven="drop"),
    "stream, uneven shards, repeat": stream(7, 2, uneven="repeat"),
}


def train(make):
    """Trains a small model; returns the samples of every batch of every epoch."""
    model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, CLASSES)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader, set_epoch = make()
    seen = []
    for epoch in range(EPOCHS):
        set_epoch(epoch)
        seen.append([])
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen[-1].append(batch["number"].tolist())
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    everywhere = [torch.empty_like(weights) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(everywhere, weights)
    assert all(torch.equal(weights, other) for other in everywhere)
    return seen


def samplers(count, **ranks):
    lengths = np.arange(count) % 30 + 1
    return {
        "shuffle": pinfeed.samplers.ShuffleSampler(count, 32, **ranks),
        "drop_last": pinfeed.samplers.ShuffleSampler(count, 32, drop_last=True, **ranks),
        "batch_size": pinfeed.samplers.LengthBucketSampler(lengths, batch_size=32, **ranks),
        "max_tokens": pinfeed.samplers.LengthBucketSampler(lengths, max_tokens=300, **ranks),
        "pack": pinfeed.samplers.PackSampler(lengths, batch_size=4, seq_length=64, **ranks),
        "weighted": pinfeed.samplers.WeightedSampler(
            np.ones(count), batch_size=32, replacement=False, **ranks
        ),
        "balanced": pinfeed.samplers.WeightedSampler.balanced(lengths, batch_size=32, **ranks),
    }


def prepare_samplers(count):
    """Prepares loaders whose samplers are sharded already, and loaders that accelerate shards."""
    accelerator = Accelerator(cpu=True)
    dataset = pinfeed.ArrayDataset(np.arange(count))
    loader_of = lambda sampler: DataLoader(
        dataset, batch_sampler=sampler, collate_fn=pinfeed.Collate()
    )
    me = {"rank": accelerator.process_index, "world_size": accelerator.num_processes}
    errors = []
    for ranks in ({}, me):
        for sampler in samplers(count, **ranks).values():
            try:
                accelerator.prepare(loader_of(sampler))
            except RuntimeError as error:
                errors.append(str(error))
    split = {}
    for name, sampler in samplers(count, rank=0, world_size=1).items():
        loader = accelerator.prepare(loader_of(sampler))
        split[name] = [[batch.tolist() for batch in loader] for _ in range(EPOCHS)]
    return {"errors": errors, "split": split}


def cut_batches():
    """Prepares samplers with ``split_batches``, which cuts each batch into a part per process."""
    accelerator = Accelerator(cpu=True)
    dataset = pinfeed.ArrayDataset(np.arange(SAMPLES))
    result = {}
    for split, dispatches in ((True, False), (True, True), (False, True)):
        accelerator.dataloader_config.split_batches = split
        accelerator.dataloader_config.dispatch_batches = dispatches
        for sampler in (
            pinfeed.samplers.ShuffleSampler(SAMPLES, BATCH, rank=0, world_size=1),
            pinfeed.samplers.LengthBucketSampler(
                np.arange(SAMPLES), max_tokens=99, rank=0, world_size=1
            ),
        ):
            name = f"{type(sampler).__name__}, {split}, {dispatches}"
            if "Length" in name and not split and not accelerator.is_main_process:
                continue  # the first process reads for all ranks
            try:
                loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=pinfeed.Collate())
                result[name] = torch.cat(list(accelerator.prepare(loader))).tolist()
            except (ValueError, RuntimeError) as error:
                result[name] = str(error)
    return result


def prepare_streams():
    """Prepares streams that are sharded already, and streams that accelerate shards."""
    accelerator = Accelerator(cpu=True)
    me = {"rank": accelerator.process_index, "world_size": accelerator.num_processes}
    alone = {"rank": 0, "world_size": 1}

    def loader_of(stream, workers, method):
        size = None if isinstance(stream, pinfeed.packing.PackedStream) else BATCH
        return accelerator.prepare(
            DataLoader(stream, size, num_workers=workers, multiprocessing_context=method)
        )

    errors = []
    dealt_out = {}
    for dispatches in (None, False):
        accelerator.dataloader_config.dispatch_batches = dispatches
        # Workers that aren't forked get a pickled stream, which raises before one has started.
        for workers, method in ((0, None), (2, "fork"), (1, "spawn")):
            for ranks in ({}, me):
                stream = pinfeed.StreamDataset(range(SAMPLES), **ranks)
                # If accelerate dispatches, the first process reads for all ranks.
                if dispatches is False or accelerator.is_main_process:
                    try:
                        next(iter(loader_of(stream, workers, method)))
                    except RuntimeError as error:
                        errors.append(str(error))
            if method != "spawn":  # slow to start
                stream = pinfeed.StreamDataset(range(SAMPLES), **alone)
                batches = list(loader_of(stream, workers, method))
                dealt_out[f"{dispatches}, {workers}"] = torch.cat(batches).tolist()
    if accelerator.is_main_process:
        accelerator.dataloader_config.dispatch_batches = None
        packed = pinfeed.packing.PackedStream(pinfeed.StreamDataset([[1, 2]] * 9), seq_length=4)
        try:
            next(iter(loader_of(packed, 0, None)))
        except RuntimeError as error:
            errors.append(str(error))
    return {"errors": errors, "dealt out": dealt_out}


def warnings_of_loaders():
    """Returns the warnings about loaders that can give every rank all samples."""
    dataset = array_dataset()
    sampler = DistributedSampler(dataset)
    plain = DataLoader(dataset, BATCH, shuffle=True)
    accelerator = Accelerator(cpu=True)
    loaders = {
        "shuffled": pinfeed.DeviceLoader(plain, "cpu"),
        "in order": pinfeed.DeviceLoader(DataLoader(dataset), "cpu"),
        "torchdata": pinfeed.DeviceLoader(StatefulDataLoader(dataset, 4, shuffle=True), "cpu"),
        "prepared outside": accelerator.prepare(pinfeed.DeviceLoader(plain, "cpu")),
        "nested": pinfeed.DeviceLoader(pinfeed.DeviceLoader(plain, "cpu"), "cpu"),
        "split": pinfeed.DeviceLoader(DataLoader(dataset, sampler=sampler), "cpu"),
        "prepared": pinfeed.DeviceLoader(accelerator.prepare(plain), "cpu"),
        "buckets": pinfeed.DeviceLoader(bucket()[0], "cpu"),
        "ShuffleSampler": pinfeed.DeviceLoader(shuffled()[0], "cpu"),
        "stream": pinfeed.DeviceLoader(stream(1, 0)()[0], "cpu"),
        "from_numpy": from_numpy()[0],
        "list": pinfeed.DeviceLoader([1, 2], "cpu"),
    }
    said = {}
    for name, loader in loaders.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                next(iter(loader))
        said[name] = [str(w.message) for w in caught if "DeviceLoader" in str(w.message)]
    return said


def ranks_without_environment():
    """Returns ranks detected from the process group, from a pickled copy, and without a group."""
    for name in ("RANK", "WORLD_SIZE"):
        del os.environ[name]
    dataset = pinfeed.StreamDataset(range(10))
    sampler = pinfeed.samplers.LengthBucketSampler(range(10), 1, shuffle=False)
    here = [list(dataset), list(itertools.chain(*sampler))]
    rows = torch.cat(list(pinfeed.from_numpy(np.arange(10), 1, device="cpu"))).tolist()
    pickled = pickle.dumps(dataset)
    torch.distributed.destroy_process_group()
    there = list(pickle.loads(pickled))
    return [rows, *here, there, list(dataset), list(itertools.chain(*sampler))]


def main(folder):
    torch.set_num_threads(1)
    # How long torch waits for workers of a loop that an error has ended.
    torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.1
    before = pinfeed.StreamDataset(range(10))
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    results = {name: train(make) for name, make in JOBS.items()}
    results["warnings"] = warnings_of_loaders()
    results["prepared samplers"] = {count: prepare_samplers(count) for count in (640, 641)}
    results["prepared streams"] = prepare_streams()
    results["cut batches"] = cut_batches()
    results["made before the group"] = list(before)
    results["without environment"] = ranks_without_environment()
    (folder / f"{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
