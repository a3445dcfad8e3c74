"""Tensors without memory, which must raise instead of crashing the process."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


def fake(tensor):
    """Returns a fake tensor, which torch uses to compute shapes."""
    with FakeTensorMode() as mode:
        return mode.from_tensor(tensor)


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, tensor):
        return torch.Tensor._make_wrapper_subclass(cls, tensor.shape, dtype=tensor.dtype)

    @classmethod
    def __torch_dispatch__(cls, *_, **__):
        raise RuntimeError("a wrapper was computed with")


def wrapped(tensor):
    """Returns a wrapper subclass without data."""
    return Wrapper(tensor)


def freed(tensor):
    """Returns a tensor whose storage was freed."""
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(0)
    return tensor
