"""Tensors that promise values but have no memory: an error, and the process lives on."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


def fake(tensor: torch.Tensor) -> torch.Tensor:
    """What torch computes shapes with."""
    with FakeTensorMode() as mode:
        return mode.from_tensor(tensor)


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, tensor: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, tensor.shape, dtype=tensor.dtype)

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise RuntimeError("a wrapper was computed with")


def wrapped(tensor: torch.Tensor) -> torch.Tensor:
    """A subclass around nothing."""
    return Wrapper(tensor)


def freed(tensor: torch.Tensor) -> torch.Tensor:
    """One whose memory was given back."""
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(0)
    return tensor
