"""The keywords of `pinfeed.functional.pad` and `pinfeed.Pad`, and the inverse of padding."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from pinfeed import _core
from pinfeed.arguments import (
    ARRAYS,
    Problem,
    as_integer,
    check_plain,
    checked_choice,
    checked_multiples,
    dtype_name,
    positive_integer,
)
from pinfeed.functional.scaling import checked_scale

#: Hints for the names that other libraries use.
PAD_HINTS = {
    "padding_value": "pass pad_value",
    "padding_side": "pass side",
    "truncation": "max_length=n cuts longer samples",
    "padding": "batches are padded to their longest sample; max_length=n with multiple_of=n pads all to n",
    "pad_token_id": "pass pad_value",
    "pad_to_multiple_of": "pass multiple_of",
}

Side = Literal["right", "left"]
Axes = int | tuple[int, ...] | None

_MAX_AXES = 64  # that NumPy and torch know
_NUMBERS = (bool, int, float, complex)


class Padding:
    """The keywords of `pinfeed.functional.pad`, checked.

    Attributes:
        options: The keywords in native form.
    """

    def __init__(
        self,
        function: str,
        pad_value: Any = 0,
        *,
        side: Literal["right", "left"] = "right",
        axes: int | tuple[int, ...] | None = None,
        max_length: int | None = None,
        multiple_of: int | tuple[int, ...] | None = None,
        dtype: Any = None,
        scale: float | None = None,
    ) -> None:
        check_side(side, function)
        self.function = function
        self.pad_value = pad_value if type(pad_value) in _NUMBERS else _number(pad_value, function)
        self.side = side
        self.axes = _axes(axes, function)
        self.max_length = positive_integer(max_length, f"{function}: max_length")
        self.multiple_of = multiple_of
        count = len(self.axes) if isinstance(self.axes, tuple) else 1
        hint = "; name the axes of a sample: axes=(0, 1)"
        self.multiples = checked_multiples(multiple_of, count, f"{function}: multiple_of", hint)
        name = None if dtype is None else dtype_name(dtype, function)
        self.scale, self.dtype = checked_scale(scale, name, function)
        if self.dtype is not None:
            _core.check_value(self.pad_value, self.dtype, function, "pad_value")
        self.options = _core.PadOptions(
            value=self.pad_value,
            axes=(self.axes,) if isinstance(self.axes, int) else self.axes,
            one_axis=not isinstance(self.axes, tuple),
            side=side,
            max_length=self.max_length,
            multiple_of=self.multiples,
            dtype=self.dtype,
            scale=self.scale,
        )


def _number(value: Any, function: str) -> bool | int | float | complex:
    if isinstance(value, np.generic) or (isinstance(value, torch.Tensor) and value.ndim == 0):
        value = value.item()
    if not isinstance(value, _NUMBERS):
        hint = ""
        if value is None:  # pad_token_id of GPT-2 and related tokenizers
            hint = (
                "if it is tokenizer.pad_token_id, the tokenizer has none: tokenizer.pad_token = "
                "tokenizer.eos_token gives it one"
            )
        if isinstance(value, str):
            hint = "the number of a token is tokenizer.pad_token_id"
            if value in ("right", "left"):
                hint = f"pass side={value!r}"
        text = f"{function}: pad_value must be a number, got {value!r}"
        raise TypeError(Problem("", text, hint=hint))
    return value


def _axes(axes: Any, function: str) -> Axes:
    if axes is None:
        return None
    is_sequence = isinstance(axes, tuple | list)
    numbers = [as_integer(axis) for axis in (axes if is_sequence else (axes,))]
    checked = tuple(number for number in numbers if number is not None)
    if not numbers or len(checked) != len(numbers):
        raise TypeError(
            f"{function}: axes must be an integer, a non-empty tuple of integers, or None, got {axes!r}"
        )
    if max(abs(number) for number in checked) > _MAX_AXES:
        raise ValueError(f"{function}: axes must name axes of the samples, got {axes!r}")
    return checked if is_sequence else checked[0]


def check_side(side: Any, function: str) -> None:
    """Raises ValueError unless the side is ``"right"`` or ``"left"``."""
    checked_choice(side, ("right", "left"), f"{function}: side")


# Paths of token entries, whose samples have one axis.
_TOKENS = re.compile("ids'|token|attention_mask", re.IGNORECASE)
_INTEGERS = {"int32", "int64"}
_TO_ROWS = "pass sample[0], or call the tokenizer without return_tensors"


def require_rows(samples: Sequence[Any], name: str, path: str = "", *, pads: bool = False) -> None:
    """Raises ValueError for token samples of shape (1, L), which tokenizers return with return_tensors.

    Tokens are recognized by their path, or as integers of different lengths. Without keys, integers of
    one length cause only a warning, if they are padded, because each sample can also be a single object.
    """
    if len(samples) == 0 or not all(_is_one_row(sample) for sample in samples):
        return
    lengths = [len(sample[0]) for sample in samples]
    got = f"shape (1, {lengths[0]})"
    if len({*lengths}) > 1 or _TOKENS.search(path):
        raise ValueError(Problem(name, "a row of tokens", got, _TO_ROWS, sample=0))
    if pads and "'" not in path and len(lengths) > 1 and lengths[0] > 2:
        text = f"{name}: all samples have {got}; for tokens, {_TO_ROWS}"
        warnings.warn(f"{text}; for one object per sample, pass axes=0", stacklevel=3)


def warn_of_stacked_row(sample: Any, path: str) -> bool:
    """Warns, and returns True, if a sample to be stacked is a row of tokens by the rule of `require_rows`."""
    is_row = isinstance(sample, ARRAYS) and _TOKENS.search(path) and _is_one_row(sample)
    if not is_row or sample.shape[1] < 3:
        return False
    got = tuple(sample.shape)
    text = f"Collate: entry {path}: samples of shape {got} make batches of shape (B, 1, {got[1]})"
    hint = f"for tokens, {_TO_ROWS}; a Stack() for the entry keeps the axis"
    warnings.warn(f"{text}; {hint}", stacklevel=3)
    return True


def _is_one_row(sample: Any) -> bool:
    """Whether a sample consists of integers of shape (1, L)."""
    if isinstance(sample, list):
        is_row = len(sample) == 1 and isinstance(sample[0], list) and len(sample[0]) > 0
        return is_row and isinstance(sample[0][0], int)
    if not isinstance(sample, ARRAYS) or getattr(sample, "is_nested", False):
        return False
    is_row = sample.ndim == 2 and len(sample) == 1
    return is_row and str(sample.dtype).removeprefix("torch.") in _INTEGERS


def unpadded(padded: Any, lengths: Any, side: Side, axes: Axes, function: str) -> list[Any]:
    """Returns views of the data in a padded array; see `pinfeed.functional.unpad`."""
    if padded.ndim < 2:
        got = str(tuple(padded.shape))
        raise ValueError(Problem(f"{function}: padded", "shape (B, L, ...)", got))
    order = _chosen_axes(axes, padded.ndim - 1, function)
    rows = checked_lengths(
        lengths, padded.shape[:1] + tuple(padded.shape[1 + i] for i in order), function
    )
    # Index each view separately. unbind and split take half the time, but autograd then forbids
    # in-place changes to the views.
    if rows and isinstance(rows[0], int) and order[0] == 0:
        size = padded.shape[1]
        starts = [size - length if side == "left" else 0 for length in rows]
        return [
            padded[i, start : start + length]
            for i, (start, length) in enumerate(zip(starts, rows, strict=True))
        ]
    views = []
    for i, counts in enumerate(rows):
        parts = [slice(None)] * (padded.ndim - 1)
        for axis, k in zip(order, [counts] if isinstance(counts, int) else counts, strict=False):
            n = padded.shape[1 + axis]
            parts[axis] = slice(n - k, n) if side == "left" else slice(k)
        views.append(padded[(i, *parts)])
    return views


def _chosen_axes(axes: Axes, count: int, function: str) -> tuple[int, ...]:
    """Returns the padded axes; all axes in order if ``axes`` is None."""
    axes = _axes(axes, function)
    if axes is None:
        return tuple(range(count))
    chosen = axes if isinstance(axes, tuple) else (axes,)
    if not all(-count <= axis < count for axis in chosen):
        raise ValueError(Problem(f"{function}: axes", f"axes of {count}-D samples", str(axes)))
    return tuple(axis % count for axis in chosen)


def checked_lengths(lengths: Any, shape: tuple[int, ...], function: str) -> list[Any]:
    """Returns lengths (B,) or (B, n) as Python integers or lists of them; ``shape`` is (B, L, ...)."""
    name, expected = f"{function}: lengths", f"shape ({shape[0]},) or ({shape[0]}, n)"
    check_plain(lengths, name)
    if isinstance(lengths, torch.Tensor):
        lengths = lengths.detach().cpu().numpy()
    try:
        array = np.asarray(lengths)
    except ValueError as error:
        raise ValueError(Problem(name, expected, repr(lengths))) from error
    if array.size == 0 and not isinstance(lengths, np.ndarray):
        array = array.astype(np.int64)  # np.asarray([]) is float64
    if array.dtype.kind not in "iu":
        raise TypeError(Problem(name, "integers", str(array.dtype)))
    if array.ndim not in (1, 2) or len(array) != shape[0]:
        raise ValueError(Problem(name, expected, str(array.shape)))
    if array.ndim == 2 and not 1 <= array.shape[1] < len(shape):
        expected = f"lengths for 1 to {len(shape) - 1} axes"
        raise ValueError(Problem(name, expected, str(array.shape[1])))
    limits = shape[1] if array.ndim == 1 else np.array(shape[1 : 1 + array.shape[1]])
    for sample, *axis in np.argwhere((array < 0) | (array > limits)).tolist()[:1]:
        expected = f"from 0 to {shape[1 + axis[0] if axis else 1]}"
        got = str(array[(sample, *axis)])
        raise ValueError(Problem(name, expected, got, sample=sample))
    return array.tolist()
