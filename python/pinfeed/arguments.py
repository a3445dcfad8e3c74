"""Argument checks: integers (Python, NumPy or torch, but not bools), dtype names, states."""

from __future__ import annotations

import array
import difflib
import functools
import inspect
import math
import operator
import os
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core

#: Array types for isinstance; a tuple is three times faster than a union created per call.
ARRAYS = (np.ndarray, torch.Tensor)
#: Array types that consist of their values alone.
PLAIN_ARRAYS = frozenset(
    (np.ndarray, np.memmap, np.matrix, np.recarray, torch.Tensor, torch.nn.Parameter)
)

_TAKE_ANY_LENGTH = (
    "Pad() and Jagged() take samples of different sizes, Keep() leaves them as they are"
)

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

DType = torch.dtype | npt.DTypeLike
Interpolation = Literal["bilinear", "bicubic", "nearest", "nearest-exact"]


def host_array(array: Any) -> Any:
    """Returns an array or a tensor as an ndarray; None for a tensor that NumPy can't view."""
    if not isinstance(array, torch.Tensor):
        return np.asarray(array)
    try:
        if array.layout != torch.strided or array.is_quantized or array.is_nested:
            return None
        array = array.detach().resolve_conj().resolve_neg()
        return (array.float() if array.dtype is torch.bfloat16 else array).numpy()
    except (RuntimeError, TypeError):
        return None  # on a device, or fake or wrapped: it has no values here


class Problem:
    """Structured error message about a sample or an argument; pinfeed's errors hold it in ``args[0]``.

    It becomes text when shown, ``"SUBJECT of sample 3: expected EXPECTED, got GOT; HINT"``, so code
    that catches the error can add information to the attributes.

    Attributes:
        subject: Argument or entry, such as ``"normalize: images"`` or ``"Collate: entry ['image']"``;
            ``"Collate"`` for whole samples.
        expected: What was expected; the whole statement if ``got`` is empty.
        got: What was passed.
        hint: How to fix it.
        sample: Position of the sample in the batch, or None.
        part: Position in that sample, or None.
        index: Index of the sample in the dataset, or None.
        differs: Whether samples differ in length or shape, and the hint is the general one for this.
    """

    def __init__(
        self,
        subject: str,
        expected: str,
        got: str = "",
        hint: str = "",
        sample: int | None = None,
        differs: bool = False,
    ) -> None:
        self.subject = subject
        self.expected = expected
        self.got = got
        self.hint = _TAKE_ANY_LENGTH if differs else hint
        self.sample = sample
        self.differs = differs
        self.part: int | None = None
        self.index: int | None = None

    @classmethod
    def of(cls, error: Exception) -> Problem | None:
        """Returns the problem in a pinfeed error; None for errors of libraries or the user."""
        only = error.args[0] if len(error.args) == 1 else None
        return only if isinstance(only, cls) else None

    def explain_difference(self, hint: str) -> None:
        """Replaces the general hint for samples that differ in shape."""
        if self.differs:
            self.hint, self.differs = hint, False

    def __str__(self) -> str:
        sample = "" if self.sample is None else sample_after(self.subject, self.sample)
        part = "" if self.part is None else f"[{self.part}]"
        index = "" if self.index is None else f" of the batch (index {self.index})"
        subject = f"{self.subject}{sample}{part}{index}"
        wrong = f"expected {self.expected}, got {self.got}" if self.got else self.expected
        return f"{subject + ': ' if subject else ''}{wrong}{'; ' + self.hint if self.hint else ''}"

    def __repr__(self) -> str:
        return repr(str(self))


def add_hint(error: Exception, hint: str) -> None:
    """Adds a hint to a pinfeed error, and a note to any other error."""
    problem = Problem.of(error)
    if problem is None:
        error.add_note(hint)
    else:
        problem.hint = f"{problem.hint}; {hint}" if problem.hint else hint


def sample_after(subject: str, sample: Any = "") -> str:
    """Returns ``" of sample 3"`` for ``"Collate: entry ['x']"``, ``": sample 3"`` for ``"Collate"``."""
    return f"{' of' if ': ' in subject else ':'} sample {sample}".rstrip()


