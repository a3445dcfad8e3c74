"""What padding returns: a NamedTuple of what was asked for."""

from __future__ import annotations

from typing import Any, NamedTuple


class Padded:
    """Padded samples, and what says where the data is: ``values, lengths, mask``.

    A NamedTuple that has no field for what was not asked for, so that ``tokens, lengths = batch``
    and ``for tokens, lengths in loader`` work.

    Attributes:
        values: (B, L, ...) tensor or ndarray, every sample in one box of the largest size.
        lengths: int64 of shape (B,), or (B, n) for n axes: how much of each sample is data.
        mask: bool of shape (B, L) or one axis for each that varies, True where data is.

    Example:
        >>> padded = pinfeed.Padded(np.zeros((1, 2)), np.array([2]))
        >>> values, lengths = padded
        >>> padded.lengths
        array([2])
    """

    __slots__ = ()

    # Their types are those of the input: NDArray or Tensor.
    values: Any
    lengths: Any
    mask: Any

    def __new__(cls, values: Any, lengths: Any = None, mask: Any = None) -> Any:
        """A Padded of those that are not None."""
        parts = {"values": values, "lengths": lengths, "mask": mask}
        return _TYPES[lengths is not None, mask is not None](
            **{name: part for name, part in parts.items() if part is not None}
        )


# torch knows a NamedTuple by its fields and makes a new one of as many values as the old one had,
# so each choice of fields is a type of its own.


class _Values(NamedTuple):
    values: Any


class _Lengths(NamedTuple):
    values: Any
    lengths: Any


class _Mask(NamedTuple):
    values: Any
    mask: Any


class _All(NamedTuple):
    values: Any
    lengths: Any
    mask: Any


class PaddedValues(_Values, Padded):
    """`Padded` without lengths and mask."""

    __slots__ = ()
    __new__ = _Values.__new__  # type: ignore[assignment]


class PaddedWithLengths(_Lengths, Padded):
    """`Padded` without a mask."""

    __slots__ = ()
    __new__ = _Lengths.__new__  # type: ignore[assignment]


class PaddedWithMask(_Mask, Padded):
    """`Padded` without lengths."""

    __slots__ = ()
    __new__ = _Mask.__new__  # type: ignore[assignment]


class PaddedWithAll(_All, Padded):
    """`Padded` with lengths and mask."""

    __slots__ = ()
    __new__ = _All.__new__  # type: ignore[assignment]


_TYPES: dict[tuple[bool, bool], type[Any]] = {
    (False, False): PaddedValues,
    (True, False): PaddedWithLengths,
    (False, True): PaddedWithMask,
    (True, True): PaddedWithAll,
}
