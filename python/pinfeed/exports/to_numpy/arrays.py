"""What NumPy makes of the arrays in a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import torch_dtype_name
from pinfeed.runtime import get_num_threads

Array = npt.NDArray[Any] | torch.Tensor


def plain(array: Any, bfloat16: str, where: str) -> Array:
    """An array or a tensor, on whatever device, as one that only has to be copied.

    Args:
        array: What stands in the batch.
        bfloat16: What becomes of that dtype: ``"float32"``, or ``"uint16"`` for its bits.
        where: What messages call it.

    Raises:
        TypeError: There are no values that NumPy could hold.
    """
    if isinstance(array, torch.Tensor):
        return _plain_tensor(array, bfloat16, where)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{where}: expected a tensor or an ndarray, got {type(array).__name__}")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{where}: the mask of a masked array would be lost; use .filled()")
    if array.dtype.hasobject or array.dtype.itemsize == 0:
        raise TypeError(f"{where}: expected a dtype of fixed size, got {array.dtype}")
    return array


def _plain_tensor(tensor: torch.Tensor, bfloat16: str, where: str) -> torch.Tensor:
    if tensor.is_nested:
        raise TypeError(
            f"{where}: expected a dense tensor, got a nested one; "
            "use pinfeed.JaggedBatch(tensor.values(), tensor.offsets())"
        )
    if tensor.layout != torch.strided:
        raise TypeError(f"{where}: expected a dense tensor, got {tensor.layout}; use .to_dense()")
    if tensor.is_meta:
        raise TypeError(f"{where}: a tensor on the meta device has no values")
    tensor = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
    is_bits = tensor.dtype == torch.bfloat16 and bfloat16 == "uint16"
    return tensor.view(torch.uint16) if is_bits else tensor


def numpy_dtype(array: Array, where: str) -> np.dtype[Any]:
    """The dtype that an array has as part of the result.

    Raises:
        TypeError: NumPy has none.
    """
    if isinstance(array, np.ndarray):
        return array.dtype
    if array.dtype == torch.bfloat16:
        return np.dtype(np.float32)
    name = torch_dtype_name(array.dtype)
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.isbuiltin != 1 or dtype.hasobject:
        raise TypeError(
            f"{where}: NumPy has no {name}; convert with .float(), or take the bits with "
            f".view(torch.uint{8 * array.itemsize})"
        )
    return dtype


def write(target: npt.NDArray[Any], source: Array, where: str) -> None:
    """Copies an array that is in memory.

    Args:
        target: Of the same shape, and of `numpy_dtype`.
        source: As `plain` returned it.
        where: What messages call the source.
    """
    dtype = target.dtype
    if target.flags.c_contiguous and dtype.kind in "biufc" and dtype.isnative:
        name, threads = "to_numpy", get_num_threads()
        _core.gather(source, None, dtype.name, target, None, name, where, threads)
    elif isinstance(source, torch.Tensor):
        torch.from_numpy(target).copy_(source)
    else:
        np.copyto(target, source, casting="no")
