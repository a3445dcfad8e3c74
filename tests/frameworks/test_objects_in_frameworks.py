"""Images, their boxes and masks in the loops of Lightning and of transformers' Trainer."""

from pathlib import Path

from programs import run_python

FRAMEWORKS = """
import sys
sys.path[:0] = sys.argv[1], sys.argv[2]

import torchvision_operators
import torch, transformers
import lightning
from torch.utils.data import DataLoader
import pinfeed
import test_objects as tests

collate = pinfeed.Collate(tests.recipe(), seed=3)

def with_lists(samples):
    batch = collate(samples)
    labels = pinfeed.unbind({key: batch.pop(key) for key in ("boxes", "labels", "masks")})
    return batch | {"labels": labels}

def new_loader(collate):
    sampler = pinfeed.ShuffleSampler(12, 4, seed=1)
    dataset = pinfeed.IndexedDataset(tests.Photos())
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)

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

class Trainer(transformers.Trainer):
    def get_train_dataloader(self):
        return self.accelerator.prepare(new_loader(with_lists))

def in_lightning():
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", enable_model_summary=False, **quiet)
    trainer.fit(Module(), new_loader(collate))

def in_trainer():
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True}
    arguments = transformers.TrainingArguments(sys.argv[3], num_train_epochs=2, use_cpu=True, **quiet)
    Trainer(Model(), arguments, train_dataset=range(12)).train()

parts = torch.utils._pytree.tree_leaves  # all tensors of a batch

for framework, collate_fn in ((in_lightning, collate), (in_trainer, with_lists)):
    seen.clear()
    framework()
    loader = new_loader(collate_fn)
    for ours, theirs in zip([*loader, *loader], seen, strict=True):
        assert theirs.keys() == ours.keys()
        for one, other in zip(parts(ours), parts(theirs), strict=True):
            assert torch.equal(one, other)
    print(framework.__name__)
"""


def test_epochs_of_frameworks(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    paths = str(tests / "fields"), str(tests), str(tmp_path)
    printed = run_python(FRAMEWORKS, *paths, fresh=True)
    names = [line for line in printed.splitlines() if line.startswith("in_")]
    assert names == ["in_lightning", "in_trainer"]
