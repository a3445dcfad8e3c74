"""Short versions of Lightning training scripts, and the lines that change with pinfeed."""

import pytest

from scripts import run_both

pytest.importorskip("lightning")
pytest.importorskip("torchvision")

MNIST = """
    import lightning as L, numpy as np, PIL.Image, torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset, random_split
    from torchvision import transforms

    class MNIST(Dataset):
        def __init__(self, folder, train=True, transform=None):
            rng = np.random.default_rng(int(train))
            self.images = rng.integers(0, 256, (40, 28, 28), np.uint8)
            self.transform = transform

        def __len__(self):
            return len(self.images)

        def __getitem__(self, index):
            image = PIL.Image.fromarray(self.images[index])
            return self.transform(image) if self.transform else image, index % 10
"""

# Like examples/pytorch/basics/autoencoder.py: a data module with four loaders.
AUTOENCODER = (
    MNIST
    + """
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
            dataset = MNIST(folder, train=True, transform=transforms.ToTensor())
            self.mnist_test = MNIST(folder, train=False, transform=transforms.ToTensor())
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
"""
)
AUTOENCODER_CHANGES = {
    "import lightning as L,": "import pinfeed, lightning as L,",
    "dataset = MNIST(folder, train=True, transform=transforms.ToTensor())": (
        "rest, self.image = pinfeed.Image.from_torchvision(transforms.ToTensor())\n"
        "            dataset = MNIST(folder, train=True, transform=rest)"
    ),
    "MNIST(folder, train=False, transform=transforms.ToTensor())": (
        "MNIST(folder, train=False, transform=rest)"
    ),
} | {
    f"{head})": f"{head}, collate_fn=pinfeed.Collate((self.image, None)))"
    for head in (
        "DataLoader(self.mnist_train, batch_size=self.batch_size",
        "DataLoader(self.mnist_val, batch_size=self.batch_size",
        "DataLoader(self.mnist_test, batch_size=self.batch_size",
        "DataLoader(self.mnist_test, batch_size=self.batch_size + 0",
    )
}

# Like examples/fabric/image_classifier/train_fabric.py.
FABRIC = (
    MNIST
    + """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv2d(1, 4, 3, 2), nn.Linear(4 * 13 * 13, 10)

        def forward(self, x):
            return self.fc(torch.relu(self.conv(x)).flatten(1)).log_softmax(1)

    fabric = L.Fabric(accelerator="cpu", devices=1)
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    train_dataset = MNIST(folder, train=True, transform=transform)
    test_dataset = MNIST(folder, train=False, transform=transform)
    fabric.seed_everything(1)
    train_loader = DataLoader(train_dataset, batch_size=8, shuffle=True)
    test_loader = DataLoader(test_dataset, batch_size=8)
    train_loader, test_loader = fabric.setup_dataloaders(train_loader, test_loader)
    model = Net()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for epoch in range(2):
        for data, target in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.nll_loss(model(data), target)
            fabric.backward(loss)
            optimizer.step()
    with torch.no_grad():
        outputs = [model(data) for data, target in test_loader]
    weights = [*model.parameters(), *outputs]
"""
)
FABRIC_CHANGES = {
    "import lightning as L,": "import pinfeed, lightning as L,",
    "transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])": (
        "transform, image = pinfeed.Image.from_torchvision("
        "transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]))"
    ),
    "batch_size=8, shuffle=True)": "batch_size=8, shuffle=True, collate_fn=pinfeed.Collate((image, None)))",
    "DataLoader(test_dataset, batch_size=8)": (
        "DataLoader(test_dataset, batch_size=8, collate_fn=pinfeed.Collate((image, None)))"
    ),
}

# Script, changes, maximum number of changed lines, and tolerance for weights.
SCRIPTS = {
    "autoencoder.py": (AUTOENCODER, AUTOENCODER_CHANGES, 8, 1e-5),
    "train_fabric.py": (FABRIC, FABRIC_CHANGES, 5, 1e-5),
}


@pytest.mark.filterwarnings("ignore:The ")
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script(name, tmp_path):
    run_both(*SCRIPTS[name], tmp_path)
