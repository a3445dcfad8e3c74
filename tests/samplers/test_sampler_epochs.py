"""What all samplers share: each pass is of the next epoch, and a batch says of which, all the way to Collate."""

from __future__ import annotations

import copy
import functools
import itertools
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, WeightedRandomSampler

import pinfeed
from pinfeed import ArrayDataset, Collate, IndexedDataset, augment
from programs import run_python

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

COUNT = 40
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8, 3), dtype=np.uint8)
ARRAYS = ArrayDataset({"image": IMAGES, "index": np.arange(COUNT)})
VIEW = augment.Compose([augment.RandomCrop(4), augment.RandomHorizontalFlip()])
LENGTHS = np.random.default_rng(1).integers(1, 20, COUNT)

SAMPLERS: dict[str, Callable[[], Any]] = {
    "shuffle": lambda: pinfeed.ShuffleSampler(COUNT, 7),
    "buckets": lambda: pinfeed.LengthBucketSampler(LENGTHS, max_tokens=60, bucket_batches=2),
    "pack": lambda: pinfeed.PackSampler(LENGTHS, 20, 3),
    "weighted": lambda: pinfeed.WeightedSampler(LENGTHS, batch_size=7),
    "without replacement": lambda: pinfeed.WeightedSampler(LENGTHS, 30, replacement=False, batch_size=7),
    "balanced": lambda: pinfeed.BalancedSampler(LENGTHS % 3, batch_size=7),
}  # fmt: skip
every_sampler = pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)


def lists(batches: Any) -> list[list[int]]:
    return [list(batch) for batch in batches]


def epochs(make: Callable[[], Any], count: int) -> list[list[list[int]]]:
    """What `set_epoch` says that epochs are."""
    found = []
    for epoch in range(count):
        sampler = make()
        sampler.set_epoch(epoch)
        found.append(lists(sampler))
    return found


@every_sampler
def test_each_pass_is_of_the_next_epoch(make: Callable[[], Any]) -> None:
    expected = epochs(make, 6)
    assert len({str(batches) for batches in expected}) == 6
    sampler = make()
    for epoch in range(3):
        assert sampler.epoch == epoch
        assert lists(sampler) == expected[epoch]
    assert next(iter(sampler)) == expected[3][0]  # a pass that is broken off is one
    iter(sampler)  # and one that nothing is taken of is none
    assert sampler.epoch == 4
    batches = list(sampler)
    assert lists(batches) == expected[4]
    assert {batch.epoch for batch in batches} == {4}
    sampler.set_epoch(1)
    assert sampler.epoch == 1
    assert lists(sampler) == expected[1]
    assert lists(sampler) == expected[2]


@every_sampler
@pytest.mark.parametrize("workers", [0, 2])
def test_each_loop_over_a_loader_is_of_the_next_epoch(
    make: Callable[[], Any], workers: int
) -> None:
    expected = epochs(make, 4)
    for persistent in {False, workers > 0}:
        sampler = make()
        loader = DataLoader(
            range(COUNT),  # type: ignore[arg-type]
            batch_sampler=sampler,
            num_workers=workers,
            persistent_workers=persistent,
            collate_fn=list,
        )
        assert len(loader) == len(expected[0])
        assert list(loader) == expected[0]
        assert list(loader) == expected[1]
        assert next(iter(loader)) == expected[2][0]
        for batch, _ in zip(loader, expected[3], strict=True):
            assert len(loader) == len(expected[3])
            assert batch in expected[3]


@every_sampler
def test_a_finished_epoch_leads_to_the_next_and_a_broken_one_to_its_rest(
    make: Callable[[], Any],
) -> None:
    expected = epochs(make, 3)
    sampler = make()
    list(sampler)
    for taken in range(len(expected[1]) + 1):
        sampler.set_epoch(1)
        assert lists(itertools.islice(sampler, taken)) == expected[1][:taken]
        resumed = make()
        resumed.load_state_dict(copy.deepcopy(sampler.state_dict()))
        assert lists(resumed) == expected[1][taken:]
        assert lists(resumed) == expected[2]
    sampler.set_epoch(1)
    list(sampler)
    resumed = make()
    resumed.load_state_dict(sampler.state_dict())
    assert resumed.epoch == 2
    assert lists(resumed) == expected[2]


