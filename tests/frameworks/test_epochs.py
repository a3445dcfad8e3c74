"""Lightning, accelerate and Trainer over our samplers: each epoch has crops of its own."""

from pathlib import Path

from programs import run_python

FRAMEWORKS = """
import sys
sys.path[:0] = sys.argv[1], sys.argv[2]

import torchvision_operators
import accelerate, torch, transformers
import lightning
import test_epochs_to_collate as tests

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


def test_frameworks_that_set_the_epoch(tmp_path: Path) -> None:
    """Lightning, accelerate and transformers' Trainer see the epochs that a plain loop sees."""
    tests = Path(__file__).parents[1]
    paths = str(tests / "samplers"), str(tests), str(tmp_path)
    printed = run_python(FRAMEWORKS, *paths, fresh=True)
    names = [line for line in printed.splitlines() if line.startswith("in_")]
    assert names == ["in_lightning", "in_accelerate", "in_trainer"]
