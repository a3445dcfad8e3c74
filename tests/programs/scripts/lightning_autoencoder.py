"""Like Lightning's examples/pytorch/basics/autoencoder.py: a data module with four loaders."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, random_split
from torchvision import transforms

from scripts import MNIST


class LitAutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(28 * 28, 16), nn.ReLU(), nn.Linear(16, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 28 * 28))

    def step(self, batch, name):
        x, _ = batch
        x = x.view(x.size(0), -1)
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log(name, loss)
        return loss

    def training_step(self, batch, batch_idx):
        return self.step(batch, "train_loss")

    def validation_step(self, batch, batch_idx):
        self.step(batch, "val_loss")

    def test_step(self, batch, batch_idx):
        self.step(batch, "test_loss")

    def predict_step(self, batch, batch_idx, dataloader_idx=None):
        x, _ = batch
        return self.decoder(self.encoder(x.view(x.size(0), -1)))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class MyDataModule(L.LightningDataModule):
    def __init__(self, batch_size=8):
        super().__init__()
        dataset = MNIST(train=True, transform=transforms.ToTensor())
        self.mnist_test = MNIST(train=False, transform=transforms.ToTensor())
        self.mnist_train, self.mnist_val = random_split(
            dataset, [32, 8], generator=torch.Generator().manual_seed(42)
        )
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(self.mnist_train, batch_size=self.batch_size)

    def val_dataloader(self):
        return DataLoader(self.mnist_val, batch_size=self.batch_size)

    def test_dataloader(self):
        return DataLoader(self.mnist_test, batch_size=self.batch_size)

    def predict_dataloader(self):
        return DataLoader(self.mnist_test, batch_size=self.batch_size + 0)


torch.manual_seed(0)
model, data = LitAutoEncoder(), MyDataModule()
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = L.Trainer(max_epochs=2, accelerator="cpu", enable_model_summary=False, **quiet)
trainer.fit(model, datamodule=data)
trainer.test(model, datamodule=data, verbose=False)
predictions = trainer.predict(model, datamodule=data)
weights = [*model.parameters(), *predictions]
