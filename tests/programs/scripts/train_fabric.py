"""Like Lightning's examples/fabric/image_classifier/train_fabric.py."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms

from scripts import MNIST


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3, 2), nn.Linear(4 * 13 * 13, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).flatten(1)).log_softmax(1)


fabric = L.Fabric(accelerator="cpu", devices=1)
transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
train_dataset = MNIST(train=True, transform=transform)
test_dataset = MNIST(train=False, transform=transform)
fabric.seed_everything(1)
train_loader = DataLoader(train_dataset, batch_size=8, shuffle=True)
test_loader = DataLoader(test_dataset, batch_size=8)
train_loader, test_loader = fabric.setup_dataloaders(train_loader, test_loader)
model = Net()
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(2):
    for data, target in train_loader:
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(model(data), target)
        fabric.backward(loss)
        optimizer.step()
with torch.no_grad():
    outputs = [model(data) for data, target in test_loader]
weights = [*model.parameters(), *outputs]
