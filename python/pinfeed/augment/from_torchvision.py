"""The transforms of torchvision and timm that an `Image` can apply in one pass.

Transforms are recognized by the name and the module of their class, so neither library is imported.
"""

from __future__ import annotations

import copy
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pinfeed.augment.color import Coloring, ColorJitter, RandomGrayscale
from pinfeed.augment.crops import CenterCrop, Pad, RandomCrop, RandomIoUCrop, RandomZoomOut
from pinfeed.augment.erasing import RandomErasing
from pinfeed.augment.geometry import Geometry, RandomHorizontalFlip, RandomVerticalFlip
from pinfeed.augment.sizes import (
    RandomResize,
    RandomResizedCrop,
    RandomShortestSize,
    Resize,
    ResizeKeepRatio,
    ScaleJitter,
)
from pinfeed.functional.normalization import Normalization

_NAME = "Image.from_torchvision"
_OVERLAPS = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]  # the default of RandomIoUCrop
_OFF = 1e-3  # tolerance of a fill of floats, in units of a byte
_HALVES = (torch.float16, torch.bfloat16)
_TO_TENSOR = ("ToTensor", "PILToTensor", "ToImage", "MaybeToTensor", "MaybePILToTensor", "ToNumpy")
_WITH_CHANCE = (
    *("ColorJitter", "RandomGrayscale", "RandomHorizontalFlip", "RandomVerticalFlip"),
    *("RandomZoomOut", "RandomErasing"),
)
_OF_TENSORS = ("ToDtype", "ConvertImageDtype")  # v2 returns PIL images unchanged
_NOT_RANDOM = ("Resize", "CenterCrop", "CenterCropOrPad", "Pad", "Grayscale", "TrimBorder")
_FROM_TRANSFORM = ("mean", "std", "scale", "augment", "fill", "interpolation", "resize_dtype")


# Transforms of floats, which can't be moved before the conversion to floats.
_OF_FLOATS = (
    *("Normalize", "LinearTransformation", "RandomErasing", "timm.RandomErasing", "GaussianNoise"),
    *("ToDtype", "ConvertImageDtype", "ToPILImage", "ToPureTensor", "MixUp", "CutMix"),
)


#: What earlier calls left, which a notebook cell that runs again passes.
_rests = weakref.WeakSet[Any]()


class _NotFused(Exception):
    """Why an `Image` can't do a transform, the transform's index, and the fix, unless that is to move it."""

    def __init__(self, why: str, fix: str = "", index: int = 0, *, may_move: bool = True) -> None:
        super().__init__(why)
        self.fix, self.index, self.may_move = fix, index, may_move


