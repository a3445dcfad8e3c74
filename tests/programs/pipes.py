"""Pipes raise immediately; argv: a folder."""

import os
import signal
import sys

import numpy as np

import pinfeed

signal.alarm(20)  # ends a hang
os.chdir(sys.argv[1])
os.mkfifo("pipe.npy"), os.mkfifo("pipe.npz")
np.save("0.npy", np.arange(3)), np.save("1.npy", np.arange(3))
for make in (
    lambda: pinfeed.ConcatArray(["0.npy", "pipe.npy"]),
    lambda: pinfeed.ArrayDataset("pipe.npy"),
    lambda: pinfeed.ArrayDataset("pipe.npz"),
):
    try:
        make()
    except ValueError as error:
        assert "pipe.np" in str(error) and "not a regular file" in str(error), error
    else:
        raise AssertionError("a pipe was taken for a file")
dataset = pinfeed.ArrayDataset(pinfeed.ConcatArray(["0.npy", "1.npy"]))
os.replace("pipe.npy", "1.npy")
try:
    pinfeed.Collate()(dataset.__getitems__([0, 4]))
except OSError as error:
    assert "1.npy: the file was replaced" in str(error), error
else:
    raise AssertionError("a pipe was read")
