"""What padding returns: a NamedTuple of what was asked for."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from pinfeed.functions.padding import Axes, Side, unpadded


class Padded:
    """Padded samples, and what says where the data is: ``values, lengths, mask``.

    A NamedTuple with fields only for what was asked for, so that ``tokens, lengths = batch``
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

    #: The axes of a sample that lengths and mask are about; None: the first ones.
    axes: ClassVar[tuple[int, ...] | None] = None

    #: Where the padding is, as far as who made this said so.
    side: ClassVar[Side] = "right"

    # Their types are those of the input: NDArray or Tensor.
    values: Any
    lengths: Any
    mask: Any

    def __new__(cls, values: Any, lengths: Any = None, mask: Any = None) -> Any:
        """A Padded of those that are not None."""
        if mask is None:
            return PaddedValues(values) if lengths is None else PaddedWithLengths(values, lengths)
        if lengths is None:
            return PaddedWithMask(values, mask)
        return PaddedWithAll(values, lengths, mask)

    def unbind(
        self, *, side: Side | None = None, axes: Axes = None, time_major: bool = False
    ) -> list[Any]:
        """The data of each sample, as views; `pinfeed.unpad` says what the keywords mean.

        Raises:
            TypeError: There are no lengths.
            ValueError: They don't fit to the values.

        Example:
            >>> pinfeed.pad([[5, 6, 7], [8]]).unbind()
            [tensor([5, 6, 7]), tensor([8])]
        """
        lengths = getattr(self, "lengths", None)
        if lengths is None:
            raise TypeError("unbind: expected a Padded with lengths; pad with lengths=True")
        side = self.side if side is None else side
        axes = self.axes if axes is None else axes
        return unpadded(self.values, lengths, side, axes, time_major, "unbind")


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


class PaddedImages(PaddedWithLengths):
    """A batch (B, C, H, W) of `Image` with sizes."""

    __slots__ = ()
    axes = (1, 2)


class PaddedImagesWithMask(PaddedWithAll):
    """A batch (B, C, H, W) of `Image` with sizes and mask."""

    __slots__ = ()
    axes = (1, 2)


class LeftPadded(PaddedWithLengths):
    """`Padded` on the left."""

    __slots__ = ()
    side = "left"


class LeftPaddedWithMask(PaddedWithAll):
    """`Padded` on the left, with a mask."""

    __slots__ = ()
    side = "left"


def padded_batch(values: Any, lengths: Any, mask: Any, is_chw: bool, side: Side) -> Any:
    """A `Padded`, which knows its side, and where height and width are in images (B, C, H, W)."""
    if lengths is None or not (is_chw or side == "left"):
        return Padded(values, lengths, mask)
    if mask is None:
        return (PaddedImages if is_chw else LeftPadded)(values, lengths)
    return (PaddedImagesWithMask if is_chw else LeftPaddedWithMask)(values, lengths, mask)
