"""The change that replaces a dataset's torchvision or timm transform with a field."""

from __future__ import annotations

import contextlib
import copy
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.data import Subset

from pinfeed.arguments import ARRAYS
from pinfeed.augment.from_torchvision import may_be_random
from pinfeed.collation.collate import Collate
from pinfeed.diagnosis.batch_values import have_equal_values
from pinfeed.fields.image import Image
from pinfeed.fields.mask import Mask
from pinfeed.structure import entries, map_entries

#: Maximum difference of bytes between the resizing of Pillow and torch.
_LEVELS = 2.02


class _Used(NamedTuple):
    """The transform that a dataset's samples use; paths lead to attributes of the dataset."""

    path: str
    target_path: str  # of the target's transform; empty if there is none
    is_joint: bool  # whether it gets an image together with its targets


def converted(
    dataset: Any, batches: list[Any], make: Callable[[Any], Any]
) -> tuple[str, str, Any, Collate] | None:
    """Replaces a dataset's transform with fields; None if it has none, or if batches would differ.

    Args:
        dataset: A dataset, or a Subset of one.
        batches: Indices of batches.
        make: Makes the current loader's batch from indices.

    Returns:
        The code to write, a note about the fields, a copy of the dataset whose samples have
        untransformed images, and a collate function for its samples.
    """
    with contextlib.suppress(Exception):  # a dataset that can't be changed stays unchanged
        used = _used(dataset, batches[0][0])
        can_be_mask = used.is_joint or used.target_path
        for interpolation in ("nearest-exact", "nearest", None) if can_be_mask else (None,):
            with contextlib.suppress(Exception):
                return _converted(dataset, used, batches, make, interpolation)
    return None


def _used(dataset: Any, index: Any) -> _Used:
    """Finds the transform that is called for a sample; raises if there is none.

    torchvision's datasets keep a pair that some don't use, and users replace one attribute.
    """
    prefix, owner = "", dataset
    while isinstance(owner, Subset):
        prefix, owner = f"{prefix}dataset.", owner.dataset
    for name in ("transform", "transforms"):  # the second one can be a pair of two others
        transform = getattr(owner, name, None)
        recorded = _Recorded(transform)
        if transform is not None:
            _changed(dataset, {prefix + name: recorded})[index]
        if recorded.targets is None:
            continue
        if hasattr(transform, "transform") and hasattr(transform, "target_transform"):
            prefix, owner, name = f"{prefix}{name}.", transform, "transform"
            recorded.targets = 0
        has_other = name == "transform" and getattr(owner, "target_transform", None) is not None
        target_path = f"{prefix}target_transform" * has_other
        return _Used(prefix + name, target_path, bool(recorded.targets))
    raise ValueError("no transform")


def _converted(
    dataset: Any, used: _Used, batches: list[Any], make: Callable[[Any], Any], interpolation: Any
) -> tuple[str, str, Any, Collate]:
    """Returns the change; raises if batches would differ.

    ``interpolation``: of a mask, which then loses its own transform; None: targets stay as they are.
    """
    transform, option = operator.attrgetter(used.path)(dataset), ""
    target_path = used.target_path if interpolation else ""
    target = {target_path: torch.nn.Identity()} if target_path else {}
    rest, image = Image.from_torchvision(transform)
    plain = _changed(dataset, {used.path: rest} | target)
    sample = plain[batches[0][0]]
    pixels = next(entry for _, entry in entries(sample) if _is_image(entry))
    if image.input is None and isinstance(pixels, torch.Tensor) and pixels.ndim == 3:
        option, (rest, image) = ', input="CHW"', Image.from_torchvision(transform, input="CHW")
    fields, names = {id(pixels): image}, {id(pixels): _Name("image")}
    steps: tuple[str, ...] = ()
    if interpolation:
        steps, classes = _mask(sample, pixels, image)
        dtype = dict(entries(make(batches[0])))[steps].dtype
        mask = Mask(dtype=dtype, interpolation=interpolation)
        fields[id(classes)], names[id(classes)] = mask, _Name(f"pinfeed.{mask!r}")

    is_random = may_be_random(rest) or image.is_random
    geometry = () if image.geometry is None else image.geometry.steps
    is_moved = any(step.is_random for step in geometry) or (may_be_random(rest) and used.is_joint)
    others = [entry for _, entry in entries(sample) if id(entry) not in fields]
    if used.is_joint and is_moved and any(isinstance(e, ARRAYS) or _is_image(e) for e in others):
        raise ValueError("other targets that move, too")

    collate = Collate(map_entries(lambda entry: fields.get(id(entry)), sample))
    tolerance = None if is_random else _tolerance(image)
    for indices in batches[:2]:
        batch, expected = collate([plain[index] for index in indices]), make(indices)
        if steps:
            expected, classes = _without_channel(expected, steps)
            if not is_moved and not torch.equal(dict(entries(batch))[steps], classes):
                raise ValueError("other classes")
        if not have_equal_values(expected, batch, tolerance):
            raise ValueError("another batch")
    path = f"dataset.{used.path}"
    code = f"{path}, image = pinfeed.Image.from_torchvision({path}{option}); "
    code += f"dataset.{target_path} = torch.nn.Identity(); " * bool(target_path)
    fields_code = map_entries(lambda entry: names.get(id(entry)), sample)
    code += f"DataLoader(..., collate_fn=pinfeed.Collate({fields_code!r}))"
    note = f"image is then {image!r}; "
    note += "masks are transformed with it and have shape (B, H, W); " * bool(steps)
    if is_random:
        note += "its random draws differ, with the same distributions"
    else:
        note += "values differ only by the rounding of Pillow and torch"
    return code, note, plain, collate


def _mask(sample: Any, pixels: Any, image: Image) -> tuple[tuple[str, ...], Any]:
    """Returns the entry that is a mask of an image's size, and the steps to it."""
    size = Collate(Image(input=image.input, dtype=torch.uint8))([pixels]).shape[2:]  # type: ignore[arg-type]
    for steps, entry in entries(sample):
        with contextlib.suppress(TypeError, ValueError):
            if entry is not pixels and Collate(Mask())([entry]).shape[1:] == size:
                return steps, entry
    raise ValueError("no mask")


def _without_channel(batch: Any, steps: tuple[str, ...]) -> tuple[Any, torch.Tensor]:
    """Returns a batch whose masks have no axis of one channel, and the masks."""
    entry_of_masks = dict(entries(batch))[steps]
    masks = entry_of_masks.squeeze(1) if entry_of_masks.ndim == 4 else entry_of_masks
    return map_entries(lambda entry: masks if entry is entry_of_masks else entry, batch), masks


class _Recorded:
    """A transform that records the number of targets it gets together with an image."""

    def __init__(self, transform: Any) -> None:
        self._transform = transform
        self.targets: int | None = None  # None if it wasn't called

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.targets = len(arguments) + len(keywords) - 1
        return self._transform(*arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transform, name)


class _Name(str):
    """Code that is shown as it is."""

    __slots__ = ()
    __repr__ = str.__str__


def _changed(owner: Any, values: dict[str, Any]) -> Any:
    """Copies an object, with other values for the attributes with these paths."""
    twin = copy.copy(owner)
    for path, value in values.items():
        name, _, rest = path.partition(".")
        setattr(twin, name, _changed(getattr(twin, name), {rest: value}) if rest else value)
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
