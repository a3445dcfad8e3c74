"""Loops of three frameworks that record each batch; run in separate processes."""

import torchvision_operators  # noqa: F401

# isort: split
import accelerate
import lightning
import torch
import transformers

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