@every_sampler
@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_a_device_loader_counts_what_its_loop_got(
    make: Callable[[], Any], workers: int
) -> None:
    def new_loader(levels: int) -> Any:
        loader: Any = DataLoader(
            range(COUNT),  # type: ignore[arg-type]
            batch_sampler=make(),
            num_workers=workers,
            collate_fn=list,
        )
        for _ in range(levels):
            loader = pinfeed.DeviceLoader(loader, "cpu", depth=3)
        return loader

    expected = epochs(make, 4)
    loader = new_loader(1)
    list(loader)
    for levels, taken in ((1, 0), (1, 1), (2, 2), (1, len(expected[1]))):
        loader.batch_sampler.set_epoch(1)
        loop = iter(loader)
        assert [next(loop) for _ in range(taken)] == expected[1][:taken]
        state = loader.state_dict()
        loop.close()
        assert loader.state_dict() == state
        resumed = new_loader(levels)
        resumed.load_state_dict(state)
        assert list(resumed) == expected[1][taken:]
        assert resumed.state_dict()["finished"]
        again = new_loader(levels)
        again.load_state_dict(resumed.state_dict())
        assert list(again) == list(resumed) == expected[2]
    loader.batch_sampler.set_epoch(3)
    assert loader.state_dict() == loader.batch_sampler.state_dict()
    assert list(loader) == expected[3]
    assert not hasattr(pinfeed.DeviceLoader(DataLoader(ARRAYS), "cpu"), "state_dict")


# Batches


@every_sampler
def test_a_batch_is_small_and_any_dataset_takes_it(make: Callable[[], Any]) -> None:
    pandas = pytest.importorskip("pandas")
    for batch in make():
        copied = pickle.loads(pickle.dumps(batch))
        assert copied == batch == list(batch) == batch.tolist()
        assert copied.epoch == 0
        assert (copied.packing is None) == (batch.packing is None)
        if batch.packing is None:
            assert len(pickle.dumps(batch)) < 250 + 8 * len(batch)
        indices = np.asarray(batch)
        assert indices.dtype == np.int64
        assert {type(index) for index in batch} == {int}
        squares = np.arange(COUNT) ** 2
        assert squares[batch].tolist() == torch.from_numpy(squares)[batch].tolist()
        assert pandas.Series(squares).iloc[batch].tolist() == [index**2 for index in batch]
        assert batch[0] == indices[0]
        assert (batch[1:3], batch[1:3].epoch) == (indices[1:3].tolist(), 0)


@every_sampler
def test_as_sampler_instead_of_batch_sampler(make: Callable[[], Any]) -> None:
    for dataset in (
        [*range(COUNT)],
        ARRAYS,
        IndexedDataset(range(COUNT)),
        Subset(ARRAYS, range(COUNT)),
    ):
        with pytest.raises(TypeError, match="batch_sampler=, not "):
            next(iter(DataLoader(dataset, sampler=make(), collate_fn=list)))  # type: ignore[arg-type]
    # As torch's bulk loading does it:
    loader = DataLoader(ARRAYS, batch_size=None, sampler=make(), collate_fn=Collate())
    assert [batch["index"].tolist() for batch in loader] == lists(make())


def test_lightning_does_not_make_one_anew_of_a_distributed_sampler() -> None:
    theirs: Any = torch.utils.data.DistributedSampler(range(COUNT), 2, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got a DistributedSampler.*use_distributed_sampler=False"):
        pinfeed.ShuffleSampler(theirs, batch_size=7, drop_last=False)


# To Collate


class Photos(Dataset[Any]):
    """A dataset of one sample at a time."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return {"image": IMAGES[index], "index": index}


DATASETS = {
    "rows": ARRAYS,
    "indexed": IndexedDataset(Photos()),
    "subset": IndexedDataset(Subset(ARRAYS, range(COUNT))),
}


def new_collate(seed: int | None = 0) -> Collate:
    return Collate({"image": pinfeed.Image(dtype=torch.uint8, augment=VIEW)}, seed=seed)


def by_index(batches: Any) -> dict[int, Any]:
    return {
        int(index): image.tolist()
        for batch in batches
        for index, image in zip(batch["index"], batch["image"], strict=True)
    }


@functools.cache
def crops_of_epochs() -> list[dict[int, Any]]:
    """The images of each epoch."""
    collate = new_collate()
    found = []
    for epoch in range(4):
        collate.set_epoch(epoch)
        found.append(by_index([collate(ARRAYS.__getitems__(range(COUNT)))]))
    return found


@pytest.fixture(scope="module")
def crops() -> list[dict[int, Any]]:
    return crops_of_epochs()


def assert_epochs(loops: Iterator[Any], crops: list[dict[int, Any]]) -> None:
    for seen, expected in zip(loops, crops, strict=True):
        assert seen == {index: expected[index] for index in seen}
        assert len(seen) > COUNT // 3


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)
@pytest.mark.parametrize("workers", [0, 2])
def test_the_epoch_travels_with_the_indices(dataset: Any, workers: int, crops: Any) -> None:
    for make in SAMPLERS.values():
        loader = DataLoader(
            dataset,
            batch_sampler=make(),
            collate_fn=new_collate(),
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        assert_epochs((by_index(loader) for _ in range(4)), crops)
        loader.batch_sampler.set_epoch(2)  # type: ignore[union-attr]
        assert_epochs((by_index(loader) for _ in range(2)), crops[2:])


@pytest.mark.slow
def test_the_epoch_travels_to_spawned_workers(crops: Any) -> None:
    loader = DataLoader(
        DATASETS["indexed"],
        batch_sampler=pinfeed.ShuffleSampler(COUNT, 7),
        collate_fn=new_collate(),
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    assert_epochs((by_index(loader) for _ in range(4)), crops)


FRAMEWORKS = """
import importlib.machinery, sys, types
sys.path[:0] = sys.argv[1], sys.argv[2]

# Where torchvision is built for another torch, all three fail to import it.
sys.modules["torchvision"] = None
import accelerate, torch, transformers

class Nothing(types.ModuleType):
    __path__ = []
    __getattr__ = lambda self, name: None if name[0] != "_" else object.__getattribute__(self, name)

for name in ("torchvision", "torchvision.models", "torchvision.transforms"):
    sys.modules[name] = Nothing(name)
    sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
import lightning
import test_sampler_epochs as tests

seen = []
steps = len(tests.new_loader())

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch, _):
        seen.append(batch)
        return self.weight * 2

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, **batch):
        seen.append(batch)
        return {"loss": self.weight * 2}

