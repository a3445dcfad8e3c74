"""The transforms of torchvision and timm that an `Image` can do in one pass.

Transforms are recognized by the name and the module of their class, so neither library is imported.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pinfeed.augment.color import Coloring, ColorJitter, RandomGrayscale
from pinfeed.augment.crops import CenterCrop, Pad, RandomCrop, RandomIoUCrop, RandomZoomOut
from pinfeed.augment.erasing import RandomErasing
from pinfeed.augment.geometry import Compose, Geometry, RandomHorizontalFlip, RandomVerticalFlip
from pinfeed.augment.sizes import (
    RandomResize,
    RandomResizedCrop,
    RandomShortestSize,
    Resize,
    ResizeKeepRatio,
    ScaleJitter,
)

_NAME = "Image.from_torchvision"
_OVERLAPS = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]  # of RandomIoUCrop, if nothing is said
_OFF = 1e-3  # of a byte, by which a fill of floats may be off
_HALVES = (torch.float16, torch.bfloat16)
_TO_TENSOR = ("ToTensor", "PILToTensor", "ToImage", "MaybeToTensor", "MaybePILToTensor", "ToNumpy")
_TO_FLOATS = ("ToTensor", "MaybeToTensor", "ToDtype", "ConvertImageDtype", "Normalize")
_WITH_CHANCE = (
    *("ColorJitter", "RandomGrayscale", "RandomHorizontalFlip", "RandomVerticalFlip"),
    *("RandomZoomOut", "RandomErasing"),
)
_FROM_TRANSFORM = ("mean", "std", "scale", "augment", "fill", "interpolation", "resize_dtype")


# What gets floats, so that it can't be moved before the conversion to them.
_OF_FLOATS = (
    *("Normalize", "LinearTransformation", "RandomErasing", "timm.RandomErasing", "GaussianNoise"),
    *("ToDtype", "ConvertImageDtype", "ToPILImage", "ToPureTensor", "MixUp", "CutMix"),
)


class _NotFused(Exception):
    """A transform that an `Image` can't do at its position, the reason, and a better hint than moving it."""

    def __init__(self, transform: Any, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.transform, self.fix = transform, fix


def split_transform(kind: Any, transform: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """Returns the result of `Image.from_torchvision`; ``kind`` is the class of the field."""
    transforms = _flat(transform)
    if not transforms:
        raise TypeError(
            f"{_NAME}: transform must be of torchvision or timm, got an empty {type(transform).__name__}; "
            "without a transform, write the field: Image() makes floats of 0..1, Image(dtype=torch.uint8) "
            "keeps bytes"
        )
    if not any(_library(part) for part in transforms):
        names = ", ".join(type(part).__name__ for part in transforms)
        got = names if transforms == [transform] else f"{type(transform).__name__} of {names}"
        raise TypeError(
            f"{_NAME}: transform must be of torchvision or timm, or a list of such transforms, got {got}; "
            "call other transforms in the dataset's __getitem__, and pass the transform that they call"
        )
    derived = [key for key in options if key in _FROM_TRANSFORM]
    if derived:
        raise TypeError(
            f"{_NAME}: {derived[0]} follows from the transform; leave it out, or write the field as "
            "print(image) shows it and change it there"
        )
    for part in transforms:
        if _name(part) in ("FiveCrop", "TenCrop"):
            raise ValueError(
                f"{_NAME}: transform must return one image, and {type(part).__name__} returns several; stack "
                "their bytes in the dataset, torch.stack([pil_to_tensor(crop) for crop in crops]), and "
                "write the field: Image(mean, std, input='TCHW', output='TCHW')"
            )
    layouts = _layouts(transforms, str(options.get("input", "")))
    start, arguments = 0, {}
    for start in range(len(transforms) + 1):
        try:
            arguments = _arguments(kind, transforms, layouts, start)
            break
        except _NotFused:
            pass
    first = next((i for i, part in enumerate(transforms[:start]) if _makes_floats(part)), None)
    if first is not None:
        try:
            _arguments(kind, transforms, layouts, first)
        except _NotFused as error:
            raise ValueError(f"{_NAME}: {_advice(error, transforms, first)}") from None
    return _like(transform, transforms[:start]), kind(**arguments | options)


def _advice(error: _NotFused, transforms: list[Any], first: int) -> str:
    """Returns the hint for a transform that an `Image` can't do after the conversion to floats."""
    index = max(i for i, part in enumerate(transforms) if part is error.transform)
    name, converter = (type(transforms[i]).__name__ for i in (index, first))
    text = f"{name}: {error}" if index == first else f"{name} comes after {converter}, and {error}"
    between = [part for part in transforms[first:index] if not _is_conversion(part)]
    if error.fix and not (between and error.fix.startswith("move")):
        return f"{text}; {error.fix}"
    later = [type(part).__name__ for part in transforms[index + 1 :]]
    left = " and ".join(["it", *later])
    called = "them" if later else "it"
    of_batch = "the batch" if name in ("MixUp", "CutMix") else "each image of the batch"
    fix = f"leave {left} out, and call {called} on {of_batch}"
    if index > first and all(map(_takes_bytes, [*between, error.transform])):
        names = " and ".join([*(type(part).__name__ for part in between), "it"])
        fix = f"move {names} before {converter}, where it gets bytes, or {fix}"
    return f"{text}; {fix}"


def _takes_bytes(transform: Any) -> bool:
    parts = [transform, *getattr(transform, "transforms", ())]
    return not any(_name(part) in _OF_FLOATS for part in parts)


def _is_conversion(transform: Any) -> bool:
    """Whether it changes values or containers of all pixels equally, without moving them."""
    return _KNOWN.get(_name(transform)) in (_keep, _add_identity, _add_conversion, _add_normalize)


def _library(transform: Any) -> str:
    """Returns ``"torchvision"`` or ``"timm"`` for their classes."""
    module = type(transform).__module__
    for library in ("torchvision.transforms", "timm.data"):
        if module == library or module.startswith(f"{library}."):
            return library.partition(".")[0]
    return ""


def _name(transform: Any) -> str:
    """Returns the class name; timm's ``ToTensor``, which doesn't scale, has another name."""
    if isinstance(transform, torch.nn.Identity):
        return "Identity"
    library, name = _library(transform), type(transform).__name__
    if library == "timm" and name in ("ToTensor", "RandomErasing"):
        return f"timm.{name}"
    return name if library else ""


def _flat(transform: Any) -> list[Any]:
    """Returns the single transforms, in order."""
    if isinstance(transform, list | tuple | torch.nn.Sequential):
        return [one for part in transform for one in _flat(part)]
    if _name(transform) == "Compose":
        return _flat(list(transform.transforms))
    if type(transform).__module__ == "torchvision.transforms._presets":
        return _of_weights(transform)
    return [transform]


def _of_weights(preset: Any) -> list[Any]:
    """Returns the steps of the ``transforms()`` of a model's weights."""
    module: Any = sys.modules["torchvision.transforms"]
    name, steps = type(preset).__name__, []
    if name not in ("ImageClassification", "SemanticSegmentation", "ObjectDetection"):
        raise ValueError(
            f"{_NAME}: transform must be for single images, got {name}; write the field yourself: clips "
            "take Image(mean, std, input='TCHW', output='CTHW', augment=...)"
        )
    size = getattr(preset, "resize_size", None)
    if size not in (None, [None]):
        steps.append(module.Resize(size, preset.interpolation, antialias=preset.antialias))
    if name == "ImageClassification":
        steps.append(module.CenterCrop(preset.crop_size))
    steps += [module.PILToTensor(), module.ConvertImageDtype(torch.float32)]
    if name != "ObjectDetection":
        steps.append(module.Normalize(preset.mean, preset.std))
    return steps


def _like(transform: Any, rest: list[Any]) -> Any:
    """Returns the remaining transforms in a container of the user's type."""
    is_v2 = any(".v2." in type(part).__module__ for part in _flat(transform))
    if not rest and is_v2:  # takes any number of arguments, as the others of v2
        return sys.modules["torchvision.transforms.v2"].Identity()
    if not rest or isinstance(transform, torch.nn.Sequential):
        return torch.nn.Sequential(*rest) if rest else torch.nn.Identity()
    if _name(transform) == "Compose":
        return type(transform)(rest)
    if len(rest) == 1:
        return rest[0]
    module: Any = sys.modules["torchvision.transforms.v2" if is_v2 else "torchvision.transforms"]
    return module.Compose(rest)


def _makes_floats(transform: Any) -> bool:
    name = _name(transform)
    if name in ("ToDtype", "ConvertImageDtype"):
        dtype = _dtype_of(transform)
        return dtype is None or dtype.is_floating_point
    return name in (*_TO_FLOATS, "timm.ToTensor")


def _layouts(transforms: list[Any], sample_layout: str) -> list[str]:
    """What each transform gets, and what the last one returns: ``"PIL"``, ``"tensor"`` or not known.

    ``sample_layout`` is the layout of samples; empty if the user did not pass it.
    """
    names = [_name(part) for part in transforms]
    conversions = [name for name in names if name in (*_TO_TENSOR, "timm.ToTensor", "ToPILImage")]
    layout = ""
    if sample_layout.lstrip("T").startswith("C"):
        layout = "tensor"
    elif conversions:
        layout = "" if conversions[0] == "ToPILImage" else "PIL"
    elif any(_makes_floats(part) for part in transforms):
        layout = "tensor"
    layouts = [layout]
    for name in names:
        if name in (*_TO_TENSOR, "timm.ToTensor"):
            layout = "tensor"
        elif name == "ToPILImage":
            layout = "PIL"
        layouts.append(layout)
    return layouts


def _dtype_of(transform: Any) -> torch.dtype | None:
    """Returns the dtype that a conversion gives images, None if unknown."""
    dtype = transform.dtype
    if isinstance(dtype, dict):  # of v2, by the types of what there is in a sample
        by_name = {getattr(key, "__name__", key): value for key, value in dtype.items()}
        dtype = by_name.get("Image", by_name.get("others"))
    return dtype if isinstance(dtype, torch.dtype) else None


@dataclass
class _Plan:
    """The arguments of an `Image`, collected from one transform after the other."""

    layout: str = ""
    steps: list[Geometry] = field(default_factory=list)
    interpolation: str | tuple[str, ...] | None = None
    is_scaled: bool = True  # whether floats before normalization go from 0 to 1
    in_floats: bool = False  # whether what is resized are floats
    fill: Any = None
    pads: bool = False  # whether a step shows more than the image
    colors: list[Coloring] = field(default_factory=list)
    values: str = "start"  # then "bytes", then "scaled" or "unscaled", then "normalized"
    normalization: tuple[Any, Any] | None = None
    dtype: torch.dtype = torch.float32
    erasing: dict[str, Any] | None = None

    @property
    def is_float(self) -> bool:
        return self.values in ("scaled", "unscaled", "normalized")

    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if self.normalization is not None:
            arguments["mean"], arguments["std"] = self.normalization
        if not self.is_float:
            arguments["dtype"] = torch.uint8
        elif self.dtype != torch.float32:
            arguments["dtype"] = self.dtype
        augment: list[Any] = [*self.steps, *self.colors]
        if self.erasing is not None:
            augment.append(RandomErasing(**self.erasing))
        if augment:
            arguments["augment"] = augment if len(augment) > 1 else augment[0]
        # Bytes of one channel may be masks, so an Image that keeps values does not guess.
        may_be_masks = self.values in ("start", "bytes", "unscaled")
        if self.interpolation is not None and (self.interpolation != "bilinear" or may_be_masks):
            arguments["interpolation"] = self.interpolation
        if self.in_floats and self.interpolation not in (None, "nearest", "nearest-exact"):
            arguments["resize_dtype"] = torch.float32
        if self.fill is not None:
            arguments["fill"] = self.fill
        return arguments


def _arguments(kind: Any, transforms: list[Any], layouts: list[str], start: int) -> dict[str, Any]:
    """Returns the arguments of the field for all transforms from ``start`` on."""
    plan = _Plan()
    if start > 0 and _KNOWN.get(_name(transforms[start - 1])) is _keep:
        plan.values = "bytes"
    is_unscaled = False
    for one, layout in zip(transforms[start:], layouts[start:], strict=False):
        plan.layout = layout
        add = _KNOWN.get(_name(one))
        if add is None:
            raise _NotFused(one, "an Image can't do it")
        try:
            add(plan, one)
            is_unscaled = is_unscaled or plan.values == "unscaled"
            if len(plan.steps) > 1:
                Compose(plan.steps)
        except _NotFused:
            raise
        except (TypeError, ValueError) as error:
            raise _NotFused(one, f"an Image can't do it ({error})") from error
    arguments = plan.arguments()
    if is_unscaled:
        arguments["scale"] = 1
    if layouts[start] == "tensor":
        arguments["input"] = "CHW"
    try:
        kind(**arguments)
    except (TypeError, ValueError) as error:
        raise _NotFused(transforms[start], f"an Image can't do it ({error})") from error
    return arguments


def _add_step(plan: _Plan, transform: Any, step: Geometry, *, pads: bool = False) -> None:
    """Adds a geometric transform. Unless it is a flip, it must come before colors and erasing."""
    if plan.colors or plan.erasing is not None:
        fix = "put it before the erasing" if plan.erasing is not None else ""
        raise _NotFused(transform, "an Image does it before colors and erasing", fix)
    if pads and plan.values == "normalized":
        raise _NotFused(transform, "an Image pads before it normalizes")
    plan.steps.append(step)
    plan.pads = plan.pads or pads


def _add_flip(kind: Any) -> Callable[[_Plan, Any], None]:
    # Mirrored or not, colors are the same, and an erased rectangle may be anywhere.
    return lambda plan, one: plan.steps.append(kind(one.p))


def _add_resizing(plan: _Plan, transform: Any, step: Geometry) -> None:
    mode = transform.interpolation
    modes = mode if isinstance(mode, tuple) else (mode,)  # timm draws one of several
    names: list[Any] = [getattr(one, "value", one) for one in modes]
    if names == ["nearest"] and plan.layout != "tensor":
        names = ["nearest-exact" if plan.layout == "PIL" else "nearest, of PIL or of tensors"]
    if not {*names} <= {"bilinear", "bicubic", "nearest", "nearest-exact"}:
        raise _NotFused(transform, f"an Image has no interpolation {', '.join(names)!r}")
    if "nearest" not in names[0] and getattr(transform, "antialias", True) is not True:
        fix = "leave antialias=False out of it"
        raise _NotFused(transform, "an Image always antialiases", fix)
    _add_step(plan, transform, step)
    plan.interpolation = names[0] if len(names) == 1 else tuple(names)
    plan.in_floats = plan.is_float


def _as_fill(plan: _Plan, transform: Any, fill: Any) -> Any:
    """Returns a number in units of bytes, or one per channel."""
    numbers = [0] if fill is None else _numbers(fill)
    if numbers is None:
        raise _NotFused(transform, f"an Image takes numbers as fill, not {fill!r}")
    if plan.values == "normalized":
        fills = _before_normalization(plan, numbers)
        fix = f"move it before the conversion to floats with fill={fills}, the same color"
        if fills is None:
            fix = "leave it out, and call it on each image of the batch"
        raise _NotFused(transform, "an Image pads before it normalizes", fix)
    unit = 255 if plan.values == "scaled" else 1
    integers = tuple(round(number * unit) for number in numbers)
    bytes_ = [min(max(number, 0), 255) for number in integers]
    off = max(abs(n * unit - b) for n, b in zip(numbers, bytes_, strict=True))
    if off > _OFF:
        shown = ", ".join(f"{number} / 255" if unit == 255 else str(number) for number in bytes_)
        fix = f"take the nearest, fill={shown if len(bytes_) == 1 else f'({shown})'}"
        raise _NotFused(transform, f"an Image fills with bytes, which {fill!r} is not", fix)
    return integers[0] if len({*integers}) == 1 else integers


def _before_normalization(plan: _Plan, numbers: Sequence[float]) -> Any:
    """Returns the bytes that become these numbers, one per channel; None if there are none."""
    assert plan.normalization is not None
    mean, std = (np.atleast_1d(np.asarray(part, float)) for part in plan.normalization)
    if len(numbers) not in (1, len(mean)):
        return None
    fills = (np.asarray(numbers) * std + mean) * (255 if plan.is_scaled else 1)
    rounded = fills.round().astype(int)
    if not ((rounded >= 0) & (rounded <= 255)).all():
        return None
    return _per_channel(rounded.tolist())


def _numbers(values: Any) -> list[float] | None:
    """Returns Python numbers; for a float32 tensor, the shortest decimals with the same float32."""
    if isinstance(values, torch.Tensor | np.ndarray):
        flat = np.asarray(values).reshape(-1)
        return [float(str(number)) for number in flat] if flat.dtype.kind in "iuf" else None
    sequence = values if isinstance(values, list | tuple) else [values]
    if not sequence or not all(isinstance(number, int | float) for number in sequence):
        return None
    # Not np.float64.
    return [float(number) if isinstance(number, float) else number for number in sequence]


def _per_channel(values: Sequence[float]) -> Any:
    """Returns one number, or one per channel."""
    return values[0] if len(values) == 1 else tuple(values)


def _add_pad(plan: _Plan, transform: Any) -> None:
    mode = transform.padding_mode
    fill = _as_fill(plan, transform, transform.fill) if mode == "constant" else 0
    step = Pad(_sides(transform) or 0, fill, mode)
    _add_step(plan, transform, step, pads=mode == "constant")


def _sides(transform: Any) -> Any:
    """Returns the padding on the left, top, right and bottom."""
    padding = getattr(transform, "padding", None)
    is_v2_crop = ".v2." in type(transform).__module__ and type(transform).__name__ == "RandomCrop"
    if isinstance(padding, list | tuple) and len(padding) == 4 and is_v2_crop:
        left, right, top, bottom = padding  # as in torch.nn.functional.pad
        padding = (left, top, right, bottom)
    if isinstance(padding, list | tuple):
        sides = padding if len(padding) > 1 else [*padding] * 2
        return sides[0] if len({*sides}) == 1 else tuple(sides)
    return padding or None


def _add_random_crop(plan: _Plan, transform: Any) -> None:
    padding, if_needed = _sides(transform), getattr(transform, "pad_if_needed", True)  # timm's pads
    pads = padding is not None or if_needed
    mode: Any = transform.padding_mode if pads else "constant"
    fill = _as_fill(plan, transform, transform.fill) if pads and mode == "constant" else 0
    step = RandomCrop(_square(transform.size), padding, if_needed, fill, mode)
    _add_step(plan, transform, step, pads=pads and mode == "constant")


def _add_center_crop(plan: _Plan, transform: Any) -> None:
    size = transform.size
    mode: Any = getattr(transform, "padding_mode", "constant")
    step = CenterCrop(_square(size), padding_mode=mode)
    if plan.values == "normalized" and mode == "constant" and not hasattr(transform, "fill"):
        why = f"it pads images smaller than {tuple(size)} after Normalize, an Image before"
        raise _NotFused(transform, why)
    fill = _as_fill(plan, transform, getattr(transform, "fill", 0)) if mode == "constant" else 0
    if fill != 0:
        if plan.pads:
            raise _NotFused(transform, "an Image has one fill")
        plan.fill = fill
    _add_step(plan, transform, step, pads=mode == "constant")


def _keeping_ratio(transform: Any) -> Geometry:
    return ResizeKeepRatio(
        _square(transform.size),
        transform.longest,
        random_scale_prob=transform.random_scale_prob,
        random_scale_range=tuple(transform.random_scale_range),
        random_scale_area=transform.random_scale_area,
        random_aspect_prob=transform.random_aspect_prob,
        random_aspect_range=tuple(transform.random_aspect_range),
    )


def _add_zoom(plan: _Plan, transform: Any) -> None:
    fill = _as_fill(plan, transform, transform.fill)
    step = RandomZoomOut(fill, tuple(transform.side_range), transform.p)
    _add_step(plan, transform, step, pads=True)


def _add_iou_crop(plan: _Plan, crop: Any) -> None:
    ranges = crop.min_scale, crop.max_scale, crop.min_aspect_ratio, crop.max_aspect_ratio
    options = None if [*crop.options] == _OVERLAPS else [*crop.options]
    _add_step(plan, crop, RandomIoUCrop(*ranges, options, crop.trials))


def _add_jitter(plan: _Plan, transform: Any) -> None:
    if transform.hue is not None:
        raise _NotFused(transform, "an Image does not change the hue")
    three = transform.brightness, transform.contrast, transform.saturation
    factors = (0 if factor is None else tuple(factor) for factor in three)
    _add_color(plan, transform, ColorJitter(*factors, p=getattr(transform, "p", 1)))


def _add_color(plan: _Plan, transform: Any, color: Coloring) -> None:
    if plan.is_float:
        raise _NotFused(transform, "an Image does it to bytes, which gives other values")
    if plan.erasing is not None:
        raise _NotFused(transform, "an Image changes colors before it erases")
    plan.colors.append(color)


def _add_with_chance(plan: _Plan, transform: Any) -> None:
    """Adds a RandomApply of one transform that has a probability in pinfeed."""
    parts = _flat([*transform.transforms])
    if len(parts) != 1 or _name(parts[0]) not in _WITH_CHANCE:
        raise _NotFused(transform, f"an Image applies only {', '.join(_WITH_CHANCE)} at random")
    part = copy.copy(parts[0])
    part.p = transform.p * getattr(part, "p", 1)
    _KNOWN[_name(part)](plan, part)


def _keep(plan: _Plan, transform: Any) -> None:
    """Adds a conversion of pixels to another container."""
    if plan.is_float and _name(transform) == "ToPILImage":
        raise _NotFused(transform, "an Image makes floats last")
    if getattr(transform, "mode", None) is not None:
        raise _NotFused(transform, "an Image keeps the channels of its samples")
    if plan.values == "start":
        plan.values = "bytes"


def _add_identity(plan: _Plan, transform: Any) -> None:
    if not plan.is_float:
        raise _NotFused(transform, "it is left where it is")


def _add_conversion(plan: _Plan, transform: Any) -> None:
    name = _name(transform)
    is_scaled = name != "timm.ToTensor"
    dtype: torch.dtype | None = torch.get_default_dtype()
    if name not in ("ToTensor", "MaybeToTensor"):
        dtype = _dtype_of(transform)
        is_scaled = getattr(transform, "scale", is_scaled)
    if dtype == torch.uint8 and not plan.is_float:
        return
    if dtype not in (torch.float32, *_HALVES):
        raise _NotFused(transform, f"an Image can't convert bytes to {dtype}")
    if not plan.is_float:
        plan.values = "scaled" if is_scaled else "unscaled"
        plan.is_scaled = is_scaled
        if is_scaled:
            _convert_erasing(plan, transform, lambda values: [value / 255 for value in values])
    plan.dtype = dtype


def _add_normalize(plan: _Plan, transform: Any) -> None:
    if plan.values == "bytes" or (plan.values == "start" and plan.colors):
        fix = "put ToDtype(torch.float32, scale=True) before it"
        raise _NotFused(transform, "it gets bytes", fix)
    if plan.dtype != torch.float32:
        raise _NotFused(transform, f"an Image normalizes in float32, and not in {plan.dtype}")
    mean, std = _numbers(transform.mean), _numbers(transform.std)
    if mean is None or std is None:
        raise _NotFused(transform, "an Image takes numbers as mean and std")
    channels = max(len(mean), len(std))

    def normalized(values: Iterable[float]) -> list[float]:
        several = [*values]
        several = several * channels if len(several) == 1 else several
        means, stds = (part * len(several) if len(part) == 1 else part for part in (mean, std))
        return [(v - m) / s for v, m, s in zip(several, means, stds, strict=True)]

    _convert_erasing(plan, transform, normalized)
    if plan.normalization is not None:
        raise _NotFused(transform, "an Image normalizes once")
    plan.normalization = _per_channel(mean), _per_channel(std)
    plan.values = "normalized"


def _convert_erasing(plan: _Plan, transform: Any, convert: Any) -> None:
    """Returns the value of an earlier erasing in the units after this transform."""
    if plan.erasing is None:
        return
    value = plan.erasing["value"]
    if value == "random":
        raise _NotFused(transform, "an Image erases with random values after it normalizes")
    numbers = convert(value if isinstance(value, tuple) else [value])
    plan.erasing["value"] = _per_channel(numbers)


def _add_erasing(plan: _Plan, transform: Any) -> None:
    value: Any = "random"
    if _name(transform) == "timm.RandomErasing":
        is_one = (transform.min_count, transform.max_count) == (1, 1)
        if not is_one or transform.num_splits or transform.rand_color:
            why = "an Image erases one rectangle, with one value or with noise"
            raise _NotFused(transform, why)
        probability, value = transform.probability, "random" if transform.per_pixel else 0
        scale = (transform.min_area, transform.max_area)
        ratio = tuple(float(np.exp(number)) for number in transform.log_aspect_ratio)
    else:
        probability, scale, ratio = transform.p, tuple(transform.scale), tuple(transform.ratio)
        if transform.value is not None and transform.value != "random":
            numbers = _numbers(transform.value)
            if numbers is None:
                raise _NotFused(transform, f"an Image can't erase with {transform.value!r}")
            value = _per_channel(numbers)
    if plan.erasing is not None:
        raise _NotFused(transform, "an Image erases once")
    if not plan.is_float:
        values = value if isinstance(value, tuple) else (value,)
        if value == "random" or any(v != int(v) or not 0 <= v <= 255 for v in values):
            raise _NotFused(transform, "an Image erases bytes with bytes")
    plan.erasing = {"p": probability, "scale": scale, "ratio": ratio, "value": value}


def _sized(size: Any) -> Any:
    """Returns a size for pinfeed's transforms; one number is the length of the shorter edge."""
    if isinstance(size, list | tuple):
        return size[0] if len(size) == 1 else tuple(size)
    return size


def _square(size: Any) -> Any:
    return size[0] if size[0] == size[-1] else tuple(size)


_Adding = Callable[[_Plan, Any], None]


def _sizes(make: Callable[[Any], Geometry]) -> _Adding:
    return lambda plan, one: _add_resizing(plan, one, make(one))


_KNOWN: dict[str, _Adding] = {
    "Resize": _sizes(lambda one: Resize(_sized(one.size), max_size=one.max_size)),
    **dict.fromkeys(
        ("RandomResizedCrop", "RandomResizedCropAndInterpolation"),
        _sizes(
            lambda one: RandomResizedCrop(_square(one.size), tuple(one.scale), tuple(one.ratio))
        ),
    ),
    "RandomShortestSize": _sizes(lambda one: RandomShortestSize(tuple(one.min_size), one.max_size)),
    "RandomResize": _sizes(lambda one: RandomResize(one.min_size, one.max_size)),
    "ScaleJitter": _sizes(lambda one: ScaleJitter(tuple(one.target_size), tuple(one.scale_range))),
    "CenterCrop": _add_center_crop,
    "CenterCropOrPad": _add_center_crop,
    "RandomCrop": _add_random_crop,
    "RandomCropOrPad": _add_random_crop,
    "ResizeKeepRatio": _sizes(_keeping_ratio),
    "RandomZoomOut": _add_zoom,
    "RandomIoUCrop": _add_iou_crop,
    "Pad": _add_pad,
    "RandomHorizontalFlip": _add_flip(RandomHorizontalFlip),
    "RandomVerticalFlip": _add_flip(RandomVerticalFlip),
    "ColorJitter": _add_jitter,
    "RandomGrayscale": lambda plan, one: _add_color(plan, one, RandomGrayscale(one.p)),
    "RandomApply": _add_with_chance,
    "RandomErasing": _add_erasing,
    "timm.RandomErasing": _add_erasing,
    "Identity": _add_identity,
    **dict.fromkeys(
        ("PILToTensor", "ToImage", "ToPILImage", "ToPureTensor", "MaybePILToTensor", "ToNumpy"),
        _keep,
    ),
    **dict.fromkeys(
        ("ToTensor", "MaybeToTensor", "ToDtype", "ConvertImageDtype", "timm.ToTensor"),
        _add_conversion,
    ),
    "Normalize": _add_normalize,
}
