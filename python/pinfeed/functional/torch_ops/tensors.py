"""pinfeed's functions through ``torch.ops.pinfeed``, for tensors on devices and in graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import Problem, rounded_up, torch_dtype_name
from pinfeed.functional.normalization import Normalization
from pinfeed.functional.padding import Padding
from pinfeed.functional.scaling import scaled
from pinfeed.functional.torch_ops.library import require

_FAILED_TO_ALLOCATE = "could not be allocated"  # as the libraries say it


def uses_torch_ops(array: Any) -> bool:
    """Whether to use the ops: for tensors on devices with kernels."""
    return isinstance(array, torch.Tensor) and array.is_cuda


def normalize_tensor(
    images: Any,
    constants: Normalization | None,
    *,
    input: str,
    name: str,
    out: Any = None,
    **options: Any,
) -> Any:
    """Calls ``torch.ops.pinfeed.normalize_images``, with the errors of `pinfeed.functional.normalize`.

    ``images`` are uint8; ``constants`` are None for uint8 output; ``options`` go to the op.
    """
    require(name, images.device)
    expected = f"uint8 with shape ({', '.join(input)})"
    got = f"{torch_dtype_name(images.dtype)} {tuple(images.shape)}"
    if images.dtype != torch.uint8:
        raise TypeError(f"{name} must be {expected}, got {got}; other dtypes work on the CPU")
    if images.ndim != len(input):
        raise ValueError(f"{name} must be {expected}, got {got}")
    if constants is not None:
        channels = images.shape[input.index("C")] if "C" in input else 1
        if constants.channels not in (None, channels):
            expected = f"{constants.channels} channels, one for each value of mean and std"
            hint = "a single number applies to all channels"
            raise ValueError(Problem(name, expected, str(channels), hint))
        constants.check_units(name)
        options |= {"mean": constants.means, "std": constants.stds, "scale": constants.factor}
    op = torch.ops.pinfeed.normalize_images.default
    return _written(_call(op, images, input=input, **options), out, "normalize")


def permute_tensor(images: Any, input: str, output: str, out: Any) -> Any:
    """Calls ``torch.ops.pinfeed.permute``, with the errors of `pinfeed.functional.permute`."""
    require("permute", images.device)
    if images.ndim != len(input):
        got = f"shape {tuple(images.shape)}"
        raise ValueError(Problem("permute: images", f"{len(input)} axes", got))
    op = torch.ops.pinfeed.permute.default
    return _written(_call(op, images, input, output), out, "permute")


def pad_tensor(
    padding: Padding,
    values: torch.Tensor,
    offsets: torch.Tensor,
    longest: int,
    *,
    lengths: bool,
    mask: bool,
    name: str,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Pads a jagged batch like `pinfeed.functional.pad`, bit for bit: values, lengths or None, mask or None.

    It pads axis 0 of the samples, the only axis in which they differ. ``offsets`` are on the device of the
    values.
    """
    require(name, values.device)
    rank = values.ndim  # of a sample, too
    if padding.axes not in (None, 0, -rank, (0,), (-rank,)):
        wrong = f"axes must be 0 or None on {values.device}, got {padding.axes}"
        raise ValueError(Problem(name, wrong, hint="leave axes out, or pad on the CPU"))
    dtype = values.dtype if padding.dtype is None else getattr(torch, padding.dtype)
    limit = longest if padding.max_length is None else min(longest, padding.max_length)
    multiple = padding.multiples[0]
    length = rounded_up(max(limit, int(multiple > 1)), multiple)
    if out is not None and out.ndim > 1:
        length = max(length, out.shape[1])
    options: dict[str, Any] = {
        "max_length": limit,
        "pad_value": _as_float64(padding.pad_value, dtype, values.device, name),
        "side": padding.side,
    }
    source = scaled(values, padding.scale, dtype, name)
    op = torch.ops.pinfeed.pad_jagged.default
    padded = _written(_call(op, source, offsets, length, **options), out, padding.function)
    counts: Any = None
    where = None
    if lengths or mask:
        counts = (offsets[1:] - offsets[:-1]).clamp(max=limit)
    if mask:
        steps, left = torch.arange(length, device=values.device), padding.side == "left"
        where = steps >= length - counts[:, None] if left else steps < counts[:, None]
    if not lengths:
        counts = None
    elif isinstance(padding.axes, tuple):
        counts = counts.view(-1, 1)
    return padded, counts, where


