"""Converts image processors of transformers to arguments of `Image`, `Mask` and `Patches`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pinfeed.augment.crops import CenterCrop
from pinfeed.augment.geometry import Compose, Geometry
from pinfeed.augment.sizes import Resize

# Families that resize, crop the center, rescale, normalize and pad, in this order.
_FAMILIES = ("ViT", "DeiT", "Beit", "CLIP", "Siglip", "Bit", "Segformer")
_WITH_MASKS = ("Segformer",)  # BEiT would interpolate classes
_OTHER_FAMILIES = ("ConvNext", "Detr", "ConditionalDetr", "DeformableDetr")
# Settings that an `Image` applies, or that don't concern images.
_COVERED = {
    *("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_pad"),
    *("do_reduce_labels", "do_convert_rgb", "do_convert_annotations"),
}
# Families that make patches, by arithmetic, which their settings don't show.
_BY_PIXELS = ("Qwen2VL", "MiniMaxM3VL", "Ernie4_5_VLMoe", "VideoLlama3")
_ROW_BY_ROW = ("HunYuanVL", "HYV4VL")  # the patches of a merged block stand apart
_BY_PIXELS_OF_ALL_FRAMES = ("Glm4v", "Glm46V")
_BY_PATCHES = ("Siglip2",)
_RESAMPLING = {0: "nearest-exact", 2: "bilinear", 3: "bicubic"}


def mask_arguments(processor: Any) -> dict[str, Any]:
    """Returns the `Mask` arguments that treat segmentation maps as a processor does."""
    settings = _Settings(processor, "Mask", _WITH_MASKS)
    arguments = settings.geometry()
    return arguments | ({"reduce_labels": True} if settings.on("do_reduce_labels") else {})


def processor_arguments(processor: Any) -> dict[str, Any]:
    """Returns the `Image` arguments equivalent to an image processor, or a processor that has one."""
    settings = _Settings(processor, "Image", (*_FAMILIES, *_OTHER_FAMILIES))
    arguments = settings.values() | settings.geometry()
    if settings.on("do_resize") and (interpolation := settings.interpolation()) != "bilinear":
        arguments["interpolation"] = interpolation
    return arguments | settings.padding()


def patches_arguments(processor: Any) -> dict[str, Any]:
    """Returns the `Patches` arguments equivalent to an image processor, or a processor that has one."""
    families = (*_BY_PIXELS, *_ROW_BY_ROW, *_BY_PIXELS_OF_ALL_FRAMES, *_BY_PATCHES)
    settings = _Settings(processor, "Patches", families)
    is_row_by_row = settings.family in _ROW_BY_ROW
    arguments: dict[str, Any] = {
        "patch_size": settings["patch_size"],
        "scale": settings["rescale_factor"] if settings.on("do_rescale") else 1,
        "interpolation": "bicubic" if is_row_by_row else settings.interpolation(),
        **settings.constants(),
    }
    if settings.family in _BY_PATCHES:
        max_patches = settings["max_num_patches"]
        arguments |= {"order": "HWC", "pad_to": max_patches}
        arguments |= {"mask": "pixel_attention_mask", "grid": "spatial_shapes"}
        return arguments | ({"max_patches": max_patches} if settings.on("do_resize") else {})
    temporal = settings["temporal_patch_size"]
    arguments |= {"temporal": temporal, "grid": "image_grid_thw"}
    arguments["multiple_of" if is_row_by_row else "merge"] = settings["merge_size"]
    if not settings.on("do_resize"):
        return arguments
    low, high = settings["size"]["shortest_edge"], settings["size"]["longest_edge"]
    if settings.family in _BY_PIXELS_OF_ALL_FRAMES:
        if temporal & (temporal - 1):  # the quotients would be rounded
            settings.refuse("temporal_patch_size", "powers of 2")
        low, high = low / temporal, high / temporal
        arguments["min_side"] = settings["patch_size"] * settings["merge_size"]
    return arguments | {"min_pixels": low, "max_pixels": high}


class _Settings:
    """The settings of a processor, with errors that name them."""

    def __init__(self, processor: Any, field: str, families: Sequence[str]) -> None:
        processor = getattr(processor, "image_processor", processor)
        kind = type(processor).__name__
        name = kind.removesuffix("Fast").removesuffix("Pil")
        self.family = name.removesuffix("ImageProcessor")
        self._processor, self._kind, self._field = processor, kind, field
        if self.family not in families or name == self.family:
            names = ", ".join(f"{family}ImageProcessor" for family in families)
            others = {
                "Image": ", or use Patches.from_processor for models of any size",
                "Patches": ", or use Image.from_processor for models of one size",
            }
            raise TypeError(
                f"{field}: processor must be one of {names}, or have one, got {kind}; write the "
                f"arguments of {field} yourself{others.get(field, '')}"
            )
        for key in vars(processor):
            if key.startswith("do_") and key not in _COVERED and self.on(key):
                self.refuse(key, "False")
        for key in ("data_format", "input_data_format"):
            if str(getattr(self[key], "value", self[key])) not in ("None", "channels_first"):
                self.refuse(key, "None")

    def __getitem__(self, key: str) -> Any:
        return getattr(self._processor, key, None)

    def on(self, key: str) -> bool:
        return bool(self[key])

    def refuse(self, setting: str, expected: str) -> None:
        wrong = f"{setting} of {self._kind} must be {expected}, got {self[setting]!r}"
        fix = f"write the arguments of {self._field} yourself"
        raise ValueError(f"{self._field}: {wrong}; {fix}")

    def values(self) -> dict[str, Any]:
        """Returns the arguments for values: mean, std and scale."""
        arguments = self.constants()
        if not self.on("do_rescale"):
            return arguments | ({"scale": 1} if arguments else {"dtype": torch.uint8})
        scale = self["rescale_factor"]
        return arguments if scale == 1 / 255 else arguments | {"scale": scale}

    def constants(self) -> dict[str, Any]:
        """Returns mean and std, if they are applied."""
        if not self.on("do_normalize"):
            return {}
        return {
            key: value if isinstance(value, float | int) else tuple(value)
            for key, value in (("mean", self["image_mean"]), ("std", self["image_std"]))
        }

    def interpolation(self) -> str:
        resample = self["resample"]
        interpolation = _RESAMPLING.get(2 if resample is None else int(resample))
        if interpolation is None:
            self.refuse("resample", "0 (nearest), 2 (bilinear) and 3 (bicubic)")
        return str(interpolation)

    def geometry(self) -> dict[str, Any]:
        steps = [*self.resizing(), *self.cropping()]
        if not steps:
            return {}
        return {"augment": steps[0] if len(steps) == 1 else Compose(steps)}

    def _size(self, key: str) -> dict[str, int]:
        """Returns the sizes under this key that are set."""
        size = self[key]
        items = size.items() if isinstance(size, Mapping) else vars(size or {}).items()
        return {name: int(number) for name, number in items if number}

    def resizing(self) -> list[Geometry]:
        if not self.on("do_resize"):
            return []
        size = self._size("size")
        edge = size.get("shortest_edge", 0)
        if self.family == "ConvNext":
            if not edge:
                self.refuse("size", "a shortest_edge")
            if edge >= 384:
                return [Resize((edge, edge))]
            return [Resize(int(edge / self["crop_pct"])), CenterCrop(edge, like="transformers")]
        if size.keys() == {"height", "width"}:
            return [Resize((size["height"], size["width"]))]
        if size.keys() == {"shortest_edge"}:
            return [Resize(edge)]
        if size.keys() != {"shortest_edge", "longest_edge"} or edge >= size["longest_edge"]:
            self.refuse(
                "size", "height and width, or shortest_edge with or without a larger longest_edge"
            )
        return [Resize(edge, max_size=size["longest_edge"], like="transformers")]

    def cropping(self) -> list[Geometry]:
        if not self.on("do_center_crop") or self.family == "Segformer":  # which ignores it
            return []
        if self.family not in _FAMILIES:
            self.refuse("do_center_crop", "False")
        if not self.on("do_resize"):  # smaller images are padded otherwise
            self.refuse("do_resize", "True with do_center_crop")
        crop, size = self._size("crop_size"), self._size("size")
        edge = size.get("shortest_edge", 0)
        if "longest_edge" in size:
            self.refuse("size", "shortest_edge alone, because do_center_crop is set")
        height, width = crop.get("height", 0), crop.get("width", 0)
        if not height or not width:
            self.refuse("crop_size", "a height and a width")
        is_larger = height > size.get("height", edge) or width > size.get("width", edge)
        if is_larger and self["backend"] != "torchvision":  # Pillow's pads elsewhere
            self.refuse("crop_size", f"crops of at most size={self['size']!r}")
        return [CenterCrop(height if height == width else (height, width), like="transformers")]

    def padding(self) -> dict[str, Any]:
        is_detector = self.family.endswith("Detr")
        if not self.on("do_pad"):
            return {}
        if self["pad_size"] is not None:
            self.refuse("pad_size", "None, which pads to the largest image of a batch")
        return {"pad_value": 0} | ({"mask": "pixel_mask"} if is_detector else {})
