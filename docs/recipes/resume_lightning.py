"""Stops in the middle of an epoch, and resumes, with Lightning."""

import lightning
import numpy as np
import pinfeed
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

arrays = {"x": np.zeros((1000, 8), np.float32), "row": np.arange(1000)}
rows = []


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)

    def training_step(self, batch, number):
        rows.extend(batch["row"].tolist())
        return self.linear(batch["x"]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


saving = ModelCheckpoint("saved", every_n_train_steps=30)


def fit(batch_size, checkpoint=None, max_steps=-1):
    loader = pinfeed.from_numpy(arrays, batch_size, shuffle=True, device="cpu")
    trainer = lightning.Trainer(
        max_epochs=2,
        max_steps=max_steps,
        callbacks=[saving],
        accelerator="cpu",
        logger=False,
    )
    trainer.fit(Model(), loader, ckpt_path=checkpoint)


fit(50, max_steps=30)  # an epoch has 20 steps: stops in the second epoch
fit(25, saving.best_model_path)
print(sorted(rows[:1000]) == sorted(rows[1000:]) == list(range(1000)))  # True