def split_transform(kind: Any, transform: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """Returns the result of `Image.from_torchvision`; ``kind`` is the class of the field."""
    if any(transform is rest for rest in _rests):
        raise ValueError(
            f"{_NAME}: transform must be the original one, got the rest that an earlier call returned; use the "
            "field of that call, and convert each transform once"
        )
    transforms = _flat(transform)
    for part in transforms:
        if isinstance(part, type) and _library(part):
            raise TypeError(
                f"{_NAME}: transform must consist of transforms, got the class {part.__name__}; create it "
                f"with parentheses: {part.__name__}(...)"
            )
    if transforms and not any(map(_name, transforms)):
        names = ", ".join(type(part).__name__ for part in transforms)
        got = names if transforms == [transform] else f"{type(transform).__name__} of {names}"
        raise TypeError(
            f"{_NAME}: transform must be from torchvision or timm, or a list of such transforms, got {got}; "
            "call other transforms in the dataset's __getitem__, and leave them out here"
        )
    derived = [key for key in options if key in _FROM_TRANSFORM]
    if derived:
        raise TypeError(
            f"{_NAME}: {derived[0]} must be left out, because the transform determines it; to change it, write "
            "the field yourself, as print(image) shows it"
        )
    for part in transforms:
        if _name(part) in ("FiveCrop", "TenCrop"):
            raise ValueError(
                f"{_NAME}: transform must return one image, but {type(part).__name__} returns several; stack "
                "their bytes in the dataset with torch.stack([pil_to_tensor(crop) for crop in crops]), and "
                "write the field Image(mean, std, input='TCHW', output='TCHW')"
            )
    layouts = _layouts(transforms, str(options.get("input", "")))
    dtypes = _dtypes(transforms, layouts)
    first = next((i for i, dtype in enumerate(dtypes) if dtype not in (None, torch.uint8)), None)
    arguments, got = {}, "it is empty"
    for start in range(len(transforms)):
        try:
            arguments = _arguments(kind, transforms, layouts, dtypes, start)
            break
        except _NotFused as error:
            if start == first:
                raise ValueError(f"{_NAME}: {_advice(error, transforms, first)}") from None
            got = f"it ends with {type(transforms[-1]).__name__}, and {error}"
    else:
        raise ValueError(
            f"{_NAME}: transform must end with a step that an Image can apply, but {got}; if an earlier call "
            "returned the transform, use the field of that call; otherwise keep the transform and write the "
            "field: Image(dtype=torch.uint8) keeps bytes, Image() makes floats of 0..1"
        )
    rest = _like(transform, transforms[:start])
    _rests.add(rest)
    return rest, kind(**arguments | options)


def _advice(error: _NotFused, transforms: list[Any], first: int) -> str:
    """Returns the hint for a transform that an `Image` can't do after the conversion to floats."""
    index = error.index
    name, converter = (type(transforms[i]).__name__ for i in (index, first))
    text = f"{name}: {error}" if index == first else f"{name} comes after {converter}, and {error}"
    between = [part for part in transforms[first:index] if not _is_conversion(part)]
    if error.fix:
        return f"{text}; {error.fix}"
    later = [type(part).__name__ for part in transforms[index + 1 :]]
    left = " and ".join(["it", *later])
    called = "them" if later else "it"
    of_batch = "the batch" if name in ("MixUp", "CutMix") else "each image of the batch"
    fix = f"leave {left} out, and call {called} on {of_batch}"
    if name == "ToPILImage" and all(map(_takes_bytes, between)):
        return f"{text}; leave out {converter} and ToPILImage"
    if error.may_move and index > first and all(map(_takes_bytes, [*between, transforms[index]])):
        names = " and ".join([*(type(part).__name__ for part in between), "it"])
        gets = (
            ", where it gets a PIL image," if "ToTensor" in converter else ", where it gets bytes,"
        )
        gets = "," if converter == "Normalize" else gets
        fix = f"move {names} before {converter}{gets} or {fix}"
    return f"{text}; {fix}"


def _takes_bytes(transform: Any) -> bool:
    parts = [transform, *getattr(transform, "transforms", ())]
    return not any(_name(part) in _OF_FLOATS for part in parts)


def _is_conversion(transform: Any) -> bool:
    """Whether it changes values or containers of all pixels equally, without moving them."""
    return _KNOWN.get(_name(transform)) in (_keep, _add_identity, _add_conversion, _add_normalize)


def may_be_random(transform: Any) -> bool:
    """Whether a transform may draw random numbers; an unknown one may."""
    return not all(_is_conversion(part) or _name(part) in _NOT_RANDOM for part in _flat(transform))


def _library(transform: Any) -> str:
    """Returns ``"torchvision"`` or ``"timm"`` for their classes and objects."""
    module = (transform if isinstance(transform, type) else type(transform)).__module__
    for library in ("torchvision.transforms", "timm.data"):
        if module == library or module.startswith(f"{library}."):
            return library.partition(".")[0]
    return ""


def _name(transform: Any) -> str:
    """Returns the class name; timm's ``ToTensor``, which doesn't scale, has another name."""
    if type(transform) is torch.nn.Identity:
        return "Identity"
    library, name = _library(transform), type(transform).__name__
    if library == "timm" and name in ("ToTensor", "RandomErasing"):
        return f"timm.{name}"
    return name if library else ""


def _flat(transform: Any) -> list[Any]:
    """Returns the single transforms, in order; subclasses of containers may do more than apply them."""
    if type(transform) in (list, tuple, torch.nn.Sequential):
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
    if not rest and is_v2:  # accepts any arguments, like all transforms of v2
        return sys.modules["torchvision.transforms.v2"].Identity()
    if not rest or type(transform) is torch.nn.Sequential:
        return torch.nn.Sequential(*rest) if rest else torch.nn.Identity()
    if _name(transform) == "Compose":
        return type(transform)(rest)
    module: Any = sys.modules["torchvision.transforms.v2" if is_v2 else "torchvision.transforms"]
    return module.Compose(rest)


def _dtypes(transforms: list[Any], layouts: list[str]) -> list[torch.dtype | None]:
    """Returns the dtype that each transform gives images, None if it keeps theirs."""
    dtypes: list[Any] = []
    kind = "Image"  # a key of v2's ToDtype(dtype={...}); at first also for samples that are tensors
    for part, layout in zip(transforms, layouts, strict=True):
        name = _name(part)
        dtype = None
        if name in ("ToTensor", "MaybeToTensor", "Normalize"):
            dtype = torch.get_default_dtype()
        elif name == "timm.ToTensor" or (name in _OF_TENSORS and layout != "PIL"):
            dtype = part.dtype
        if isinstance(dtype, dict):
            by_name = {getattr(key, "__name__", key): value for key, value in dtype.items()}
            dtype = by_name.get(kind, by_name.get("others"))
        dtypes.append(dtype)
        if name in (*_TO_TENSOR, "timm.ToTensor", "ToPureTensor"):
            kind = "Image" if name == "ToImage" else "Tensor"
    return dtypes


def _layouts(transforms: list[Any], sample_layout: str) -> list[str]:
    """What each transform gets: ``"PIL"``, ``"tensor"`` or not known.

    ``sample_layout`` is the layout of samples; empty if the user did not pass it.
    """
    names = [_name(part) for part in transforms]
    conversions = [name for name in names if name in (*_TO_TENSOR, "timm.ToTensor", "ToPILImage")]
    layout = ""
    if sample_layout.lstrip("T").startswith("C"):
        layout = "tensor"
    elif conversions:
        layout = "" if conversions[0] == "ToPILImage" else "PIL"
    elif {*names} & {*_OF_TENSORS, "Normalize"}:
        layout = "tensor"
    layouts = []
    for name in names:
        layouts.append(layout)
        if name in (*_TO_TENSOR, "timm.ToTensor"):
            layout = "tensor"
        elif name == "ToPILImage":
            layout = "PIL"
    return layouts


@dataclass
class _Plan:
    """The arguments of an `Image`, collected from one transform after the other."""

    input: str = ""  # "tensor" if samples are tensors
    layout: str = ""  # of the images that the next transform gets
    target: torch.dtype | None = None  # that the next transform converts to
    steps: list[Geometry] = field(default_factory=list)
    interpolation: str | tuple[str, ...] | None = None
    is_scaled: bool = True  # whether floats before normalization go from 0 to 1
    in_floats: bool = False  # whether floats are resized
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
        arguments["dtype"] = self.dtype if self.is_float else torch.uint8
        if not self.is_scaled:
            arguments["scale"] = 1
        if self.input == "tensor":
            arguments["input"] = "CHW"
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


def _arguments(
    kind: Any,
    transforms: list[Any],
    layouts: list[str],
    dtypes: list[torch.dtype | None],
    start: int,
) -> dict[str, Any]:
    """Returns the arguments of the field for all transforms from ``start`` on."""
    plan = _Plan(input=layouts[start])
    if start > 0 and _KNOWN.get(_name(transforms[start - 1])) is _keep:
        plan.values = "bytes"
    for index in range(start, len(transforms)):
        part, plan.layout, plan.target = transforms[index], layouts[index], dtypes[index]
        try:
            if (add := _KNOWN.get(_name(part))) is None:
                raise _NotFused("an Image can't apply it")
            add(plan, part)
            kind(**plan.arguments())
        except _NotFused as error:
            error.index = index
            raise
        except (TypeError, ValueError) as error:
            raise _NotFused(f"an Image can't apply it ({error})", index=index) from error
    return plan.arguments()


def _add_step(plan: _Plan, step: Geometry, *, pads: bool = False) -> None:
    """Adds a geometric transform. Unless it is a flip, it must come before colors and erasing."""
    if plan.colors or plan.erasing is not None:
        fix = "put it before the erasing" if plan.erasing is not None else ""
        raise _NotFused("an Image applies it before colors and erasing", fix)
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
        raise _NotFused(f"an Image has no interpolation {', '.join(names)!r}")
    if "nearest" not in names[0] and getattr(transform, "antialias", True) is not True:
        fix = "leave out antialias=False"
        raise _NotFused("an Image always antialiases", fix)
    _add_step(plan, step)
    plan.interpolation = names[0] if len(names) == 1 else tuple(names)
    plan.in_floats = plan.is_float


def _as_fill(plan: _Plan, fill: Any) -> Any:
    """Returns a number in units of bytes, or one per channel."""
    if isinstance(fill, dict | str):  # by type, or the name of a color
        raise _NotFused(f"an Image takes numbers as fill, not {fill!r}")
    numbers = [0] if fill is None else _numbers(fill)
    if plan.values == "normalized":  # and before, it would add another color
        raise _NotFused("an Image pads before it normalizes", may_move=False)
    unit = 255 if plan.values == "scaled" else 1
    integers = tuple(round(number * unit) for number in numbers)
    bytes_ = [min(max(number, 0), 255) for number in integers]
    off = max(abs(n * unit - b) for n, b in zip(numbers, bytes_, strict=True))
    if off > _OFF:
        shown = ", ".join(f"{number} / 255" if unit == 255 else str(number) for number in bytes_)
        fix = f"use the nearest color, fill={shown if len(bytes_) == 1 else f'({shown})'}"
        raise _NotFused(f"an Image fills with whole bytes, which {fill!r} is not", fix)
    return integers[0] if len({*integers}) == 1 else integers


def _numbers(values: Any) -> list[float]:
    """Returns Python numbers; for float32, the shortest decimals with the same float32."""
    parts = values if isinstance(values, list | tuple) else [values]
    flat = [number for part in parts for number in np.asarray(part).reshape(-1)]
    return [float(str(number)) if number.dtype.kind == "f" else int(number) for number in flat]


def _per_channel(values: Sequence[float]) -> Any:
    """Returns one number, or one per channel."""
    return values[0] if len(values) == 1 else tuple(values)


def _add_pad(plan: _Plan, transform: Any) -> None:
    mode = transform.padding_mode
    fill = _as_fill(plan, transform.fill) if mode == "constant" else 0
    step = Pad(_sides(transform) or 0, fill, mode)
    _add_step(plan, step, pads=mode == "constant")


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
    fill = _as_fill(plan, transform.fill) if pads and mode == "constant" else 0
    step = RandomCrop(_square(transform.size), padding, if_needed, fill, mode)
    _add_step(plan, step, pads=pads and mode == "constant")


def _add_center_crop(plan: _Plan, transform: Any) -> None:
    size = transform.size
    mode: Any = getattr(transform, "padding_mode", "constant")
    step = CenterCrop(_square(size), padding_mode=mode)
    if plan.values == "normalized" and mode == "constant" and not hasattr(transform, "fill"):
        why = f"it pads images smaller than {tuple(size)} after Normalize, but an Image before"
        raise _NotFused(why)
    fill = _as_fill(plan, getattr(transform, "fill", 0)) if mode == "constant" else 0
    if fill != 0:
        if plan.pads:
            raise _NotFused("an Image has a single fill")
        plan.fill = fill
    _add_step(plan, step, pads=mode == "constant")


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
    fill = _as_fill(plan, transform.fill)
    step = RandomZoomOut(fill, tuple(transform.side_range), transform.p)
    _add_step(plan, step, pads=True)


def _add_iou_crop(plan: _Plan, crop: Any) -> None:
    ranges = crop.min_scale, crop.max_scale, crop.min_aspect_ratio, crop.max_aspect_ratio
    options = None if [*crop.options] == _OVERLAPS else [*crop.options]
    _add_step(plan, RandomIoUCrop(*ranges, options, crop.trials))


def _add_jitter(plan: _Plan, transform: Any) -> None:
    if transform.hue is not None:
        raise _NotFused("an Image does not change the hue")
    three = transform.brightness, transform.contrast, transform.saturation
    factors = (0 if factor is None else tuple(factor) for factor in three)
    _add_color(plan, ColorJitter(*factors, p=getattr(transform, "p", 1)))


def _add_color(plan: _Plan, color: Coloring) -> None:
    if plan.is_float:
        raise _NotFused("an Image applies it to bytes, which gives other values")
    if plan.erasing is not None:
        raise _NotFused("an Image changes colors before it erases")
    plan.colors.append(color)


def _add_with_chance(plan: _Plan, transform: Any) -> None:
    """Adds a RandomApply of one transform that has a probability in pinfeed."""
    parts = _flat([*transform.transforms])
    if len(parts) != 1 or _name(parts[0]) not in _WITH_CHANCE:
        raise _NotFused(f"an Image applies only {', '.join(_WITH_CHANCE)} at random")
    part = copy.copy(parts[0])
    part.p = transform.p * getattr(part, "p", 1)
    _KNOWN[_name(part)](plan, part)


def _keep(plan: _Plan, transform: Any) -> None:
    """Adds a conversion of pixels to another container."""
    if plan.is_float and _name(transform) == "ToPILImage":
        raise _NotFused("an Image converts to floats last")
    if getattr(transform, "mode", None) is not None:
        raise _NotFused("an Image keeps the channels of its samples")
    if plan.values == "start":
        plan.values = "bytes"


def _add_identity(plan: _Plan, transform: Any) -> None:
    if not plan.is_float:
        raise _NotFused("it stays where it is")


def _add_conversion(plan: _Plan, transform: Any) -> None:
    dtype = plan.target
    if dtype is None or (dtype == torch.uint8 and not plan.is_float):
        return
    if dtype not in (torch.float32, *_HALVES):
        raise _NotFused(f"an Image can't convert bytes to {dtype}")
    if not plan.is_float:
        plan.is_scaled = getattr(transform, "scale", _name(transform) != "timm.ToTensor")
        plan.values = "scaled" if plan.is_scaled else "unscaled"
        if plan.is_scaled:
            _convert_erasing(plan, lambda values: [value / 255 for value in values])
    plan.dtype = dtype


def _add_normalize(plan: _Plan, transform: Any) -> None:
    if plan.values == "bytes" or (plan.values == "start" and plan.colors):
        fix = "put ToDtype(torch.float32, scale=True) before it"
        raise _NotFused("its input is bytes", fix)
    if plan.dtype != torch.float32:
        raise _NotFused(f"an Image normalizes in float32, and not in {plan.dtype}")
    mean, std = _numbers(transform.mean), _numbers(transform.std)
    if not plan.is_scaled:
        constants = Normalization(_per_channel(mean), _per_channel(std), 1, "Image")
        try:
            constants.check_units("Image")
        except ValueError:
            why = "has constants for values of 0..1, but gets values of 0..255"
            raise _NotFused(why, "write ToDtype(torch.float32, scale=True)") from None
    channels = max(len(mean), len(std))

    def normalized(values: Iterable[float]) -> list[float]:
        several = [*values]
        several = several * channels if len(several) == 1 else several
        means, stds = (part * len(several) if len(part) == 1 else part for part in (mean, std))
        return [(v - m) / s for v, m, s in zip(several, means, stds, strict=True)]

    _convert_erasing(plan, normalized)
    if plan.normalization is not None:
        raise _NotFused("an Image normalizes once")
    plan.normalization = _per_channel(mean), _per_channel(std)
    plan.values = "normalized"


def _convert_erasing(plan: _Plan, convert: Any) -> None:
    """Returns the value of an earlier erasing in the units after this transform."""
    if plan.erasing is None:
        return
    value = plan.erasing["value"]
    if value == "random":
        raise _NotFused("an Image erases with random values after it normalizes")
    numbers = convert(value if isinstance(value, tuple) else [value])
    plan.erasing["value"] = _per_channel(numbers)


def _add_erasing(plan: _Plan, transform: Any) -> None:
    value: Any = "random"
    if _name(transform) == "timm.RandomErasing":
        is_one = (transform.min_count, transform.max_count) == (1, 1)
        if not is_one or transform.num_splits or transform.rand_color:
            why = "an Image erases one rectangle, with one value or with noise"
            raise _NotFused(why)
        probability, value = transform.probability, "random" if transform.per_pixel else 0
        scale = (transform.min_area, transform.max_area)
        ratio = tuple(float(np.exp(number)) for number in transform.log_aspect_ratio)
    else:
        probability, scale, ratio = transform.p, tuple(transform.scale), tuple(transform.ratio)
        if transform.value is not None and transform.value != "random":
            value = _per_channel(_numbers(transform.value))
    if plan.erasing is not None:
        raise _NotFused("an Image erases once")
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
    "RandomGrayscale": lambda plan, one: _add_color(plan, RandomGrayscale(one.p)),
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
