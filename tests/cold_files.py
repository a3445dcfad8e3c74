"""Files whose rows are on disk or in the page cache, open files, and contents of folders."""

import contextlib
import os

import numpy as np
import pytest
import torch

import pinfeed

#: Number of leading rows that must be cached before a file is mapped, with a margin.
HOT = 300

every_temperature = pytest.mark.parametrize("temperature", ["cold", "hot"])


def drop(path):
    """Evicts a file from the page cache, so that it is read from disk."""
    path.read_bytes()  # pages still being read can't be evicted
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def saved(folder, array):
    path = folder / f"{np.random.default_rng().integers(1 << 60)}.npy"
    np.save(path, array)
    return path


def bring_to(temperature, dataset, path):
    if temperature == "hot":
        collate = pinfeed.Collate(pinfeed.Keep() if len(dataset) == 0 else None)
        collate(dataset.__getitems__([0] * HOT))
        collate(dataset.__getitems__([0] * HOT))
    elif temperature == "cold":
        drop(path)


FIELDS = {
    "Stack": pinfeed.Stack(),
    "Stack cast": pinfeed.Stack(torch.float64),
    "Image": pinfeed.Image(mean=0.5),
    "Image channels_last": pinfeed.Image(channels_last=True),
    "Image padded": pinfeed.Image(pad_value=0, sizes=True, mask=True, multiple_of=8),
    "Pad": pinfeed.Pad(max_length=3, mask=True),
    "Pad left": pinfeed.Pad(max_length=3, side="left", dtype=torch.int32),
    "Jagged": pinfeed.Jagged(),
    "Keep": pinfeed.Keep(),
}


def open_files():
    """Returns the paths of the open files of this process."""
    paths = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # another thread closed it
            paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return paths


def contents(folder):
    """Returns the content of every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
