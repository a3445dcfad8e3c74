"""Published training scripts, with and without the lines that pinfeed changes."""

import contextlib
import difflib

import numpy as np
import PIL.Image
import torch
from torch.utils.data import Dataset

from programs import PROGRAMS


class MNIST(Dataset):
    """A few digits, with the interface of torchvision's dataset."""

    def __init__(self, train=True, transform=None):
        rng = np.random.default_rng(int(train))
        self.images = rng.integers(0, 256, (40, 28, 28), np.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = PIL.Image.fromarray(self.images[index])
        return self.transform(image) if self.transform else image, index % 10


def run_both(name, changes, most, tolerance, folder):
    """Returns the final variables of a script, without the changes and with them.

    Args:
        name: A file in tests/programs/scripts, without .py. It sets ``weights``.
        changes: Replacements for texts that it contains once.
        most: Maximum number of changed lines.
        tolerance: Maximum difference of the weights.
        folder: The current directory of the script.
    """
    path = PROGRAMS / "scripts" / f"{name}.py"
    changed = script = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert script.count(old) == 1, old
        changed = changed.replace(old, new)
    lines = [[line for line in text.split("\n") if line.strip()] for text in (script, changed)]
    counts = [sum(line.startswith(sign) for line in difflib.ndiff(*lines)) for sign in "+-"]
    assert max(counts) <= most
    with contextlib.chdir(folder):
        original, migrated = _run(script, path), _run(changed, path)
    for expected, actual in zip(original["weights"], migrated["weights"], strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)
    return original, migrated


def _run(script, path):
    names = {}
    exec(compile(script, path, "exec"), names)
    return names
