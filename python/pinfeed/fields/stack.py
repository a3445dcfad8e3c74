"""The fields `Stack` and `Keep`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate
from typing_extensions import override

from pinfeed import _core
from pinfeed.arguments import (
    ARRAYS,
    PLAIN_ARRAYS,
    DType,
    Problem,
    conversion_hint,
    torch_dtype,
    torch_dtype_name,
    with_hints,
)
from pinfeed.batches import Selection
from pinfeed.fields.field import Field, FieldContext
from pinfeed.functional.scaling import checked_scale, scaled
from pinfeed.memory.outputs import as_output, batch_allocator
from pinfeed.runtime import get_num_threads
from pinfeed.sources.source import ArraySource, Source
from pinfeed.structure import entries, is_container

#: Number types of Python and NumPy.
_PYTHON_NUMBERS: set[type] = {int, float, bool}
_NUMPY_NUMBERS: set[type] = {np.dtype(letter).type for letter in "?bBhHiIlLqQefdFD"}
#: Types that consist of their values alone.
_PLAIN = PLAIN_ARRAYS.union(_PYTHON_NUMBERS, _NUMPY_NUMBERS)


class Stack(Field):
    """Stacks arrays, tensors or numbers of one shape and dtype into a tensor with a batch axis first.

    This is the default field. Other types are handled by torch's ``default_collate``: strings become
    a list. Types that carry more than their values, such as a mask, a unit, column names or a box
    format, raise TypeError. A tensor subclass keeps its class if ``torch.stack`` of it keeps the attributes.
    Attributes that you set on a plain tensor are lost, as with ``torch.stack``.

    Args:
        dtype: Dtype of the batch, if not the samples' own. ``torch.can_cast`` must allow the cast; values
            are the same as from ``Tensor.to``. Lists of numbers then count as arrays.
        scale: Factor for integers that become floats, as in `pinfeed.functional.pad`.

    Raises:
        TypeError: If ``dtype`` is not a torch.dtype, ``scale`` not a number, or they don't fit together.
            When samples are collated: if the cast would lose information (float to int, complex to
            real, number to bool), or samples to be scaled are not integers.
        ValueError: If ``scale`` is 0 or not finite. When samples are collated: if shapes differ, or an
            integer does not fit in ``dtype``; 65,520 and more don't fit in float16.

    Example:
        >>> pinfeed.Collate(pinfeed.Stack())([np.arange(3), np.arange(3)])
        tensor([[0, 1, 2],
                [0, 1, 2]])
    """

    @with_hints()
    def __init__(self, dtype: DType | None = None, *, scale: float | None = None) -> None:
        name = None if dtype is None else torch_dtype_name(torch_dtype(dtype, "Stack"))
        self.scale, self._dtype_name = checked_scale(scale, name, "Stack")
        self.dtype = None if self._dtype_name is None else getattr(torch, self._dtype_name)

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> Any:
        kind, pin = type(samples[0]), context.pin
        if self.dtype is not None and issubclass(kind, list | tuple):
            return self._stack(_as_arrays(samples, context), None, context)
        cast, target = (self._dtype_name, self.scale), batch_allocator(pin)
        try:
            batch = _core.stack(samples, *cast, target, context.name, get_num_threads())
        except TypeError as error:  # torch promotes mixed dtypes, and supports more of them
            return self._stack_by_torch(samples, context, error)
        except ValueError as error:
            if _is_image(samples[0]) and (problem := Problem.of(error)):
                problem.explain_difference(
                    "Image(pad_value=0) pads images of different sizes, Image(augment=...) crops or resizes them"
                )
            raise
        is_numpy = batch is None and kind in _NUMPY_NUMBERS and self.dtype is None
        if is_numpy and {*map(type, samples)} == {kind}:
            batch = torch.from_numpy(np.array(samples))
        # torch stacks tensors on devices, and tensor subclasses, which keep their class.
        if batch is None:
            return self._stack_by_torch(samples, context)
        return as_output(batch, pin) if pin and (is_numpy or kind in _PYTHON_NUMBERS) else batch

    @override
    def gather(self, source: Source, indices: npt.NDArray[np.int64], context: FieldContext) -> Any:
        if type(source) is ArraySource:  # the fixed cost of most entries
            return self._stack(source.rows, indices, context)
        if source.string_type is not None:
            return super().gather(source, indices, context)
        selection = source.select(indices)
        if source.is_ragged:
            return self._join(selection, context)
        return self._stack(selection.rows, selection.indices, context)

    @override
    def apply(self, batch: Any, host: Any, context: FieldContext) -> Any:
        return batch if self.dtype is None else self._cast(batch, batch, context)

    def _join(self, sequences: Selection, context: FieldContext) -> torch.Tensor:
        """Stacks sequences, which must have one length."""
        cast: Any = {"dtype": self._dtype_name, "scale": self.scale}
        values, offsets = _core.join(
            *sequences, batch_allocator(context.pin), context.name, get_num_threads(), **cast
        )
        lengths = np.diff(offsets.numpy())
        if (lengths != lengths[0]).any():
            position = int((lengths != lengths[0]).argmax())
            expected, got = f"length {lengths[0]} as in sample 0", str(lengths[position])
            raise ValueError(Problem(context.name, expected, got, sample=position, differs=True))
        return values.view(len(lengths), int(lengths[0]), *values.shape[1:])

    def _stack(self, samples: Any, indices: Any, context: FieldContext) -> torch.Tensor:
        target, threads = batch_allocator(context.pin), get_num_threads()
        cast = self._dtype_name, self.scale
        return _core.gather(samples, indices, *cast, target, context.name, threads)

    def _stack_by_torch(
        self, samples: Sequence[Any], context: FieldContext, refusal: Exception | None = None
    ) -> Any:
        """Stacks samples that native code doesn't support, with ``default_collate``.

        It raises if torch would drop information that a sample carries.
        """
        first = samples[0]
        if isinstance(first, str | bytes) and self.dtype is None:
            return samples
        are_numbers = {*map(type, samples)} <= _PYTHON_NUMBERS
        for position, sample in enumerate(() if are_numbers else samples):
            for _, value in entries(sample):  # samples can be containers here
                if not _is_its_values(value, value is not sample):
                    self._refuse(value, position, first, context)
        # Of several dtypes: torch would promote them first, int64 and float16 to float16.
        are_arrays = self.dtype is not None and {*map(type, samples)} <= PLAIN_ARRAYS
        are_cast = are_arrays and len({str(sample.dtype) for sample in samples}) > 1
        if are_cast:
            samples = [self._cast_alone(one, i, context) for i, one in enumerate(samples)]
        try:
            with torch.device("cpu"):  # numbers would become tensors of the default device
                batch = default_collate(samples)  # type: ignore[arg-type] # any sequence will do
        except (RuntimeError, TypeError, ValueError) as error:
            for position, sample in enumerate(samples):
                if is_container(sample) != is_container(first):
                    expected, got = f"{type(first).__name__} as in sample 0", type(sample).__name__
                    raise TypeError(
                        Problem(context.name, expected, got, sample=position)
                    ) from error
                if isinstance(sample, int) and not -(2**63) <= sample < 2**63:
                    expected, got = "64-bit integers", repr(sample)
                    raise ValueError(
                        Problem(context.name, expected, got, sample=position)
                    ) from error
            if type(first) is torch.Tensor and refusal is None:
                self._stack(samples, None, context)  # raises, and says which sample differs
            raise refusal or type(error)(Problem(context.name, str(error))) from error
        if self.dtype is not None and not are_cast:
            batch = self._cast(batch, first, context)
        for position, sample in enumerate(() if are_numbers else samples):
            if not _carries(batch, sample):
                self._refuse(sample, position, first, context)
        if not isinstance(batch, torch.Tensor):
            return batch
        if batch.dtype == torch.float16 and batch.isinf().any():
            for position, sample in enumerate(samples):
                most = abs(sample) if isinstance(sample, int) else 0
                if "int" in str(getattr(sample, "dtype", "")):
                    most = max(int(sample.max()), -int(sample.min()))
                if most >= 65520:
                    expected = "integers that fit in float16, the dtype of other samples"
                    problem = Problem(context.name, expected, str(most), sample=position)
                    problem.hint = "Stack(torch.float32) takes both"
                    raise ValueError(problem)
        return as_output(batch, context.pin) if context.pin else batch

    def _refuse(self, value: Any, position: int, first: Any, context: FieldContext) -> None:
        """Raises TypeError for a sample that carries more than its values, or has none."""
        expected = "an array, a tensor or a number"
        if self.dtype is None:
            expected = "an array, a tensor, a number or a string"
        if position:
            expected = f"{type(first).__name__} as in sample 0"
        problem = Problem(context.name, expected, type(value).__name__, conversion_hint(value))
        if isinstance(value, (*ARRAYS, np.generic)):
            try:
                self._stack(
                    [np.asarray(value) if isinstance(value, np.generic) else value], None, context
                )
            except TypeError as error:
                problem = Problem.of(error) or problem
        problem.sample = position
        raise TypeError(problem)

    def _cast_alone(self, sample: Any, position: int, context: FieldContext) -> torch.Tensor:
        try:
            if isinstance(sample, np.ndarray):
                return self._stack([sample], None, context)[0]
            return self._cast(sample[None], sample, context)[0]
        except (TypeError, ValueError) as error:
            if problem := Problem.of(error):
                problem.sample = position
            raise

    def _cast(self, batch: Any, first: Any, context: FieldContext) -> torch.Tensor:
        """Casts a batch that torch stacked."""
        if not isinstance(batch, torch.Tensor):
            expected, hint = f"arrays or numbers for {self!r}", "Keep() leaves samples as they are"
            raise TypeError(Problem(context.name, expected, type(first).__name__, hint))
        if batch.ndim == 0:
            return self._cast(batch[None], first, context)[0]
        is_plain = batch.is_cpu and type(batch) is torch.Tensor and not batch.requires_grad
        if is_plain and len(batch):  # the native side takes at least one sample
            return self._stack(batch, None, context)
        if batch.is_cpu and len(batch) and not batch.is_floating_point():
            self._stack(batch.as_subclass(torch.Tensor), None, context)  # raises what doesn't fit
        return scaled(batch, self.scale, self.dtype or batch.dtype, context.name)


class Keep(Field):
    """Returns the samples' values as a list, unchanged: names, metadata, arrays of different shapes.

    Values from an `ArrayDataset` are views.

    Example:
        >>> pinfeed.Collate({"id": pinfeed.Keep()})([{"id": "a"}, {"id": None}])
        {'id': ['a', None]}
    """

    @override
    def collate(self, samples: Sequence[Any], context: FieldContext) -> list[Any]:
        return list(samples)


def _is_image(sample: Any) -> bool:
    """Whether a sample has the shape and dtype of an image."""
    is_bytes = str(getattr(sample, "dtype", "")).endswith("uint8")
    return is_bytes and sample.ndim == 3 and sample.shape[2] in (1, 3, 4)


def _as_arrays(samples: Sequence[Any], context: FieldContext) -> list[Any]:
    """Converts lists of numbers to arrays."""
    arrays = []
    for position, sample in enumerate(samples):
        if other := _other_than_numbers(sample):
            expected = "numbers, and lists of them"
            raise TypeError(Problem(context.name, expected, other.__name__, sample=position))
        try:
            arrays.append(np.asarray(sample))
        except ValueError as error:  # lists of different lengths in it
            hint = "Pad() pads lists of different lengths"
            problem = Problem(context.name, str(error).rstrip("."), hint=hint, sample=position)
            raise ValueError(problem) from error
    return arrays


def _other_than_numbers(sample: Any) -> type | None:
    """Returns the first type in nested lists that NumPy would accept but strip of its meaning."""
    if type(sample) in (list, tuple):
        kinds = {*map(type, sample)} - _PLAIN
        parts = (_other_than_numbers(part) for part in sample) if kinds else ()
        return next(filter(None, parts), None)
    is_number = type(sample) in _PLAIN or isinstance(sample, int | float)
    return None if is_number else type(sample)


def _is_its_values(value: Any, is_part: bool) -> bool:
    """Whether a tensor of the values loses nothing; `_carries` checks tensor subclasses."""
    if isinstance(value, torch.Tensor):
        is_sparse = value.layout != torch.strided or value.is_nested or value.is_quantized
        return not is_sparse and not (is_part and _attributes(value))
    if type(value) in _PLAIN:
        return True
    if isinstance(value, int | float):
        return isinstance(value, Enum) or not _attributes(value)
    return is_part and isinstance(value, str | bytes)


def _carries(batch: Any, sample: Any) -> bool:
    """Whether a batch has the attributes of a sample that is a tensor subclass.

    Values of tensor attributes may differ, because such a class stacks them; all others must be equal.
    """
    if type(sample) in _PLAIN or not isinstance(sample, torch.Tensor):
        return True
    attributes = _attributes(batch)
    return all(
        key in attributes
        and (isinstance(value, torch.Tensor) or _are_equal(value, attributes[key]))
        for key, value in _attributes(sample).items()
    )


def _attributes(sample: Any) -> dict[str, Any]:
    return getattr(sample, "__dict__", {})


def _are_equal(value: Any, other: Any) -> bool:
    try:
        return bool(value is other or value == other)
    except (RuntimeError, TypeError, ValueError):  # arrays
        return False
