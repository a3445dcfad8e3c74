"""Checks of arguments: integers of Python, NumPy or torch (but no bools), dtypes by name, states."""

from __future__ import annotations

import array
import difflib
import functools
import inspect
import math
import operator
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import torch

#: What is an array, for isinstance: a union made for each call takes three times as long.
ARRAYS = (np.ndarray, torch.Tensor)
#: Those that are no more than their values.
PLAIN_ARRAYS = frozenset(
    (np.ndarray, np.memmap, np.matrix, np.recarray, torch.Tensor, torch.nn.Parameter)
)

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

DType = torch.dtype | npt.DTypeLike
Interpolation = Literal["bilinear", "bicubic", "nearest", "nearest-exact"]


class Problem:
    """What is wrong with a sample or an argument: what errors of ours hold, as data.

    It is put into words when it is shown, ``"SUBJECT of sample 3: expected EXPECTED, got GOT; HINT"``,
    so whoever catches the error on its way adds what it knows to the attributes.

    Attributes:
        subject: What it is about: ``"normalize: images"``, ``"Collate: entry ['image']"``; or only who
            says it, ``"Collate"``, where it is about samples as a whole.
        expected: What was expected; where nothing was got, the whole statement.
        got: What came instead.
        hint: The way out.
        sample: The position in the batch of the sample that it is about, or None.
        part: Which part of that sample, or None.
        index: The sample's index in the dataset, or None.
    """

    def __init__(
        self, subject: str, expected: str, got: str = "", hint: str = "", sample: int | None = None
    ) -> None:
        self.subject = subject
        self.expected = expected
        self.got = got
        self.hint = hint
        self.sample = sample
        self.part: int | None = None
        self.index: int | None = None

    @classmethod
    def of(cls, error: Exception) -> Problem | None:
        """The problem that an error of ours holds; None: the error is of a library or the user's."""
        only = error.args[0] if len(error.args) == 1 else None
        return only if isinstance(only, cls) else None

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
    """Adds a fix to an error of ours; to any other error a note."""
    problem = Problem.of(error)
    if problem is None:
        error.add_note(hint)
    else:
        problem.hint = f"{problem.hint}; {hint}" if problem.hint else hint


def sample_after(subject: str, sample: Any = "") -> str:
    """``" of sample 3"`` after ``"Collate: entry ['x']"``, ``": sample 3"`` after ``"Collate"``."""
    return f"{' of' if ': ' in subject else ':'} sample {sample}".rstrip()


def way_to_values(sample: Any) -> str:
    """The hint for something that is no array, but may have one."""
    for name, way in (
        ("toarray", ".toarray() makes an array of it"),
        ("todense", ".todense() makes an array of it"),
        ("codes", ".codes has its codes"),
        ("to_numpy", ".to_numpy() has its values alone"),
        ("__array__", "np.asarray(...) has its values alone"),
    ):
        if hasattr(type(sample), name) and not isinstance(sample, str | bytes):
            return way
    if isinstance(sample, array.array):
        return "np.asarray(...) has its values"
    return "" if sample is None else "Keep() leaves samples as they are"


def nearest(given: Any, names: Iterable[Any]) -> str:
    """``"did you mean 'image'?"``: the name that is most like the one given; empty if none is."""
    known = [name for name in names if isinstance(name, str)]
    found = difflib.get_close_matches(str(given), known, n=1)
    return f"did you mean {found[0]!r}?" if found else ""


