"""pinfeed's functions by way of ``torch.ops.pinfeed``: for tensors on devices and in graphs."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import torch_dtype_name
from pinfeed.functions.normalization import Normalization
from pinfeed.functions.padding import Padding
from pinfeed.functions.scaling import scaled
from pinfeed.functions.torch_ops.library import require

_FAILED_TO_ALLOCATE = "could not be allocated"  # as the libraries say it


def by_ops(array: Any) -> bool:
    """Whether a function has to go by way of the ops: for tensors on devices that have kernels."""
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
    """``torch.ops.pinfeed.normalize_images`` of uint8 images, with the errors of `pinfeed.normalize`.

    ``constants`` are None for uint8 output; ``options`` are those of the op.
    """
    require(name, images.device)
    wanted = f"uint8 with shape ({', '.join(input)})"
    got = f"{torch_dtype_name(images.dtype)} {tuple(images.shape)}"
    if images.dtype != torch.uint8:
        raise TypeError(f"{name} must be {wanted}, got {got}; other dtypes are taken on the CPU")
    if images.ndim != len(input):
        raise ValueError(f"{name} must be {wanted}, got {got}")
    if constants is not None:
        constants.check_channels(images.shape[input.index("C")] if "C" in input else 1, name)
        options |= {"mean": constants.means, "std": constants.stds, "scale": constants.factor}
    op = torch.ops.pinfeed.normalize_images
    if out is None:
        return _call(op.default, images, input=input, **options)
    _call(op.out, images, input=input, out=out, **options)
    return out


def permute_tensor(images: Any, axes: list[int], out: Any) -> Any:
    """``torch.ops.pinfeed.permute`` by numbers of axes."""
    require("permute", images.device)
    input = string.ascii_letters[: len(axes)]
    output = "".join(input[axis] for axis in axes)
    if images.ndim != len(axes):
        raise ValueError(
            f"permute: images: expected {len(axes)} axes, got shape {tuple(images.shape)}"
        )
    if out is None:
        return _call(torch.ops.pinfeed.permute.default, images, input, output)
    _call(torch.ops.pinfeed.permute.out, images, input, output, out=out)
    return out


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
    """What `pinfeed.pad` makes of a jagged batch, bit for bit: values, lengths or None, mask or None.

    It pads axis 0 of the samples, which is all that such a batch has. ``offsets`` are on the device
    of the values.
    """
    require(name, values.device)
    rank = values.ndim  # of a sample, too
    if padding.axes not in (None, 0, -rank, (0,), (-rank,)):
        raise ValueError(
            f"{name}: on {values.device} {padding.function} pads axis 0, got axes={padding.axes}; "
            "leave axes out, or pad on the CPU"
        )
    dtype = values.dtype if padding.dtype is None else getattr(torch, padding.dtype)
    most = longest if padding.max_length is None else min(longest, padding.max_length)
    multiple = padding.multiples[0] if padding.multiples else 1
    length = -(-max(most, int(multiple > 1)) // multiple) * multiple
    if out is not None and out.ndim > 1:
        length = max(length, out.shape[1])
    options: dict[str, Any] = {
        "max_length": most,
        "pad_value": _as_float64(padding.pad_value, dtype, values.device, name),
        "side": padding.side,
    }
    batch = scaled(values, padding.scale, dtype, name), offsets, length
    where = None
    if mask:
        op = torch.ops.pinfeed.pad_jagged_with_mask
        if out is None:
            padded, counts, where = _call(op.default, *batch, **options)
        else:
            count = offsets.shape[0] - 1
            padded, counts = out, offsets.new_empty(count)
            where = values.new_empty(count, length, dtype=torch.bool)
            _call(op.out, *batch, **options, out=padded, lengths=counts, mask=where)
    else:
        op = torch.ops.pinfeed.pad_jagged
        padded = _call(op.default, *batch, **options) if out is None else out
        if out is not None:
            _call(op.out, *batch, **options, out=out)
        counts = (offsets[1:] - offsets[:-1]).clamp(max=most) if lengths else None
    if lengths and isinstance(padding.axes, tuple):
        counts = counts.view(-1, 1)
    return padded, counts if lengths else None, where


def unpad_tensor(
    padded: Any, lengths: npt.NDArray[np.int64], side: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and offsets of the data in a padded batch (B, L, ...); lengths are from 0 to L."""
    require("from_padded", padded.device)
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64, device="cpu")
    torch.cumsum(torch.from_numpy(lengths), 0, out=offsets[1:])
    total = int(offsets[-1])
    offsets = offsets.to(padded.device, non_blocking=True)
    op = torch.ops.pinfeed.unpad_to_jagged.default
    return _call(op, padded, offsets, total, side=side), offsets


