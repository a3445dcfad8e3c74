"""The change that replaces a dataset's torchvision or timm transform of images with a field."""

from __future__ import annotations

import contextlib
import copy
import operator
from typing import Any

import torch
from torch.utils.data import Subset

from pinfeed.augment.from_torchvision import may_be_random
from pinfeed.collation.collate import Collate
from pinfeed.fields.image import Image
from pinfeed.structure import entries, map_entries

#: Maximum difference of bytes between the resizing of Pillow and torch.
_LEVELS = 2.02
#: Paths to a transform in a dataset; the last two are of torchvision's `VisionDataset`.
_PATHS = ("transform", "transforms", "transforms.transform")


def converted(dataset: Any, index: Any) -> tuple[str, str, Any, Collate, float | None]:
    """Replaces the transform of a dataset, or of a Subset of one, with a field.

    Returns the code to write, a note about the field, a copy of the dataset whose samples have
    untransformed images, a collate function for its samples, and the maximum difference of its batches'
    values: None if they are random. Raises ValueError if that isn't possible for the sample ``index``.
    """
    prefix, owner = "", dataset
    while isinstance(owner, Subset):
        prefix, owner = f"{prefix}dataset.", owner.dataset
    for path in _PATHS:
        with contextlib.suppress(Exception):  # no such transform
            return _converted(dataset, prefix + path, index)
    raise ValueError("no transform of one image")


def _converted(dataset: Any, path: str, index: Any) -> tuple[str, str, Any, Collate, float | None]:
    transform, calls, option = operator.attrgetter(path)(dataset), list[int](), ""

    def recorded(*arguments: Any) -> Any:
        calls.append(len(arguments))
        return transform(*arguments)

    _changed(dataset, path, recorded)[index]
    if calls != [1]:  # unused, or it also gets the targets
        raise ValueError("not a transform of one image")
    rest, image = Image.from_torchvision(transform)
    plain = _changed(dataset, path, rest)
    sample = plain[index]
    pixels = next(entry for _, entry in entries(sample) if _is_image(entry))
    if image.input is None and isinstance(pixels, torch.Tensor) and pixels.ndim == 3:
        option, (_, image) = ', input="CHW"', Image.from_torchvision(transform, input="CHW")
    is_random = may_be_random(rest) or image.is_random
    others = [entry for _, entry in entries(sample) if entry is not pixels]
    if is_random and any(getattr(entry, "ndim", 0) > 1 or _is_image(entry) for entry in others):
        raise ValueError("a mask that may move with the image")

    def fields(field: Any) -> Any:
        return map_entries(lambda entry: field if entry is pixels else None, sample)

    names = repr(fields("its field")).replace("'its field'", "image")
    code = f"dataset.{path}, image = pinfeed.Image.from_torchvision(dataset.{path}{option}); "
    code += f"DataLoader(..., collate_fn=pinfeed.Collate({names}))"
    note = "values differ only by the rounding of Pillow and torch"
    if is_random:
        note = "its random draws differ, with the same distributions"
    tolerance = None if is_random else _tolerance(image)
    return code, f"image is then {image!r}; {note}", plain, Collate(fields(image)), tolerance


def _changed(owner: Any, path: str, value: Any) -> Any:
    """Copies an object, with another value for the attribute at a path."""
    twin, (name, _, rest) = copy.copy(owner), path.partition(".")
    setattr(twin, name, _changed(getattr(twin, name), rest, value) if rest else value)
    return twin


def _is_image(entry: Any) -> bool:
    """Whether an entry is an image that is not yet converted to floats."""
    is_bytes = str(getattr(entry, "dtype", "")).endswith("uint8") and entry.ndim in (2, 3)
    return is_bytes or type(entry).__module__.startswith("PIL.")


def _tolerance(image: Image) -> float:
    """Returns the maximum difference of values, in units of the batch."""
    if not image.dtype.is_floating_point:
        return _LEVELS
    constants = image._constants
    return _LEVELS * constants.factor / min(constants.stds)
