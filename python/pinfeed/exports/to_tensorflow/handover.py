"""Memory of torch and NumPy as tensors of TensorFlow."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.exports.to_numpy.arrays import plain
from pinfeed.functions.functions import permute
from pinfeed.optional import import_extra

tf: Any = import_extra("tensorflow", "tensorflow")

Array = npt.NDArray[Any] | torch.Tensor

# All of TensorFlow's own memory begins at a multiple of it, and its kernels abort the process when
# they meet other memory.
_ALIGNMENT = 64

_NAMES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
_TORCH_DTYPES = {getattr(torch, name): getattr(tf, name) for name in _NAMES}


def host_array(array: Any, where: str) -> Array:
    """A tensor, on whatever device, or an ndarray, as one in memory that has a dtype of TensorFlow.

    Args:
        array: What stands in the batch.
        where: What messages call it.

    Raises:
        TypeError: It is no such array.
    """
    if type(array) is torch.Tensor and array.is_cpu and _is_plain(array):
        return array  # most are, and the rest of this takes longer than all else a batch needs
    array = plain(array, "float32", where)
    if isinstance(array, torch.Tensor):
        return array.cpu()
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def tensorflow_dtype(array: Array, where: str) -> Any:
    """The dtype that an array has in TensorFlow.

    Raises:
        TypeError: There is none.
    """
    if isinstance(array, torch.Tensor):
        dtype = _TORCH_DTYPES.get(array.dtype)
    else:
        dtype = next((one for one in _TORCH_DTYPES.values() if one == array.dtype), None)
    if dtype is None:
        raise TypeError(
            f"{where}: TensorFlow has no {array.dtype}; convert it, or leave it out of the batch"
        )
    return dtype


def handed_over(array: Array) -> Any:
    """The array as a tensor of TensorFlow, over the same memory if that is in order.

    TensorFlow never writes into it, and lets go of it when the last of its tensors is gone.

    Args:
        array: As `host_array` returns it.
    """
    if isinstance(array, np.ndarray):
        is_shared = array.flags.carray and _is_aligned(array.ctypes.data)
        if not is_shared or array.dtype.kind not in "biufc":  # bfloat16, which torch can't take
            return tf.constant(array)
        array = torch.from_numpy(array)
    elif not array.is_contiguous():
        axes = string.ascii_letters[: array.ndim]
        array = permute(array, axes, axes)
    elif not _is_aligned(array.data_ptr()):
        array = array.clone()
    # Tensor.__dlpack__ does the same with many more questions.
    return tf.experimental.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(array))  # type: ignore[attr-defined]


def _is_plain(tensor: torch.Tensor) -> bool:
    is_marked = tensor.requires_grad or tensor.is_conj() or tensor.is_neg()
    return tensor.layout is torch.strided and not (is_marked or tensor.is_nested)


def _is_aligned(address: int) -> bool:
    return address % _ALIGNMENT == 0
