"""Images, their boxes and masks in the loops of frameworks: each epoch has its own crops, as in a plain loop."""

import sys
from pathlib import Path

import torchvision_operators  # noqa: F401

# isort: split
import accelerate
import lightning
import torch
import transformers
from torch.utils.data import DataLoader

import pinfeed

sys.path.append(str(Path(__file__).parents[1] / "fields"))
import test_objects as tests

seen = []


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


def in_accelerate(loader, epochs):
    prepared = accelerate.Accelerator(cpu=True).prepare(loader)
    for _ in range(epochs):
        seen.extend(prepared)


def in_lightning(loader, epochs):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet["enable_model_summary"] = False
    lightning.Trainer(max_epochs=epochs, accelerator="cpu", **quiet).fit(Module(), loader)


def in_trainer(loader, epochs, folder):
    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return self.accelerator.prepare(loader)

    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True}
    arguments = transformers.TrainingArguments(
        folder, num_train_epochs=epochs, use_cpu=True, **quiet
    )
    Trainer(Model(), arguments, train_dataset=loader.dataset).train()


def with_lists(samples):
    batch = collate(samples)
    labels = pinfeed.functional.unbind(
        {key: batch.pop(key) for key in ("boxes", "labels", "masks")}
    )
    return batch | {"labels": labels}


def new_loader(collate):
    sampler = pinfeed.samplers.ShuffleSampler(12, 4, seed=1)
    dataset = pinfeed.IndexedDataset(tests.Photos())
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)


collate = pinfeed.Collate(tests.recipe(), seed=3)
parts = torch.utils._pytree.tree_leaves  # all tensors of a batch
for run, collate_fn, *folder in (
    (in_accelerate, collate),
    (in_lightning, collate),
    (in_trainer, with_lists, sys.argv[1]),
):
    seen.clear()
    run(new_loader(collate_fn), 2, *folder)
    loader = new_loader(collate_fn)
    for ours, theirs in zip([*loader, *loader], seen, strict=True):
        assert theirs.keys() == ours.keys()
        for one, other in zip(parts(ours), parts(theirs), strict=True):
            assert torch.equal(one, other)
    print(run.__name__)
