"""Tensors that promise values but have no memory: an error, and the process lives on."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


def fake(tensor):
    """Returns the fake tensor with which torch computes shapes."""
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
    """A subclass around nothing."""
    return Wrapper(tensor)


def freed(tensor):
    """One whose memory was given back."""
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(0)
    return tensor
