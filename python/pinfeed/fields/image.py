"""Leaves that are images."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.arguments import positive_integer, torch_dtype_name
from pinfeed.fields.field import Field, Request, check_request, padded_leaf, pin_of
from pinfeed.functions.normalization import DEFAULT_SCALE, Normalization, PerChannel
from pinfeed.memory.outputs import batch_allocator
from pinfeed.runtime import get_num_threads
from pinfeed.sources.source import Source

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)

# PIL modes whose pixels are bytes of colour. Not "P": its bytes are numbers of palette entries.
_PIL_MODES = ("L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")


class Image(Field):
    """uint8 images: converted, normalized, permuted, padded and stacked in one native pass.

    Every value becomes ``(x * scale - mean) / std``; see `pinfeed.normalize` for the exact
    arithmetic. With ``pad_value`` the images of a batch may differ in size.

    Args:
        mean: Number or one per channel, in units of ``x * scale``. None is 0.
        std: The same. None is 1.
        scale: Factor applied first; 1/255 maps bytes to 0..1.
        input: How samples lie in memory: ``"HWC"``, ``"CHW"`` or ``"HW"`` (grey). Samples are
            ndarrays, tensors or PIL images; any strides, so crops and mirrored views cost nothing.
        output: ``"CHW"`` or ``"HWC"``: the batch is (B, C, H, W) or (B, H, W, C).
        dtype: ``torch.float32``, ``float16``, ``bfloat16``, or ``uint8``, which only permutes and
            takes no mean, std or scale.
        channels_last: With ``output="CHW"``, lay the batch out in torch.channels_last memory.
        pad_value: What stands below and to the right of images smaller than the batch's largest
            height and width: a number in units of the batch, after normalization, that ``dtype``
            can hold. None: all images must have one size.
        multiple_of: Round the batch's height and width up to a multiple of this, or of a pair
            (height, width).
        sizes: Each image's height and width, int64 (B, 2), as the ``lengths`` of a `Padded`, or as
            a leaf of its own under this key of the dict that the leaf is in.
        mask: The same for bool (B, H, W), True where an image is: the ``mask`` of a `Padded`, or a
            key.

    Raises:
        TypeError, ValueError: An argument does not fit; samples that don't fit raise when they are
            collated, with the number of the sample.

    Example:
        >>> image = pinfeed.Image(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
        >>> pinfeed.Collate(image)([np.zeros((8, 6, 3), np.uint8)]).shape
        torch.Size([1, 3, 8, 6])

        Images of different sizes:

        >>> photos = [np.zeros((8, 6, 3), np.uint8), np.zeros((5, 9, 3), np.uint8)]
        >>> image = pinfeed.Image(pad_value=0, multiple_of=16, sizes=True)
        >>> batch, sizes = pinfeed.Collate(image)(photos)
        >>> batch.shape, sizes.tolist()
        (torch.Size([2, 3, 16, 16]), [[8, 6], [5, 9]])
    """

    def __init__(
        self,
        mean: PerChannel = None,
        std: PerChannel = None,
        *,
        scale: float = DEFAULT_SCALE,
        input: Literal["HWC", "CHW", "HW"] = "HWC",
        output: Literal["CHW", "HWC"] = "CHW",
        dtype: torch.dtype = torch.float32,
        channels_last: bool = False,
        pad_value: float | None = None,
        multiple_of: int | tuple[int, int] | None = None,
        sizes: Request = False,
        mask: Request = False,
    ) -> None:
        if input not in ("HWC", "CHW", "HW"):
            raise ValueError(f"Image: input must be 'HWC', 'CHW' or 'HW', got {input!r}")
        if output not in ("CHW", "HWC"):
            raise ValueError(f"Image: output must be 'CHW' or 'HWC', got {output!r}")
        if dtype not in _DTYPES:
            raise TypeError(f"Image: dtype must be one of {_DTYPES}, got {dtype!r}")
        if channels_last and output != "CHW":
            raise ValueError(
                "Image: channels_last is a memory layout of output='CHW'; "
                f"got output={output!r}, which has its channels last already"
            )
        if dtype == torch.uint8 and not (
            mean is None and std is None and scale in (1, DEFAULT_SCALE)
        ):
            raise ValueError(
                "Image: dtype=torch.uint8 only permutes; leave out mean, std and scale, "
                "or ask for a floating dtype"
            )
        if pad_value is None and not (multiple_of is None and sizes is mask is False):
            raise ValueError(
                "Image: multiple_of, sizes and mask are about padding; give pad_value, "
                "or leave them out"
            )
        if isinstance(pad_value, np.generic | torch.Tensor) and pad_value.ndim == 0:
            pad_value = pad_value.item()
        if pad_value is not None:
            _core.check_value(pad_value, torch_dtype_name(dtype), "Image", "pad_value")
        if isinstance(sizes, str) and sizes == mask:
            raise ValueError(f"Image: sizes and mask must have different keys, got {sizes!r}")
        self.mean = mean
        self.std = std
        self.scale = scale
        self.input = input
        self.output = output
        self.dtype = dtype
        self.channels_last = channels_last
        self.pad_value = pad_value
        self.multiple_of = multiple_of
        self.sizes = check_request(sizes, "Image: sizes")
        self.mask = check_request(mask, "Image: mask")
        self._constants = Normalization(mean, std, scale, "Image")
        self._multiples = _multiples(multiple_of)

    def collate(self, samples: Sequence[Any], name: str) -> Any:
        """See `Field.collate`: shape (B, C, H, W) or (B, H, W, C)."""
        return self._batch([_as_array(s, name, i) for i, s in enumerate(samples)], None, name)

    def gather(self, source: Source, indices: npt.NDArray[np.int64], name: str) -> Any:
        """See `Field.gather`: shape (B, C, H, W) or (B, H, W, C)."""
        if source.is_ragged:
            return super().gather(source, indices, name)
        selection = source.select(indices)
        return self._batch(selection.rows, selection.indices, name)

    def names(self) -> tuple[str, ...]:
        """See `Field.names`."""
        return tuple(key for key in (self.sizes, self.mask) if isinstance(key, str))

    def _batch(self, images: Any, indices: Any, name: str) -> Any:
        task = (
            images,
            indices,
            self._constants.scale,
            self._constants.bias,
            self.input,
            "HWC" if self.channels_last else self.output,
            torch_dtype_name(self.dtype),
        )
        if self.pad_value is None:
            batch = _core.normalize_images(
                *task, batch_allocator(pin_of(name)), True, name, name, get_num_threads()
            )
            return self._axes_in_order(batch)
        batch, sizes, mask = _core.pad_images(
            *task,
            self.pad_value,
            self._multiples,
            self.sizes is not False,
            self.mask is not False,
            batch_allocator(pin_of(name)),
            name,
            get_num_threads(),
        )
        return padded_leaf(self._axes_in_order(batch), sizes, self.sizes, mask, self.mask)

    def _axes_in_order(self, batch: torch.Tensor) -> torch.Tensor:
        return batch.permute(0, 3, 1, 2) if self.channels_last else batch

    def __repr__(self) -> str:
        padding = (
            f", pad_value={self.pad_value!r}, multiple_of={self.multiple_of!r}, "
            f"sizes={self.sizes!r}, mask={self.mask!r}"
        )
        return (
            f"Image({self.mean!r}, {self.std!r}, scale={self.scale!r}, input={self.input!r}, "
            f"output={self.output!r}, dtype={self.dtype}, channels_last={self.channels_last}"
            f"{'' if self.pad_value is None else padding})"
        )


def _multiples(multiple_of: Any) -> tuple[int, int]:
    """Of height and width."""
    pair = multiple_of if isinstance(multiple_of, tuple | list) else (multiple_of, multiple_of)
    if len(pair) != 2:
        raise ValueError(
            f"Image: multiple_of must be an integer or a pair of them, got {multiple_of!r}"
        )
    height, width = (positive_integer(number, "Image: multiple_of") for number in pair)
    return height or 1, width or 1


def _as_array(sample: Any, name: str, position: int) -> Any:
    if isinstance(sample, np.ndarray | torch.Tensor):
        return sample
    pil = sys.modules.get("PIL.Image")  # nobody has a PIL image without having imported it
    if pil is None or not isinstance(sample, pil.Image):
        return sample  # the native side says what it is and what was expected
    if sample.mode not in _PIL_MODES:
        raise TypeError(
            f"{name} of sample {position}: expected a PIL image of one of the modes {_PIL_MODES}, "
            f"got {sample.mode!r}; convert it with .convert('RGB')"
        )
    return np.asarray(sample)
