"""A loader whose spawned workers run this file too."""

import argparse

from torch.utils.data import DataLoader

print("imported")
argparse.ArgumentParser().parse_args()


class Samples(list):  # a worker finds it in this file
    pass


loader = DataLoader(Samples([1, 2, 3, 4]), num_workers=1, multiprocessing_context="spawn")
