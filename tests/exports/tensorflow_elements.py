"""Expected elements of a dataset, every path to one, and loaders of numbered batches."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from pinfeed import JaggedBatch


def mapped(dataset):
    return list(dataset.map(lambda *element: element if len(element) > 1 else element[0]))


# Elements in a Python loop, through TensorFlow's threads, and in a graph.
WAYS = {"loop": list, "prefetch": lambda dataset: list(dataset.prefetch(2)), "map": mapped}


def assert_element(element, batch, path=""):
    """Asserts that the element has the structure, dtypes and bits of the batch."""
    if batch is None:
        assert element is None, path
    elif isinstance(batch, JaggedBatch):
        assert type(element).__name__ == "RaggedTensor", path
        assert_tensor(element.values, batch.values, f"{path}.values")
        assert_tensor(element.row_splits, batch.offsets, f"{path}.offsets")
    elif isinstance(batch, np.ndarray | torch.Tensor):
        assert_tensor(element, batch, path)
    elif isinstance(batch, Mapping):
        assert type(element) is dict, path
        assert list(element) == list(batch), path
        for key, value in batch.items():
            assert_element(element[key], value, f"{path}[{key!r}]")
    elif dataclasses.is_dataclass(batch):
        names = [field.name for field in dataclasses.fields(batch)]
        assert type(element) is dict, path
        assert list(element) == names, path
        for name in names:
            assert_element(element[name], getattr(batch, name), f"{path}.{name}")
    elif isinstance(batch, Sequence):
        is_named = hasattr(batch, "_fields")
        assert type(element) is (type(batch) if is_named else tuple), path
        assert len(element) == len(batch), path
        for i, (one, other) in enumerate(zip(element, batch, strict=True)):
            assert_element(one, other, f"{path}[{i}]")
    else:
        raise AssertionError(f"{path}: what is a {type(batch).__name__}?")


def assert_tensor(tensor, array, path=""):
    """Asserts equal dtype, shape and bits."""
    assert tensor.dtype.name == str(array.dtype).removeprefix("torch."), path
    assert tuple(tensor.shape) == tuple(array.shape), path
    if isinstance(array, torch.Tensor):
        array = array.detach().resolve_conj().resolve_neg().contiguous()
        array = array.reshape(-1).view(torch.uint8).numpy()
    assert tensor.numpy().tobytes() == array.tobytes(), path


def address(tensor):
    """Returns the address of a torch, NumPy or TensorFlow tensor."""
    if isinstance(tensor, torch.Tensor):
        return tensor.data_ptr()
    return (tensor if isinstance(tensor, np.ndarray) else tensor.__array__()).ctypes.data


BATCHES = 6


class Loader:
    """Yields numbered batches, and counts its iterations."""

    def __init__(self, batches=BATCHES):
        self.batches = batches
        self.begun = 0

    def __iter__(self):
        self.begun += 1
        return (torch.full((2,), number) for number in range(self.batches))


def numbers(elements):
    return [int(element[0]) for element in elements]


class Squares:
    def __len__(self):
        return 1000

    def __getitem__(self, number):
        return number**2