def instead(
    otherwise: str = "", **ways: str
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """A decorator: calls whose arguments don't fit the function say what to write instead.

    Args:
        otherwise: The way out where no other is known.
        ways: The way out for the name of an argument that the function doesn't have, or was not given.
    """

    def decorated(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(function)
        def call(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
            try:
                return function(*arguments, **options)
            except TypeError as error:
                # Of a function that has not begun. In a variable it would keep this frame alive.
                if error.__traceback__ is None or error.__traceback__.tb_next is None:
                    error.args = (_misfit(function, arguments, options, otherwise, ways),)
                raise

        return call

    return decorated


def _misfit(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    otherwise: str,
    ways: Mapping[str, str],
) -> Problem:
    """What a function was called with that it doesn't take, and what to write instead."""
    signature = inspect.signature(function)
    parameters = signature.parameters
    name = function.__name__
    if name == "__init__":
        name = type(arguments[0]).__name__  # which may be derived from the class that has it
    for option in options:
        if option not in parameters:
            hint = ways.get(option) or nearest(option, parameters) or otherwise
            return Problem(name, f"there is no argument {option!r}", hint=hint)
    kinds = [(key, p.kind.name) for key, p in parameters.items()]
    extra = arguments[sum(kind.startswith("POSITIONAL") for _, kind in kinds) :]
    missing = [key for key, kind in kinds if kind == "KEYWORD_ONLY" and key not in options]
    if extra and "size" in parameters and None not in map(as_integer, arguments[1:]):
        return two_sizes(name, *arguments[1:3])
    if extra and missing and not otherwise:
        value = reprlib.repr(extra[0])
        return Problem(name, "a keyword before this argument", value, f"write {missing[0]}={value}")
    if extra:
        own = int(function.__name__ == "__init__")  # self
        most = len(arguments) - len(extra) - own
        expected = f"at most {most} argument{'s' * (most != 1)} without a name"
        return Problem(name, expected, str(len(arguments) - own), otherwise)
    text = ""
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        text = str(error)  # such as "missing a required argument: 'dataset'"
    absent = next((key for key in [*parameters][len(arguments) :] if key not in options), "")
    return Problem(name, text, hint=ways.get(absent, ""))


def two_sizes(name: str, height: Any, width: Any) -> Problem:
    """What to say of a height and a width that are two arguments."""
    got = f"{height!r} and {width!r}"
    return Problem(
        name, "a height and a width in one pair", got, f"write {name}(({height}, {width}))"
    )


def as_integer(value: Any) -> int | None:
    """The value as an int, None if it is no integer."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def known_length(sized: Any) -> int | None:
    """``len(sized)``, or None if it has no length or does not know it."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def checked_integer(value: Any, name: str, least: int, most: int | None = None) -> int:
    """The value as an int of at least ``least``, and at most ``most`` if that is given."""
    number = as_integer(value)
    if number is None:
        raise TypeError(f"{name} must be an integer, got {_shown(value)}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, got {number}")
    return number


def _shown(value: Any) -> str:
    """A value as messages show it: arrays by their shapes."""
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__} of shape {tuple(shape)}" if shape else repr(value)


def positive_integer(value: Any, name: str) -> int | None:
    """The value as an int of at least 1 and at most 64 bits, None for None."""
    return None if value is None else checked_integer(value, name, 1, 2**63 - 1)


def checked_multiples(multiple_of: Any, axes: int, name: str, hint: str = "") -> tuple[int, ...]:
    """What sizes along a number of axes are rounded up to: one for all, or one for each; 1 for None."""
    several = isinstance(multiple_of, tuple | list)
    if several and len(multiple_of) != axes:
        raise ValueError(
            f"{name} must be an integer or have one for each of the {axes} axes, got {multiple_of!r}{hint}"
        )
    numbers = multiple_of if several else [multiple_of] * axes
    return tuple(positive_integer(number, name) or 1 for number in numbers)


def rounded_up(size: Any, multiple: int) -> Any:
    """The size, or the array of sizes, rounded up to a multiple."""
    return size if multiple == 1 else -(-size // multiple) * multiple


def checked_number(
    value: Any, name: str, least: float = -math.inf, most: float = math.inf
) -> float:
    """The value as a float from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name} must be a number, got {_shown(value)}")
    if not least <= value <= most:
        is_bounded = math.isfinite(least) or math.isfinite(most)
        expected = f"from {least} to {most}" if is_bounded else "a number"
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return float(value)


def checked_range(given: Any, name: str, most: float = math.inf) -> tuple[float, float]:
    """The pair (from, to) of positive numbers; of numbers from 0 to ``most``, if that is given."""
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise TypeError(f"{name} must be a pair (from, to) of numbers, got {given!r}")
    low, high = (checked_number(number, name) for number in given)
    if most == math.inf:
        fits, expected = 0 < low <= high < most, "positive numbers"
    else:
        fits, expected = 0 <= low <= high <= most, f"numbers from 0 to {most:g}"
    if not fits:
        raise ValueError(
            f"{name} must be a pair (from, to) of {expected}, the smaller first, got {given!r}"
        )
    return low, high


def checked_interpolation(
    interpolation: Any, resize_dtype: Any, dtype: str, function: str
) -> tuple[Interpolation, bool]:
    """How images that become a dtype are interpolated, and whether bytes are without being rounded."""
    require_choice(interpolation, get_args(Interpolation), f"{function}: interpolation")
    if resize_dtype is None:
        return interpolation, False
    if resize_dtype not in (torch.float32, np.float32):
        raise TypeError(
            f"{function}: resize_dtype must be torch.float32 or None, got {resize_dtype!r}"
        )
    if "int" in dtype:
        raise ValueError(
            f"{function}: resize_dtype=torch.float32 is for images that become floats, "
            f"got dtype=torch.{dtype}; leave one of them out"
        )
    return interpolation, True


def require_instance(value: Any, kind: type, expected: str) -> None:
    """Raises TypeError unless the value is of this class; the text says what must be of which kind."""
    if isinstance(value, type) and issubclass(value, kind):
        raise TypeError(
            f"{expected}, got a class; create it with parentheses: {value.__name__}(...)"
        )
    if not isinstance(value, kind):
        module = type(value).__module__.removeprefix("builtins")
        raise TypeError(f"{expected}, got {module + '.' * bool(module)}{type(value).__qualname__}")


def require_choice(value: Any, choices: Sequence[Any], name: str) -> None:
    """Raises ValueError unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {tuple(choices)}, got {value!r}")


def require_flags(function: str, **flags: Any) -> None:
    """Raises TypeError unless all of these arguments are True or False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{function}: {name} must be True or False, got {flag!r}")


def states_within(state: Any, needed: set[str], name: str) -> Iterator[dict[str, Any]]:
    """The states that have the ``needed`` keys, in the states of torchdata's loaders, or in a list of any.

    Raises ValueError if a loader has yielded more batches than its state tells of.
    """
    if isinstance(state, list | tuple):
        for one in state:
            yield from states_within(one, needed, name)
    elif isinstance(state, dict) and needed <= {*state}:
        yield state
    elif isinstance(state, dict) and "stream" not in state:  # a PackedStream's counts batches
        if state.get("_steps_since_snapshot"):
            raise ValueError(
                f"{name}: state must be that of the last batch, got one of a StatefulDataLoader that has "
                f"yielded {state['_steps_since_snapshot']} more; save with snapshot_every_n_steps=1"
            )
        for one in state.values():
            yield from states_within(one, needed, name)


def workers_of(state: Any) -> int | None:
    """The number of workers of the torchdata loader that made a state; None if no such loader did."""
    if not isinstance(state, dict):
        return None
    snapshot: Any = state.get("_snapshot") or {}
    main = snapshot.get("_main_snapshot") or {}
    return 0 if "_num_yielded" in state else main.get("_num_workers")


def is_finished(state: Any) -> bool:
    """Whether a torchdata loader's state, or each of a list of them, says that the loop has ended."""
    states = state if isinstance(state, list | tuple) else [state]
    return all(isinstance(one, dict) and one.get("_iterator_finished") for one in states)


def require_state(
    state: Any, needed: Iterable[str], identity: Mapping[str, Any], name: str, kind: str
) -> None:
    """Raises unless this is what ``state_dict`` returned where the same follows from it.

    It must have the ``needed`` keys, and the keys and values of the ``identity``. Messages say whose
    ``name`` and of what ``kind`` it is: that of a ``"sampler"``, a ``"stream"``.
    """
    if not isinstance(state, dict):
        raise TypeError(f"{name}: state must be a dict, got {type(state).__name__}")
    if missing := [key for key in (*needed, *identity) if key not in state]:
        raise ValueError(
            f"{name}: state must be what state_dict() returned, but has no {', '.join(missing)}"
        )
    others = [
        f"{key} is {state[key]!r} there and {value!r} here"
        for key, value in identity.items()
        if state[key] != value
    ]
    if others:
        raise ValueError(
            f"{name}: the state is of another {kind}: {', '.join(others)}; make this one as that one "
            "was, or begin an epoch anew with set_epoch"
        )


def described(instance: Any, **more: Any) -> str:
    """How an object was made: the arguments that are not the default.

    Their values are in ``more``, or are attributes of the object.
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
    """``"float32"`` for ``torch.float32``, ``np.float32``, ``np.dtype("f4")`` or ``"float32"``."""
    if isinstance(dtype, torch.dtype):
        return torch_dtype_name(dtype)
    if dtype == "bfloat16":  # the one that NumPy doesn't know
        return "bfloat16"
    try:
        return np.dtype(dtype).name
    except TypeError as error:
        known = str(dtype).removeprefix("torch.")
        hint = f"; say {known!r}" if isinstance(dtype, str) and known != dtype else ""
        raise TypeError(
            f"{function}: {argument} must be a torch or NumPy dtype, got {dtype!r}{hint}"
        ) from error


def torch_dtype(dtype: Any, function: str, argument: str = "dtype") -> torch.dtype:
    """The torch.dtype of that name."""
    if isinstance(dtype, torch.dtype):
        return dtype
    found = getattr(torch, dtype_name(dtype, function, argument), None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"{function}: {argument} must be one that torch has, got {dtype!r}")
    return found


@functools.cache
@functools.cache
def torch_dtype_name(dtype: torch.dtype) -> str:
    """``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")