def longest_sample(offsets: torch.Tensor, name: str) -> int:
    """The length of the longest; offsets on a device have to be waited for."""
    if len(offsets) < 2:
        raise ValueError(f"{name}: expected at least one sample, got an empty batch")
    return int((offsets[1:] - offsets[:-1]).max())


def _as_float64(value: Any, dtype: torch.dtype, device: torch.device, name: str) -> float:
    """The value as the ops take it; raises ValueError if they would round it, or can't hold it."""
    _core.check_value(value, torch_dtype_name(dtype), name, "pad_value")
    real = value.real  # of any number
    is_rounded_anyway = dtype.is_floating_point or dtype.is_complex
    if value.imag != 0 or not (is_rounded_anyway or int(float(real)) == real):
        raise ValueError(
            f"{name}: on {device} pad_value must be a number that float64 holds, got {value!r}; pad on "
            "the CPU"
        )
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
    """`pinfeed.normalize` as torch.compile and torch.export see it.

    The function itself checks and converts whatever it is given, with code that can't be traced. Here
    mean and std become lists, part of the graph.
    """
    op = torch.ops.pinfeed.normalize_images
    options = {key: value for key, value in options.items() if value is not None}
    options["dtype"] = _torch_dtype(dtype)
    if out is None:
        return op(images, _listed(mean), _listed(std), **options)
    op.out(images, _listed(mean), _listed(std), **options, out=out)
    return out


def traced_permute(
    images: torch.Tensor, input: str, output: str, out: torch.Tensor | None
) -> torch.Tensor:
    """`pinfeed.permute` as torch.compile and torch.export see it."""
    op = torch.ops.pinfeed.permute
    if out is None:
        return op(images, input, output)
    op.out(images, input, output, out=out)
    return out


def _torch_dtype(dtype: Any) -> Any:
    """`pinfeed.arguments.dtype_name` in what can be traced; the op refuses what it doesn't take."""
    if isinstance(dtype, torch.dtype):
        return dtype
    name = dtype if isinstance(dtype, str) and dtype == "bfloat16" else np.dtype(dtype).name
    return getattr(torch, name)


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
    ``torch.OutOfMemoryError``, which programs catch. An ``out`` that doesn't fit is a RuntimeError to
    torch from 2.15 on.
    """
    try:
        return op(*args, **kwargs)
    except RuntimeError as error:
        if ": out must " in str(error):
            raise ValueError(str(error)) from None
        if _FAILED_TO_ALLOCATE in str(error):
            _allocate_outputs(op, args, kwargs)
        raise  # they fit by now, or it was something else that did not


def _allocate_outputs(
    op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Asks torch for the memory of all outputs at once."""
    given = [*args, *kwargs.values()]
    device = next(one.device for one in given if isinstance(one, torch.Tensor))
    fakes = op(*map(_on_meta, args), **{name: _on_meta(one) for name, one in kwargs.items()})
    fakes = [fakes] if isinstance(fakes, torch.Tensor) else fakes
    held = []
    for fake in fakes:
        size, stride = fake.shape, fake.stride()
        held.append(torch.empty_strided(size, stride, dtype=fake.dtype, device=device))


def _on_meta(argument: Any) -> Any:
    return argument.to("meta") if isinstance(argument, torch.Tensor) else argument
