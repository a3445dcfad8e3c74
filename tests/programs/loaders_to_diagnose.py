"""Loaders, functions that return one, and invalid objects for the diagnose command."""

import time

from torch.utils.data import DataLoader


class Samples:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        time.sleep(0.005)
        return index


def make_loader():
    print("made")
    return DataLoader(Samples(), batch_size=4, num_workers=1)


loader = make_loader()


def make_list():
    return [1, 2]


def make_some(count):
    return DataLoader(Samples(), batch_size=count)


def step(batch):
    time.sleep(0.001)