def conversion_hint(sample: Any, other: str = "Keep() leaves samples as they are") -> str:
    """Returns the hint for a sample that is not an array, but can be converted to one.

    ``other``: the hint for anything that can't be converted, except None.
    """
    if nulls := _null_count(sample):
        name = "fill_null" if hasattr(sample, "fill_null") else "fillna"
        return f"fill its {nulls} nulls with .{name}(value)"
    for name, hint in (
        ("toarray", ".toarray() converts it to an array"),
        ("todense", ".todense() converts it to an array"),
        ("codes", ".codes has its codes"),
        # pyarrow's to_numpy() raises for bools.
        ("to_pylist", "np.asarray(...) returns the values only"),
        ("to_numpy", ".to_numpy() returns the values only"),
        ("__array__", "np.asarray(...) returns the values only"),
    ):
        if hasattr(type(sample), name) and not isinstance(sample, str | bytes):
            return hint
    if isinstance(sample, array.array):
        return "np.asarray(...) returns its values"
    return "" if sample is None else other


def check_plain(value: Any, name: str) -> None:
    """Raises TypeError for an array, or a list of them, with a mask, unit or attributes that would be lost."""
    while type(value) in (list, tuple) and value:
        value, name = value[0], f"{name}[0]"
    if type(value) in PLAIN_ARRAYS or isinstance(value, int | float | str | bytes):
        return
    has_attributes = hasattr(value, "__array__") and {"units", "coords"} & {*dir(type(value))}
    if isinstance(value, ARRAYS):
        _core.check_plain_array(value, name)
    elif has_attributes or _null_count(value):
        hint = conversion_hint(value)
        expected = f"an array or a list {'of numbers' if has_attributes else 'without nulls'}"
        raise TypeError(Problem(name, expected, type(value).__name__, hint))


def _null_count(value: Any) -> int:
    """Returns the number of nulls in a column of pyarrow, Polars or pandas; 0 for other objects."""
    missing = getattr(getattr(value, "dtype", None), "na_value", None)
    if type(missing).__name__ == "NAType":  # pandas' nullable dtypes; np.asarray makes NaN of it
        return int(value.isna().sum())
    nulls = getattr(value, "null_count", 0) if hasattr(type(value), "fill_null") else 0
    nulls = nulls() if callable(nulls) else nulls
    return nulls if isinstance(nulls, int) else 0


def require_no_table(value: Any, name: str, what: str) -> None:
    """Raises TypeError for a table, whose iteration yields columns, and for what `check_plain` rejects."""
    if not isinstance(value, list | tuple):
        check_plain(value, name)
    is_table = type(value).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow")
    if is_table and hasattr(type(value), "columns"):
        column = "iterate ArrayDataset.from_arrow(table) for rows, or its [key] for a column"
        raise TypeError(Problem(name, f"an iterable of {what}", type(value).__name__, column))


def as_table(value: Any) -> str:
    """Returns the call that makes a table of an object ``x``, such as ``"x.to_table()"``; empty if none."""
    is_list = isinstance(value, list | tuple) and len(value) > 0
    one = value[0] if is_list else value
    package, kind = type(one).__module__.partition(".")[0], type(one).__name__
    if is_list:
        calls = {
            "pandas.DataFrame": "pandas.concat(x)",
            "polars.DataFrame": "polars.concat(x)",
            "pyarrow.Table": "pyarrow.concat_tables(x)",
            "pyarrow.RecordBatch": "pyarrow.Table.from_batches(x)",
            "datasets.Dataset": "datasets.concatenate_datasets(x)",
        }
        if package == "pyarrow" and hasattr(one, "null_count"):
            return "pyarrow.table(x, names)"
        is_path = isinstance(one, str | os.PathLike)
        other = "pyarrow.parquet.ParquetDataset(x).read()" if is_path else ""
        return calls.get(f"{package}.{kind}", other)
    if type(value) is dict:
        return "pyarrow.table(x)"
    if package not in ("pandas", "polars", "pyarrow"):
        return ""
    if package == "pyarrow" and hasattr(value, "null_count"):
        return "pyarrow.table({'x': x})"
    # A LazyFrame; a dataset, a reader, a file; a Series.
    for name in ("collect", "to_table", "read_all", "to_frame", "read"):
        if hasattr(value, name) and (name != "read" or hasattr(value, "schema")):
            return f"x.{name}()"
    return ""


