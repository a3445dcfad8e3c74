"""The change that replaces a dataset's torchvision or timm transform with a field."""

from __future__ import annotations

import contextlib
import copy
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import ConcatDataset, Subset

from pinfeed.arguments import ARRAYS
from pinfeed.augment.from_torchvision import may_be_random
from pinfeed.collation.collate import Collate
from pinfeed.diagnosis.batch_values import have_equal_values
from pinfeed.fields.image import Image
from pinfeed.fields.mask import Mask
from pinfeed.structure import entries, is_container, map_entries

#: Attributes of a dataset's transform; torchvision's ``transforms`` can be a pair of two others.
_ATTRIBUTES = ("transform", "transforms")
#: Maximum difference of bytes between the resizing of Pillow and torch.
_LEVELS = 2.02


class Converted(NamedTuple):
    """A dataset without the transforms that the fields replace."""

    code: str  # the code to write
    note: str  # a description of the fields
    # A copy of the dataset whose samples have untransformed images; None if its transform changes
    # images and targets together, and can't be split.
    dataset: Any = None
    collate: Collate | None = None  # collates its samples


class _Part(NamedTuple):
    """A dataset with a transform, which can be in a Subset or ConcatDataset."""

    dataset: Any
    name: str  # its name in code
    attribute: str  # of the transform that its samples use
    target_attribute: str  # the attribute of the target's transform; empty if there is none
    targets: list[Any]  # what the transform gets together with an image

    @property
    def path(self) -> str:
        return f"{self.name}.{self.attribute}"

    @property
    def target_path(self) -> str:
        return f"{self.name}.{self.target_attribute}"


def converted(dataset: Any, batches: list[Any], make: Callable[[Any], Any]) -> Converted | None:
    """Replaces a dataset's transform with fields; None if it has none, or if batches would differ.

    Args:
        dataset: A dataset, or a Subset or ConcatDataset of datasets.
        batches: Indices of batches.
        make: Makes the current loader's batch from indices.
    """
    parts: list[_Part] = []
    with contextlib.suppress(Exception):  # a dataset that can't be changed stays unchanged
        parts = [*_parts(dataset, batches[0][0], "dataset")]
    for interpolation in ("nearest-exact", "nearest", None) if parts else ():
        with contextlib.suppress(Exception):
            return _converted(dataset, parts, batches, make, interpolation)
    for part in parts:
        for target in part.targets:
            is_mask = getattr(target, "ndim", 0) > 1 or _is_image(target)
            if is_mask or is_container(target):
                kind, page = ("Mask", "Segmentation") if is_mask else ("Boxes", "Detection")
                code = f"pinfeed.Image and pinfeed.{kind} in place of {part.path}"
                why = f"it changes images and targets together, so it can't be split; see the page {page}"
                return Converted(code, why)
    return None


def _parts(dataset: Any, index: Any, name: str) -> Iterator[_Part]:
    """Yields the datasets with a transform; ``index`` is the index of a sample."""
    if isinstance(dataset, Subset):
        yield from _parts(dataset.dataset, dataset.indices[index], f"{name}.dataset")
        return
    if isinstance(dataset, ConcatDataset):
        for i, part in enumerate(dataset.datasets):
            yield from _parts(part, 0, f"{name}.datasets[{i}]")
        return
    for attribute in _ATTRIBUTES:
        transform = getattr(dataset, attribute, None)
        recorded = _Recorded(transform)
        if transform is not None:
            _changed(dataset, "", {f".{attribute}": recorded})[index]
        # torchvision's datasets keep a pair that some don't use, and users replace one attribute.
        if recorded.calls:
            is_pair = hasattr(transform, "transform") and hasattr(transform, "target_transform")
            prefix, owner = ("transforms.", transform) if is_pair else ("", dataset)
            attribute = f"{prefix}transform" if is_pair else attribute
            target_attribute = f"{prefix}target_transform"
            if attribute == "transforms" or getattr(owner, "target_transform", None) is None:
                target_attribute = ""
            yield _Part(
                dataset, name, attribute, target_attribute, [] if is_pair else recorded.calls[0][1:]
            )
            return


