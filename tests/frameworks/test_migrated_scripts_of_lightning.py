"""Short versions of Lightning training scripts, and the lines that change with pinfeed."""

import pytest

from scripts import run_both

pytest.importorskip("lightning")
pytest.importorskip("torchvision")

AUTOENCODER = {
    "import torch\n": "import pinfeed, torch\n",
    "dataset = MNIST(train=True, transform=transforms.ToTensor())": (
        "rest, self.image = pinfeed.Image.from_torchvision(transforms.ToTensor())\n"
        "        dataset = MNIST(train=True, transform=rest)"
    ),
    "MNIST(train=False, transform=transforms.ToTensor())": "MNIST(train=False, transform=rest)",
} | {
    f"{head})": f"{head}, collate_fn=pinfeed.Collate((self.image, None)))"
    for head in (
        "DataLoader(self.mnist_train, batch_size=self.batch_size",
        "DataLoader(self.mnist_val, batch_size=self.batch_size",
        "DataLoader(self.mnist_test, batch_size=self.batch_size",
        "DataLoader(self.mnist_test, batch_size=self.batch_size + 0",
    )
}
TRANSFORM = (
    "transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])"
)
FABRIC = {
    "import torch\n": "import pinfeed, torch\n",
    f"transform = {TRANSFORM}": (f"transform, image = pinfeed.Image.from_torchvision({TRANSFORM})"),
    "shuffle=True)": "shuffle=True, collate_fn=pinfeed.Collate((image, None)))",
    "DataLoader(test_dataset, batch_size=8)": (
        "DataLoader(test_dataset, batch_size=8, collate_fn=pinfeed.Collate((image, None)))"
    ),
}

# Changes, maximum number of changed lines, and tolerance for weights.
SCRIPTS = {
    "lightning_autoencoder": (AUTOENCODER, 8, 1e-5),
    "train_fabric": (FABRIC, 5, 1e-5),
}


@pytest.mark.filterwarnings("ignore:The ")
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script(name, tmp_path):
    run_both(name, *SCRIPTS[name], tmp_path)