def as_array(value: Any, name: str, dtype: Any = None, hint: str = "") -> npt.NDArray[Any]:
    """Returns ``np.asarray(value)``; raises ValueError, with a fix, for lists of different lengths."""
    try:
        return np.asarray(value, dtype)
    except ValueError as error:
        hint = hint or (
            "np.concatenate(list) joins lists of different lengths, and [len(x) for x in list] in "
            "another entry keeps their lengths"
        )
        raise ValueError(Problem(name, str(error).rstrip("."), hint=hint)) from error


def nearest(name: Any, names: Iterable[Any]) -> str:
    """Returns ``"did you mean 'image'?"`` with the closest name; empty if none is close."""
    strings = [other for other in names if isinstance(other, str)]
    matches = difflib.get_close_matches(str(name), strings, n=1)
    return f"did you mean {matches[0]!r}?" if matches else ""


def with_hints(
    default_hint: str = "", **hints: str
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Returns a decorator that adds hints to the TypeErrors of calls with wrong arguments.

    Args:
        default_hint: Hint if no other one fits.
        hints: Hints by argument name, for unknown and missing arguments.
    """

    def decorated(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(function)
        def call(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
            try:
                return function(*arguments, **options)
            except TypeError as error:
                # No next frame: the function hasn't begun. A variable would keep this frame alive.
                if error.__traceback__ is None or error.__traceback__.tb_next is None:
                    error.args = (
                        _signature_problem(function, arguments, options, default_hint, hints),
                    )
                raise

        return call

    return decorated


def _signature_problem(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    default_hint: str,
    hints: Mapping[str, str],
) -> Problem:
    """Returns the problem of a call whose arguments don't match the signature, with a hint."""
    signature = inspect.signature(function)
    parameters = signature.parameters
    name = function.__name__
    is_method = name == "__init__"
    if is_method:
        name = type(arguments[0]).__name__  # may be a subclass
    for option in options:
        if option not in parameters:
            hint = hints.get(option) or nearest(option, parameters) or default_hint
            return Problem(name, f"got an unknown argument {option!r}", hint=hint)
    kinds = [(key, p.kind.name) for key, p in parameters.items()]
    extra = arguments[sum(kind.startswith("POSITIONAL") for _, kind in kinds) :]
    missing = [key for key, kind in kinds if kind == "KEYWORD_ONLY" and key not in options]
    if extra and "size" in parameters and None not in map(as_integer, arguments[1:]):
        return two_sizes(name, *arguments[1:3])
    if extra and missing and not default_hint:
        value = reprlib.repr(extra[0])
        hint = f"write {missing[0]}={value}"
        if "max_length" in missing[1:]:
            hint += f", or max_length={value} for a maximum length"
        return Problem(name, "a keyword argument", value, hint)
    if extra:
        maximum = len(arguments) - len(extra) - is_method  # without self
        expected = f"at most {maximum} positional argument{'s' * (maximum != 1)}"
        return Problem(name, expected, str(len(arguments) - is_method), default_hint)
    text = ""
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        text = str(error)  # such as "missing a required argument: 'dataset'"
    absent = next((key for key in [*parameters][len(arguments) :] if key not in options), "")
    return Problem(name, text, hint=hints.get(absent, ""))


def two_sizes(name: str, height: Any, width: Any) -> Problem:
    """Returns the problem of height and width passed as two arguments."""
    got = f"{height!r} and {width!r}"
    return Problem(
        name, "a height and a width in one pair", got, f"write {name}(({height}, {width}))"
    )


def listed(value: Any) -> list[Any]:
    """Returns the items of a sequence, or anything else as the only item."""
    return [*value] if isinstance(value, Sequence) and not isinstance(value, str) else [value]


def as_integer(value: Any) -> int | None:
    """Returns the value as an int, None if it is not an integer."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def known_length(sized: Any) -> int | None:
    """Returns ``len(sized)``, or None if the length is unknown."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def checked_integer(value: Any, name: str, minimum: int, maximum: int | None = None) -> int:
    """Returns the value as an int; raises unless it is at least ``minimum`` and at most ``maximum``."""
    number = as_integer(value)
    if number is None:
        raise TypeError(f"{name} must be an integer, got {_shown(value)}")
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}")
    if maximum is not None and number > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {number}")
    return number