def unpad_tensor(
    padded: Any, lengths: npt.NDArray[np.int64], side: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns values and offsets of the data in a padded batch (B, L, ...); lengths are from 0 to L."""
    require("from_padded", padded.device)
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64, device="cpu")
    torch.cumsum(torch.from_numpy(lengths), 0, out=offsets[1:])
    total = int(offsets[-1])
    offsets = offsets.to(padded.device, non_blocking=True)
    op = torch.ops.pinfeed.unpad_to_jagged.default
    return _call(op, padded, offsets, total, side=side), offsets


def longest_sample(offsets: torch.Tensor, name: str) -> int:
    """Returns the length of the longest sample. If offsets are on a device, it waits for them."""
    if len(offsets) < 2:
        raise ValueError(Problem(name, "at least one sample", "an empty batch"))
    return int((offsets[1:] - offsets[:-1]).max())


def _as_float64(value: Any, dtype: torch.dtype, device: torch.device, name: str) -> float:
    """Returns the value for the ops; raises ValueError if they would round it, or can't hold it."""
    _core.check_value(value, torch_dtype_name(dtype), name, "pad_value")
    real = value.real  # of any number
    is_rounded_anyway = dtype.is_floating_point or dtype.is_complex
    if value.imag != 0 or not (is_rounded_anyway or int(float(real)) == real):
        wrong = f"on {device} pad_value must be a number that float64 holds, got {value!r}"
        raise ValueError(Problem(name, wrong, hint="pad on the CPU"))
    return float(real)


def traced_normalize(
    images: torch.Tensor,
    mean: Any,
    std: Any,
    out: torch.Tensor | None,
    *,
    dtype: Any,
    **options: Any,
) -> torch.Tensor:
    """`pinfeed.functional.normalize` as torch.compile and torch.export see it.

    The function itself checks and converts its arguments with code that can't be traced. Here mean
    and std become lists in the graph.
    """
    op = torch.ops.pinfeed.normalize_images
    options = {key: value for key, value in options.items() if value is not None}
    if not isinstance(dtype, torch.dtype):  # the op rejects other dtypes than images can have
        is_bfloat16 = isinstance(dtype, str) and dtype == "bfloat16"
        dtype = getattr(torch, "bfloat16" if is_bfloat16 else np.dtype(dtype).name)
    options["dtype"] = dtype
    return _written(op(images, _listed(mean), _listed(std), **options), out, "normalize")


def traced_permute(
    images: torch.Tensor, input: str, output: str, out: torch.Tensor | None
) -> torch.Tensor:
    """`pinfeed.functional.permute` as torch.compile and torch.export see it."""
    return _written(torch.ops.pinfeed.permute(images, input, output), out, "permute")


def _written(result: torch.Tensor, out: torch.Tensor | None, function: str) -> torch.Tensor:
    """Returns the result, or ``out`` with a copy of it; raises unless shape, dtype and device match."""
    if out is None:
        return result
    if (out.shape, out.dtype, out.device) != (result.shape, result.dtype, result.device):
        expected, got = (
            f"{torch_dtype_name(t.dtype)} {tuple(t.shape)} on {t.device}" for t in (result, out)
        )
        raise ValueError(f"{function}: out must be {expected}, got {got}")
    return out.copy_(result)


def _listed(values: Any) -> list[float] | None:
    if values is None:
        return None
    if isinstance(values, torch.Tensor | np.ndarray):
        values = values.tolist()  # where the graph breaks: its values are not known in it
    if isinstance(values, tuple | list):
        return [float(value) for value in values]
    return [float(values)]


def _call(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """``op(*args, **kwargs)``, with the errors that functions have.

    The stable ABI tells the libraries only that torch could not allocate, so the ops can't raise
    ``torch.OutOfMemoryError``, which programs catch.
    """
    try:
        return op(*args, **kwargs)
    except RuntimeError as error:
        if _FAILED_TO_ALLOCATE in str(error):
            fake = op(*(a.to("meta") if isinstance(a, torch.Tensor) else a for a in args), **kwargs)
            options = {"dtype": fake.dtype, "device": args[0].device}
            torch.empty_strided(
                fake.shape, fake.stride(), **options
            )  # its own error, if it can't either
        raise  # torch could allocate it by now, or the error has another cause
