"""The change that replaces a dataset's torchvision or timm transform by a field."""

from __future__ import annotations

import contextlib
import copy
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.data import Subset

from pinfeed.collation.collate import Collate
from pinfeed.diagnosis.batch_values import have_equal_values
from pinfeed.fields.image import Image
from pinfeed.structure import entries, map_entries

#: Attributes of a dataset's transform; torchvision may pair it with a target transform.
_PLACES = ("transform", "transforms", "transforms.transform")
#: Maximum difference of bytes between the resizing of Pillow and torch.
_LEVELS = 2.02


class Converted(NamedTuple):
    """A dataset without the transforms that the field replaces.

    Attributes:
        code: The code to write.
        note: A description of the field.
        dataset: A copy of the dataset whose samples have untransformed images.
        collate: Collates its samples.
    """

    code: str
    note: str
    dataset: Any
    collate: Collate


def converted(dataset: Any, batches: list[Any], make: Callable[[Any], Any]) -> Converted | None:
    """Replaces a dataset's transform by a field; None if it has none, or batches would differ.

    Args:
        dataset: A dataset, or a Subset of one.
        batches: Indices of batches.
        make: Makes the current loader's batch from indices.
    """
    for place in _PLACES:
        with contextlib.suppress(Exception):  # a dataset that can't be changed stays unchanged
            return _converted_at(place, dataset, batches, make)
    return None


def _converted_at(
    place: str, dataset: Any, batches: list[Any], make: Callable[[Any], Any]
) -> Converted:
    """Like `converted` for one attribute; raises if it has no transform."""
    owner, name = dataset, "dataset"
    while isinstance(owner, Subset):
        owner, name = owner.dataset, f"{name}.dataset"
    transform = operator.attrgetter(place)(owner)
    rest, image = Image.from_torchvision(transform)
    without = _with(dataset, place, rest)
    sample = without[batches[0][0]]
    (found,) = (entry for _, entry in entries(sample) if _is_image(entry))
    if image.input is None and isinstance(found, torch.Tensor) and found.ndim == 3:
        image = Image.from_torchvision(transform, input="CHW")[1]
    collate = Collate(map_entries(lambda entry: image if _is_image(entry) else None, sample))
    stays = type(rest).__name__ != "Identity"
    is_random = stays or image.is_random  # assume that other transforms are random
    for indices in batches[:2]:
        batch = collate([without[index] for index in indices])
        if not have_equal_values(make(indices), batch, None if is_random else _tolerance(image)):
            raise ValueError("another batch")
    written = map_entries(lambda entry: _Name() if _is_image(entry) else None, sample)
    code = (
        f"{name}.{place}, image = pinfeed.Image.from_torchvision({name}.{place}); "
        f"DataLoader(..., collate_fn=pinfeed.Collate({written!r}))"
    )
    compared = "values are as close as Pillow's and torch's arithmetic"
    if is_random:
        compared = "its random draws are others, of the same distributions"
    return Converted(code, f"image is then {image!r}; {compared}", without, collate)


class _Name:
    """The name of the field in the code."""

    def __repr__(self) -> str:
        return "image"


def _with(dataset: Any, place: str, transform: Any) -> Any:
    """Copies a dataset, with another transform."""
    twin = copy.copy(dataset)
    head, _, rest = ("dataset", "", place) if isinstance(dataset, Subset) else place.partition(".")
    value = _with(getattr(dataset, head), rest, transform) if rest else transform
    setattr(twin, head, value)
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
