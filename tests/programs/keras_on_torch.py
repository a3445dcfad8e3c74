"""A Keras model on torch learns the same from each loader; prints the number of losses."""

import os

os.environ["KERAS_BACKEND"] = "torch"
import itertools

import keras
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import pinfeed

x = np.random.default_rng(0).random((100, 16), np.float32)
y = x.sum(1, keepdims=True)
plain = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), 16)


def losses(batches, **keywords):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model.fit(batches, epochs=3, shuffle=False, verbose=0, **keywords).history["loss"]


expected = losses(plain)
for loader in (pinfeed.from_numpy((x, y), 16), pinfeed.DeviceLoader(plain, device="cpu")):
    batches = (tuple(batch) for _ in itertools.count() for batch in loader)
    assert losses(batches, steps_per_epoch=len(loader)) == expected
print(len(set(expected)))
