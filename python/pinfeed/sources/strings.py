"""Strings encoded as concatenated bytes, for a `RaggedArray`."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pinfeed.arguments import Problem, check_plain
from pinfeed.sources.source import StringType

_CHUNK = 1 << 16  # strings encoded at a time


class EncodedStrings(NamedTuple):
    """The arguments of a `RaggedArray` of strings."""

    values: npt.NDArray[np.uint8]  # uint8 of shape (N,): the bytes of all strings
    offsets: npt.NDArray[Any]  # begin of each string in ``values``, and end of the last
    string_type: StringType  # ``str`` (UTF-8) or ``bytes``


def encode(strings: Iterable[str] | Iterable[bytes], name: str) -> EncodedStrings:
    """Copies strings, all str or all bytes, into one array of bytes.

    Messages name a string by ``name``, such as ``"Pad: sample"``, and its number.
    """
    is_bytes = isinstance(strings, np.ndarray) and strings.dtype.kind == "S"
    kind: StringType | None = bytes if is_bytes else None
    # The array owns its memory, so that it can move to shared memory for workers.
    values, end, lengths = np.empty(0, np.uint8), 0, array("q", [0])
    for chunk in _chunks(strings, name):
        first = len(lengths) - 1
        kind = kind or (bytes if isinstance(chunk[0], bytes) else str)
        _check_types(chunk, kind, first, name)
        parts = chunk if kind is bytes else _as_utf8(chunk, first, name)
        joined = np.frombuffer(b"".join(parts), np.uint8)
        begin, end = end, end + len(joined)
        if end > len(values):  # nothing else views it
            values.resize(max(end, len(values) + len(values) // 4), refcheck=False)
        values[begin:end] = joined
        lengths.extend(map(len, parts))
    values.resize(end, refcheck=False)
    offsets = np.frombuffer(lengths, np.int64)
    return EncodedStrings(values, np.cumsum(offsets, out=offsets), kind or str)


def _chunks(strings: Any, name: str) -> Iterator[list[Any]]:
    """Yields the strings in lists of up to ``_CHUNK``."""
    if isinstance(strings, np.ndarray):
        check_plain(strings, name)
        if strings.ndim != 1:
            raise ValueError(f"{name}s must have shape (N,), got {strings.shape}")
        for start in range(0, len(strings), _CHUNK):
            yield strings[start : start + _CHUNK].tolist()
        return
    try:
        iterator = None if isinstance(strings, str | bytes) else iter(strings)
    except TypeError:
        iterator = None
    if iterator is None:
        raise TypeError(
            f"{name}s must be an iterable of str or of bytes, got one {type(strings).__name__}"
        )
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk


def _check_types(chunk: list[Any], expected: StringType, first: int, name: str) -> None:
    if all(issubclass(kind, expected) for kind in {*map(type, chunk)}):
        return
    number = next(i for i, item in enumerate(chunk) if not isinstance(item, expected))
    item, number = chunk[number], first + number
    expected_text = f"{expected.__name__} like the first" if number else "str or bytes"
    hint = ""
    is_number = isinstance(item, int | float | np.number)
    if is_number and not np.isnan(item):
        hint = "numbers go into an array, np.array(numbers)"
    elif item is None or is_number or type(item).__name__ == "NAType":  # missing values of pandas
        hint = "leave it out, or put a string in its place"
    elif isinstance(item, list) and all(isinstance(part, str) for part in item):
        hint = "json.dumps(strings) converts a list to one string"
    elif hasattr(item, "as_py"):
        hint = "pass arrays of pyarrow to RaggedArray.from_arrow"
    elif isinstance(item, str | bytes):
        hint = "convert all to one type with encode() or decode()"
    raise TypeError(Problem(f"{name} {number}", expected_text, type(item).__name__, hint))


def _as_utf8(chunk: list[str], first: int, name: str) -> list[bytes]:
    encoded: list[bytes] = []
    try:
        encoded.extend(map(str.encode, chunk))
    except UnicodeEncodeError as error:
        subject, expected = f"{name} {first + len(encoded)}", "characters that UTF-8 can encode"
        got = f"the lone surrogate {error.object[error.start]!r} at position {error.start}"
        hint = "pass bytes: os.fsencode() of file names, else .encode(errors=...)"
        raise ValueError(Problem(subject, expected, got, hint)) from error
    return encoded