def _shown(value: Any) -> str:
    """Returns the value for messages; arrays are shown by their shape."""
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__} of shape {tuple(shape)}" if shape else repr(value)


def positive_integer(value: Any, name: str, maximum: int | None = 2**63 - 1) -> int | None:
    """Returns the value as a positive int, at most ``maximum``; None for None."""
    return None if value is None else checked_integer(value, name, 1, maximum)


def checked_multiples(multiple_of: Any, axes: int, name: str, hint: str = "") -> tuple[int, ...]:
    """Returns a multiple per axis, from one number for all axes, a tuple, or None for 1."""
    is_sequence = isinstance(multiple_of, tuple | list)
    if is_sequence and len(multiple_of) != axes:
        raise ValueError(
            f"{name} must be an integer, or one for each of the {axes} axes, got {multiple_of!r}{hint}"
        )
    numbers = multiple_of if is_sequence else [multiple_of] * axes
    return tuple(positive_integer(number, name) or 1 for number in numbers)


def rounded_up(size: Any, multiple: int) -> Any:
    """Returns a size or an array of sizes, rounded up to a multiple."""
    return size if multiple == 1 else -(-size // multiple) * multiple


def checked_number(
    value: Any, name: str, minimum: float = -math.inf, maximum: float = math.inf
) -> float:
    """Returns the value as a float; raises unless it is between ``minimum`` and ``maximum``."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name} must be a number, got {_shown(value)}")
    if not minimum <= value <= maximum:
        expected = f"from {minimum} to {maximum}" if math.isfinite(minimum) else "a number"
        if math.isfinite(minimum) and maximum == math.inf:
            expected = f"at least {minimum}"
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return float(value)


def checked_range(value: Any, name: str, maximum: float = math.inf) -> tuple[float, float]:
    """Returns a pair (min, max) of floats, each above 0 or, if ``maximum`` is finite, from 0 to ``maximum``."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise TypeError(f"{name} must be a pair (min, max) of numbers, got {value!r}")
    low, high = (checked_number(number, name) for number in value)
    if maximum == math.inf:
        fits, expected = 0 < low <= high < maximum, "positive numbers"
    else:
        fits, expected = 0 <= low <= high <= maximum, f"numbers from 0 to {maximum:g}"
    if not fits:
        raise ValueError(f"{name} must be a pair (min, max) of {expected}, got {value!r}")
    return low, high


def require_instance(value: Any, kind: type, expected: str) -> None:
    """Raises TypeError, with a message that begins with ``expected``, unless the type matches."""
    if isinstance(value, type) and issubclass(value, kind):
        raise TypeError(
            f"{expected}, got a class; create it with parentheses: {value.__name__}(...)"
        )
    if not isinstance(value, kind):
        module = type(value).__module__.removeprefix("builtins")
        raise TypeError(f"{expected}, got {module + '.' * bool(module)}{type(value).__qualname__}")


def checked_choice(value: Any, choices: Sequence[Any], name: str) -> Any:
    """Returns the value; raises ValueError unless it is one of the choices."""
    if value not in choices:
        text = f"{name} must be one of {tuple(choices)}, got {value!r}"
        plain = str(getattr(value, "value", value))  # of an enumeration, such as torchvision's
        same = [choice for choice in choices if str(choice).lower() == plain.lower()]
        raise ValueError(f"{text}; pass {same[0]!r}" if same else text)
    return value


def require_flags(function: str, **flags: Any) -> None:
    """Raises TypeError unless all of these arguments are True or False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{function}: {name} must be True or False, got {flag!r}")


def states_within(state: Any, needed: set[str], name: str) -> Iterator[dict[str, Any]]:
    """Yields the states with the ``needed`` keys, searching lists and torchdata's loader states.

    Raises ValueError if a loader has yielded batches since the snapshot in its state.
    """
    if isinstance(state, list | tuple):
        for inner in state:
            yield from states_within(inner, needed, name)
    elif isinstance(state, dict) and needed <= {*state}:
        yield state
    elif isinstance(state, dict) and "stream" not in state:  # a PackedStream counts its own batches
        if state.get("_steps_since_snapshot"):
            raise ValueError(
                f"{name}: state must belong to the last batch, got the state of a StatefulDataLoader that has "
                f"yielded {state['_steps_since_snapshot']} more; save with snapshot_every_n_steps=1"
            )
        for inner in state.values():
            yield from states_within(inner, needed, name)


def workers_of(state: Any) -> int | None:
    """Returns the number of workers in a torchdata loader's state; None for other states."""
    if not isinstance(state, dict):
        return None
    snapshot: Any = state.get("_snapshot") or {}
    main = snapshot.get("_main_snapshot") or {}
    return 0 if "_num_yielded" in state else main.get("_num_workers")


def is_finished(state: Any) -> bool:
    """Whether the loop has ended, according to a torchdata loader's state or every state of a list."""
    states = state if isinstance(state, list | tuple) else [state]
    return all(isinstance(inner, dict) and inner.get("_iterator_finished") for inner in states)


def require_state(
    state: Any, needed: Iterable[str], identity: Mapping[str, Any], name: str, kind: str
) -> None:
    """Raises unless a state fits this object.

    Args:
        state: Result of ``state_dict``.
        needed: Keys that it must have.
        identity: Keys and values that it must have.
        name: Name of the object in messages.
        kind: Kind of the object in messages, such as ``"sampler"``.
    """
    if not isinstance(state, dict):
        raise TypeError(f"{name}: state must be a dict, got {type(state).__name__}")
    if missing := [key for key in (*needed, *identity) if key not in state]:
        raise ValueError(
            f"{name}: state must be a result of state_dict(), got one without {', '.join(missing)}"
        )
    others = [
        f"{key} is {state[key]!r} in the state and {value!r} here"
        for key, value in identity.items()
        if state[key] != value
    ]
    if others:
        raise ValueError(
            f"{name}: the state is from another {kind}: {', '.join(others)}; create this one "
            "with the same settings, or restart an epoch with set_epoch"
        )


def described(instance: Any, **more: Any) -> str:
    """Returns the constructor call of an object, with the arguments that differ from the default.

    Values come from ``more`` or from attributes of the object.
    """
    values, texts = vars(instance) | more, []
    for name, argument in inspect.signature(type(instance)).parameters.items():
        value = values.get(name, argument.default)
        if repr(value) != repr(argument.default):
            is_needed = (
                argument.default is argument.empty and argument.kind is not argument.KEYWORD_ONLY
            )
            texts.append(repr(value) if is_needed else f"{name}={value!r}")
    return f"{type(instance).__name__}({', '.join(texts)})"


def dtype_name(dtype: Any, function: str, argument: str = "dtype") -> str:
    """Returns ``"float32"`` for ``torch.float32``, ``np.float32``, ``np.dtype("f4")``, ``"float32"``."""
    if isinstance(dtype, torch.dtype):
        return torch_dtype_name(dtype)
    if dtype == "bfloat16":  # NumPy has no bfloat16
        return "bfloat16"
    try:
        return np.dtype(dtype).name
    except TypeError as error:
        name = str(dtype).removeprefix("torch.")
        hint = f"; use {name!r}" if isinstance(dtype, str) and name != dtype else ""
        raise TypeError(
            f"{function}: {argument} must be a torch or NumPy dtype, got {dtype!r}{hint}"
        ) from error


def torch_dtype(dtype: Any, function: str, argument: str = "dtype") -> torch.dtype:
    """Returns the torch.dtype of a dtype or name."""
    if isinstance(dtype, torch.dtype):
        return dtype
    result = getattr(torch, dtype_name(dtype, function, argument), None)
    if not isinstance(result, torch.dtype):
        raise TypeError(f"{function}: {argument} must be a dtype that torch has, got {dtype!r}")
    return result


@functools.cache
def torch_dtype_name(dtype: torch.dtype) -> str:
    """Returns ``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")