class Trainer(transformers.Trainer):
    def get_train_dataloader(self):
        return self.accelerator.prepare(tests.new_loader())

def in_lightning():
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=4, accelerator="cpu", enable_model_summary=False, **quiet)
    trainer.fit(Module(), tests.new_loader())

def in_accelerate():
    loader = accelerate.Accelerator(cpu=True).prepare(tests.new_loader())
    for _ in range(4):
        seen.extend(loader)

def in_trainer():
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True}
    arguments = transformers.TrainingArguments(sys.argv[3], num_train_epochs=4, use_cpu=True, **quiet)
    Trainer(Model(), arguments, train_dataset=tests.ARRAYS).train()

for framework in (in_lightning, in_accelerate, in_trainer):
    seen.clear()
    framework()
    assert len(seen) == 4 * steps, (framework, len(seen))
    loops = (tests.by_index(seen[i : i + steps]) for i in range(0, len(seen), steps))
    tests.assert_epochs(loops, tests.crops_of_epochs())
    print(framework.__name__)
"""


def new_loader() -> DataLoader[Any]:
    sampler = pinfeed.ShuffleSampler(COUNT, 7)
    return DataLoader(ARRAYS, batch_sampler=sampler, collate_fn=new_collate())


def test_frameworks_that_set_the_epoch(tmp_path: Path) -> None:
    """Lightning, accelerate and transformers' Trainer see the epochs that a plain loop sees."""
    here = Path(__file__).parent
    printed = run_python(FRAMEWORKS, str(here), str(here.parent), str(tmp_path), fresh=True)
    names = [line for line in printed.splitlines() if line.startswith("in_")]
    assert names == ["in_lightning", "in_accelerate", "in_trainer"]


# Where nothing can tell it


def warned(loops: Callable[[], Any], capfd: Any) -> int:
    """How often a second pass is warned of, here or in workers."""
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)  # type: ignore[assignment]
        loops()
    text = capfd.readouterr().err
    assert ("Collate.set_epoch" in text) == ("come again in epoch 0" in text)
    return int(text.count("Collate.set_epoch"))


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_the_second_pass_over_an_epoch_warns_once(
    dataset: Any, shuffle: bool, workers: int, persistent: bool, capfd: Any
) -> None:
    collate = new_collate()
    loader = DataLoader(
        dataset,
        7,
        shuffle,
        collate_fn=collate,
        num_workers=workers,
        persistent_workers=persistent,
    )

    def passes(count: int) -> Callable[[], Any]:
        return lambda: [list(loader) for _ in range(count)]

    if workers == 0:  # which fetch ahead
        next(iter(loader))  # a look at the first batch is no pass
        assert warned(passes(1), capfd) == 0
    collate.set_epoch(0)
    assert warned(passes(1), capfd) == 0
    assert warned(passes(3), capfd) == 1
    assert warned(passes(3), capfd) == 0


def test_what_is_no_second_pass(capfd: Any) -> None:
    collate = new_collate()
    training = DataLoader(ARRAYS, 7, shuffle=True, collate_fn=collate)
    validation = DataLoader(IndexedDataset(Subset(Photos(), range(9))), 3, collate_fn=collate)
    drawn = WeightedRandomSampler([1.0] * COUNT, COUNT)
    with_replacement = DataLoader(ARRAYS, 7, sampler=drawn, collate_fn=collate)

    def loops() -> None:
        for epoch in range(3):
            collate.set_epoch(epoch)
            list(training)
            list(validation)
        for epoch in range(20):
            collate.set_epoch(epoch)
            list(with_replacement)
        for unseeded in (new_collate(None), Collate(seed=0)):
            for _ in range(3):
                list(DataLoader(ARRAYS, 7, collate_fn=unseeded))

    assert warned(loops, capfd) == 0
