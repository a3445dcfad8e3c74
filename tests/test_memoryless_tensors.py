"""Tensors that promise values but have no memory: an error, and the process lives on."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import pinfeed


def fake():
    with FakeTensorMode():
        return torch.zeros(2, 4, 4, 3, dtype=torch.uint8)


def wrapped():
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls):
            return torch.Tensor._make_wrapper_subclass(cls, (2, 4, 4, 3), dtype=torch.uint8)

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise RuntimeError("a wrapper was computed with")

    return Wrapper()


def freed():
    tensor = torch.ones(2, 4, 4, 3, dtype=torch.uint8)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.kernels
@pytest.mark.parametrize("make", [fake, wrapped, freed])
@pytest.mark.parametrize(
    "use",
    [
        pinfeed.normalize,
        pinfeed.permute,
        lambda images: pinfeed.gather(images, [0]),
        lambda images: pinfeed.Collate(pinfeed.Image(input="HWC"))([images]),
        lambda images: pinfeed.to_numpy([images]),
    ],
    ids=["normalize", "permute", "gather", "Collate", "to_numpy"],
)
def test_refused(make, use):
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        use(make())


def test_out_without_memory():
    out = torch.ones(1, 4, 4, 3, dtype=torch.uint8)
    out.untyped_storage().resize_(0)
    with pytest.raises(TypeError, match="memory of its own"):
        pinfeed.gather(torch.ones(2, 4, 4, 3, dtype=torch.uint8), [0], out=out)


def test_an_empty_tensor_needs_none():
    assert pinfeed.gather(torch.empty(3, 0), [0, 2]).shape == (2, 0)
