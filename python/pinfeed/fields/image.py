"""Leaves that are images."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from pinfeed import _core
from pinfeed.dtypes import torch_dtype_name
from pinfeed.fields.field import Field
from pinfeed.normalization import DEFAULT_SCALE, Normalization, PerChannel
from pinfeed.outputs import batch_allocator
from pinfeed.runtime import get_num_threads
from pinfeed.sources import Source

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)

# PIL modes whose pixels are bytes of colour. Not "P": its bytes are numbers of palette entries.
_PIL_MODES = ("L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")


class Image(Field):
    """uint8 images of one size: converted, normalized, permuted and stacked in one native pass.

    Every value becomes ``(x * scale - mean) / std``; see `pinfeed.normalize` for the exact
    arithmetic.

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

    Raises:
        TypeError, ValueError: An argument does not fit; samples that don't fit raise when they are
            collated, with the number of the sample.

    Example:
        >>> image = pinfeed.Image(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
        >>> pinfeed.Collate(image)([np.zeros((8, 6, 3), np.uint8)]).shape
        torch.Size([1, 3, 8, 6])
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
        self.mean = mean
        self.std = std
        self.scale = scale
        self.input = input
        self.output = output
        self.dtype = dtype
        self.channels_last = channels_last
        self._constants = Normalization(mean, std, scale, "Image")

    def collate(self, samples: Sequence[Any], name: str) -> torch.Tensor:
        """See `Field.collate`: shape (B, C, H, W) or (B, H, W, C)."""
        return self._normalize([_as_array(s, name, i) for i, s in enumerate(samples)], None, name)

    def gather(self, source: Source, indices: npt.NDArray[np.int64], name: str) -> torch.Tensor:
        """See `Field.gather`: shape (B, C, H, W) or (B, H, W, C)."""
        return self._normalize(source.array, indices, name)

    def _normalize(self, images: Any, indices: Any, name: str) -> torch.Tensor:
        batch: torch.Tensor = _core.normalize_images(
            images,
            indices,
            self._constants.scale,
            self._constants.bias,
            self.input,
            "HWC" if self.channels_last else self.output,
            torch_dtype_name(self.dtype),
            batch_allocator(),
            True,
            name,
            name,
            get_num_threads(),
        )
        return batch.permute(0, 3, 1, 2) if self.channels_last else batch

    def __repr__(self) -> str:
        return (
            f"Image({self.mean!r}, {self.std!r}, scale={self.scale!r}, input={self.input!r}, "
            f"output={self.output!r}, dtype={self.dtype}, channels_last={self.channels_last})"
        )


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
