"""Test arrays: views of every kind, as ndarrays and as tensors, and bitwise comparison."""

import math

import numpy as np
import torch
from hypothesis import strategies as st

NUMPY_DTYPES = ["?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8", "c8", "c16"]
TORCH_DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


def random_array(shape, dtype=np.uint8, seed=0):
    """Returns random bytes as items of the dtype, including NaNs, which must be preserved.

    The seed may be a generator, which then yields other bytes in each call.
    """
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    return np.frombuffer(rng.bytes(math.prod(shape) * dtype.itemsize), dtype).reshape(shape).copy()


def is_fractional(dtype):
    """Whether one of torch's dtypes holds more than integers."""
    return dtype.is_floating_point or dtype.is_complex


@st.composite
def views(draw, shape, dtype=np.uint8, mirrored=True, target=None):
    """Draws views of a shape: cropped, stepped, mirrored, broadcast, with axes in any memory order.

    Their integers fit ``target``, a torch dtype.
    """
    variants = [
        "whole",
        "crop",
        "step",
        "broadcast",
        *(["mirror", "mirror step"] if mirrored else []),
    ]
    memory_order = draw(st.permutations(range(len(shape))))
    base_shape, parts = [], []
    for axis in memory_order:
        size, variant = shape[axis], draw(st.sampled_from(variants))
        if variant == "broadcast" and size > 0:
            base_shape.append(1)
            parts.append(slice(None))
        elif variant == "crop":
            base_shape.append(size + 3)
            parts.append(slice(1, 1 + size))
        elif variant.endswith("step"):
            base_shape.append(2 * size)
            parts.append(slice(None, None, -2 if variant.startswith("mirror") else 2))
        else:
            base_shape.append(size)
            parts.append(slice(None, None, -1 if variant == "mirror" else 1))
    base = random_array(base_shape, dtype, draw(st.integers(0, 2**32 - 1)))
    if base.dtype.kind in "iu" and target is not None and not is_fractional(target):
        limits, limits_of_base = torch.iinfo(target), np.iinfo(base.dtype)
        low, high = max(limits.min, limits_of_base.min), min(limits.max, limits_of_base.max)
        base = np.where((base < low) | (base > high), base & high, base)
    view = base[tuple(parts)].transpose(np.argsort(memory_order))
    strides = [
        stride if size == view_size else 0
        for size, view_size, stride in zip(shape, view.shape, view.strides, strict=True)
    ]
    # np.broadcast_to returns a read-only array, which torch.from_numpy warns about.
    return np.lib.stride_tricks.as_strided(view, shape, strides)


def as_kind(kind, array):
    """Returns the array itself, read-only, or as a tensor that shares its memory."""
    if kind == "tensor":
        return torch.from_numpy(array)
    if kind == "read-only":
        array = array.view()
        array.flags.writeable = False
    return array


def unwritten(kind, shape, dtype):
    """Returns an output array filled with the byte 0xA5."""
    numpy_dtype = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    memory = np.full(math.prod(shape) * numpy_dtype.itemsize, 0xA5, np.uint8)
    array = memory.view(numpy_dtype).reshape(shape)
    return torch.from_numpy(array).view(getattr(torch, dtype)) if kind == "tensor" else array


def bits(array):
    """Returns the array's bytes as unsigned integers, so that -0 differs from 0 and NaN equals NaN."""
    if isinstance(array, torch.Tensor):
        if array.dtype == torch.bfloat16:
            array = array.view(torch.uint16)
        array = array.numpy()
    if array.dtype.kind == "c":
        return np.ascontiguousarray(array)[..., np.newaxis].view(f"u{array.itemsize // 2}")
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def assert_same_bits(got, expected):
    """Asserts equal shape, item size and bits."""
    got_bits, expected_bits = bits(got), bits(expected)
    assert got_bits.dtype == expected_bits.dtype
    # np.ascontiguousarray makes a 0-d array 1-d, so compare the original shapes.
    assert tuple(got.shape) == tuple(expected.shape)
    np.testing.assert_array_equal(got_bits, expected_bits)


def fitting(values, dtype):
    """Returns the values, with 1 in place of integers that don't fit the dtype."""
    if values.dtype == torch.bool or values.is_floating_point() or values.is_complex():
        return values
    least, most = -65519, 65519  # larger values are infinite in float16
    if dtype != torch.float16:
        if dtype == torch.bool or dtype.is_floating_point or dtype.is_complex:
            return values
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    array = values.numpy()
    numbers = array.astype(object)
    keep = ((numbers >= least) & (numbers <= most)).astype(bool)
    return torch.from_numpy(np.where(keep, array, array.dtype.type(1)))