def _converted(
    dataset: Any,
    parts: list[_Part],
    batches: list[Any],
    make: Callable[[Any], Any],
    interpolation: Any,
) -> Converted:
    """Returns the change; raises if batches would differ.

    ``interpolation``: of a mask, which then loses its own transform; None: targets stay as they are.
    """
    is_joint = any(part.targets for part in parts)
    targets = [part.target_path for part in parts if part.target_attribute]
    if interpolation is None:
        targets = []
    elif not targets and not is_joint:
        raise ValueError("no mask")

    option, rests, image = "", *_split(parts)
    plain = _changed(dataset, "dataset", rests | dict.fromkeys(targets, torch.nn.Identity()))
    sample = plain[batches[0][0]]
    pixels = next(entry for _, entry in entries(sample) if _is_image(entry))
    if image.input is None and isinstance(pixels, torch.Tensor) and pixels.ndim == 3:
        option, rests, image = ', input="CHW"', *_split(parts, input="CHW")
    fields, names = {id(pixels): image}, {id(pixels): _Name("image")}
    steps: tuple[str, ...] = ()
    if interpolation is not None:
        steps, classes = _mask(sample, pixels, image)
        dtype = dict(entries(make(batches[0])))[steps].dtype
        mask = Mask(dtype=dtype, interpolation=interpolation)
        fields[id(classes)], names[id(classes)] = mask, _Name(f"pinfeed.{mask!r}")

    is_rest_random = any(map(may_be_random, rests.values()))
    is_random = is_rest_random or image.is_random
    geometry = () if image.geometry is None else image.geometry.steps
    is_moved = any(step.is_random for step in geometry) or (is_rest_random and is_joint)
    others = [entry for _, entry in entries(sample) if id(entry) not in fields]
    if is_joint and is_moved and any(isinstance(e, ARRAYS) or _is_image(e) for e in others):
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
    owners = {id(part.dataset): part for part in parts}  # Subsets can have the same dataset
    paths = [part.path for part in owners.values()]
    lines = [f"{p}, image = pinfeed.Image.from_torchvision({p}{option})" for p in paths]
    lines += [
        f"{part.target_path} = torch.nn.Identity()"
        for part in owners.values()
        if part.target_path in targets
    ]
    fields_code = map_entries(lambda entry: names.get(id(entry)), sample)
    lines += [f"DataLoader(..., collate_fn=pinfeed.Collate({fields_code!r}))"]
    note = f"image is then {image!r}; "
    note += "masks are transformed with it and have shape (B, H, W); " * bool(steps)
    if is_random:
        note += "its random draws differ, with the same distributions"
    else:
        note += "values differ only by the rounding of Pillow and torch"
    return Converted("; ".join(lines), note, plain, collate)


def _split(parts: list[_Part], **options: Any) -> tuple[dict[str, Any], Image]:
    """Returns the transforms that stay, by their paths, and the field, which must be the same for all."""
    rests, fields = dict[str, Any](), dict[str, Image]()
    for part in parts:
        transform = operator.attrgetter(part.attribute)(part.dataset)
        rests[part.path], image = Image.from_torchvision(transform, **options)
        fields[repr(image)] = image
    (field,) = fields.values()
    return rests, field


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
    """A transform that records the arguments of its calls."""

    def __init__(self, transform: Any) -> None:
        self._transform = transform
        self.calls: list[list[Any]] = []

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.calls.append([*arguments, *keywords.values()])
        return self._transform(*arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transform, name)


class _Name(str):
    """Code that is shown as it is."""

    __slots__ = ()
    __repr__ = str.__str__


def _changed(dataset: Any, name: str, values: dict[str, Any]) -> Any:
    """Copies a dataset, with other values for the attributes with these paths."""
    twin = copy.copy(dataset)
    if isinstance(dataset, Subset):
        twin.dataset = _changed(dataset.dataset, f"{name}.dataset", values)
    elif isinstance(dataset, ConcatDataset):
        parts = enumerate(dataset.datasets)
        twin.datasets = [_changed(part, f"{name}.datasets[{i}]", values) for i, part in parts]
    else:
        if any(path.startswith(f"{name}.transforms.") for path in values):
            twin.transforms = copy.copy(dataset.transforms)
        for path, value in values.items():
            parent, _, last = path.rpartition(".")
            if parent == name:
                setattr(twin, last, value)
            elif parent == f"{name}.transforms":
                setattr(twin.transforms, last, value)
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
