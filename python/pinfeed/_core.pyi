"""The native module, which is private: the Python package checks and documents arguments."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

version: str
compiler: str

class FileArray:
    def __init__(self, array: npt.NDArray[Any], path: str, fd: int, offset: int) -> None: ...
    @staticmethod
    def of_parts(
        array: npt.NDArray[Any],
        paths: Sequence[str],
        stamps: Sequence[Sequence[int]],
        offsets: Sequence[int],
        ends: Sequence[int],
    ) -> FileArray: ...

class PartArrays:
    def __init__(self, arrays: tuple[Any, ...], offsets: tuple[Any, ...] | None = None) -> None: ...

class LateImage:
    def __init__(self, image: Any, shape: Sequence[int]) -> None: ...

def lend_pixels(
    lent: Any, height: int, width: int, channels: int, step: int, dtype: np.dtype[Any]
) -> npt.NDArray[Any]: ...

page_bytes: int

def create_shared_file(name: str) -> int: ...
def compare_exchange(
    integers: npt.NDArray[np.int64], index: int, expected: int, desired: int
) -> bool: ...

class SharedSlot:
    def __init__(self, descriptor: int, offset: int, capacity: int, is_new: bool) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def readers(self) -> int: ...
    def claim(self, bytes: int) -> torch.Tensor | None: ...
    def send(self) -> None: ...
    def receive(self, start: int, bytes: int) -> torch.Tensor | None: ...
    def discard(self) -> bool: ...
    def retire(self) -> None: ...

_GeometryKind: TypeAlias = Literal[
    "random_crop",
    "center_crop",
    "pad",
    "zoom_out",
    "iou_crop",
    "random_resized_crop",
    "resize",
    "resize_edges",
    "resize_between",
    "resize_to_one_of",
    "scale_jitter",
    "keep_ratio",
    "flip_rows",
    "flip_columns",
]
_BorderKind: TypeAlias = Literal["constant", "edge", "reflect"]
_BoxFormat: TypeAlias = Literal["xyxy", "xywh", "cxcywh"]
# Corners of the boxes of objects, the beginnings of each image's objects, and flags of those that
# remain.
_Objects: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]
_Interpolation: TypeAlias = Literal["bilinear", "bicubic", "nearest", "nearest-exact"]
# Values, sizes, mask and crops of images.
_WrittenImages: TypeAlias = tuple[Any, Any, Any, Any]
# Where outputs go: an array, an allocator, or the pool, as tensors, ndarrays or the samples' type.
_Target: TypeAlias = Callable[[tuple[int, ...], str], Any] | type | Any | None

# Options of calls, which fields create once. All of them can be pickled.
class ImageFormat:
    def __init__(
        self,
        *,
        mean: npt.NDArray[np.float64],
        std: npt.NDArray[np.float64],
        scale: float | None,
        input: str,
        is_guess: bool = False,
        remembers: bool = False,
        output: str,
        dtype: str,
    ) -> None: ...
    @property
    def output(self) -> str: ...

class PatchSizes:
    def __init__(
        self,
        *,
        patch: int = 0,
        multiple: int = 1,
        min_side: int = 1,
        min_pixels: float = 0,
        max_pixels: float = 0,
        max_patches: int = 0,
    ) -> None: ...

class PatchOptions:
    def __init__(
        self, *, sizes: PatchSizes = ..., merge: int = 1, temporal: int = 1, pad_to: int = 0
    ) -> None: ...
    @property
    def sizes(self) -> PatchSizes: ...

class ImagePaddingOptions:
    def __init__(
        self,
        *,
        value: Any,
        multiple_of: tuple[int, ...] = (1, 1),
        sizes: bool = False,
        mask: bool = False,
        min_size: tuple[int, int] = (0, 0),
    ) -> None: ...

class GeometryStep:
    def __init__(
        self,
        *,
        kind: _GeometryKind,
        height: int = 0,
        width: int = 0,
        share: Sequence[float] = (0, 0),
        above: int = 0,
        left: int = 0,
        below: int = 0,
        right: int = 0,
        pad_if_needed: bool = False,
        as_transformers: bool = False,
        range: Sequence[float] = (0, 0),
        ratio: Sequence[float] = (0, 0),
        sizes: Sequence[int] = (),
        overlaps: Sequence[float] = (),
        trials: int = 0,
        probability: float = 0,
        longest: float = 0,
        by_area: bool = False,
        ratio_probability: float = 0,
    ) -> None: ...

class ColorStep:
    def __init__(
        self,
        *,
        brightness: Sequence[float] = (1, 1),
        contrast: Sequence[float] = (1, 1),
        saturation: Sequence[float] = (1, 1),
        probability: float = 1,
    ) -> None: ...

class BorderOptions:
    def __init__(self, *, kind: _BorderKind = "constant", fill: Sequence[float] = (0,)) -> None: ...
    @property
    def kind(self) -> _BorderKind: ...

class AugmentOptions:
    def __init__(
        self,
        *,
        steps: Sequence[GeometryStep] = (),
        border: BorderOptions = ...,
        resized_border: BorderOptions = ...,
        interpolation: _Interpolation,
        one_of: Sequence[_Interpolation] = (),
        in_floats: bool,
        colors: Sequence[ColorStep] = (),
        may_be_small: bool = False,
    ) -> None: ...

class ImageCrops:
    @property
    def sources(self) -> list[tuple[int, int]]: ...
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

class BoxOptions:
    def __init__(
        self,
        *,
        format: _BoxFormat = "xyxy",
        of_image: bool = False,
        of_batch: bool = False,
        min_size: float = 1,
        min_area: float = 1,
    ) -> None: ...

class ErasingOptions:
    def __init__(
        self,
        *,
        probability: float,
        area: Sequence[float],
        ratio: Sequence[float],
        values: list[float] | torch.Tensor,
    ) -> None: ...

class PadOptions:
    def __init__(
        self,
        *,
        value: complex,
        axes: Sequence[int] | None,
        one_axis: bool,
        side: str,
        max_length: int | None,
        multiple_of: Sequence[int],
        dtype: str | None,
        scale: float | None,
    ) -> None: ...

class PackOptions:
    def __init__(
        self,
        *,
        fill: complex,
        first: complex | None,
        dtype: str | None,
        flat: bool,
        position_start: int,
        position_ids: bool,
        document_ids: bool,
        seq_idx: bool,
        attention_mask: bool,
        cu_seqlens: bool,
    ) -> None: ...

def normalize_images(
    images: Any,
    indices: npt.NDArray[np.int64] | None,
    format: ImageFormat,
    target: _Target,
    name: str,
    threads: int,
    argument: str = "",
    padding: ImagePaddingOptions | None = None,
) -> _WrittenImages: ...
def patch_grids(
    images: npt.NDArray[np.int64], sizes: PatchSizes, name: str, is_single: bool
) -> npt.NDArray[np.int64]: ...
def patch_images(
    images: Any,
    indices: npt.NDArray[np.int64] | None,
    frames: npt.NDArray[np.int64] | None,
    format: ImageFormat,
    options: PatchOptions,
    augment: AugmentOptions,
    target: _Target,
    name: str,
    threads: int,
    *,
    key: int,
    samples: npt.NDArray[np.int64],
) -> Any: ...
def crop_images(
    images: Any,
    indices: npt.NDArray[np.int64] | None,
    format: ImageFormat,
    options: AugmentOptions,
    target: _Target,
    name: str,
    threads: int,
    *,
    key: int,
    samples: npt.NDArray[np.int64],
    entry: str,
    objects: _Objects | None = None,
    crops: ImageCrops | None = None,
    rows: Sequence[int] = (),
    padding: ImagePaddingOptions | None = None,
) -> _WrittenImages: ...
def to_corners(boxes: npt.NDArray[np.float64], format: _BoxFormat) -> bool: ...
def move_boxes(
    crops: ImageCrops,
    objects: _Objects,
    options: BoxOptions,
    slot: Sequence[float],
    target: _Target,
    name: str,
) -> tuple[Any, Any]: ...
def move_points(
    crops: ImageCrops,
    points: npt.NDArray[np.float64],
    offsets: npt.NDArray[np.int64],
    remain: npt.NDArray[np.bool_],
    target: _Target,
    name: str,
) -> tuple[Any, Any]: ...
def gather(
    source: Any,
    indices: npt.NDArray[np.int64] | None,
    dtype: str | None,
    scale: float | None,
    target: _Target,
    name: str,
    threads: int,
    argument: str = "",
) -> Any: ...
def gather_columns(
    sources: list[Any],
    indices: npt.NDArray[np.int64],
    target: _Target,
    names: tuple[str, ...],
    threads: int,
    keys: tuple[Any, ...] | None,
) -> list[Any] | dict[Any, Any]: ...
def stack(
    samples: Sequence[Any],
    dtype: str | None,
    scale: float | None,
    target: _Target,
    name: str,
    threads: int,
) -> Any: ...
def erase_images(
    batch: Any,
    layout: str,
    options: ErasingOptions,
    key: int,
    samples: npt.NDArray[np.int64],
    name: str,
    threads: int,
) -> None: ...
def alias_table(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]: ...
def draw_from_table(
    table: npt.NDArray[np.uint64], key: int, start: int, stop: int
) -> npt.NDArray[np.int64]: ...
def draw_keys(
    weights: npt.NDArray[np.float64], key: int, first: int
) -> npt.NDArray[np.float64]: ...
def permuted(size: int, keys: Sequence[int], start: int, stop: int) -> npt.NDArray[np.int64]: ...
def memmap_under(array: npt.NDArray[Any]) -> np.memmap[Any, Any] | None: ...
def require_whole_file(array: npt.NDArray[Any]) -> None: ...
def check_array(array: Any, name: str) -> None: ...
def check_plain_array(array: npt.NDArray[Any] | torch.Tensor, name: str) -> None: ...
def best_fit(
    lengths: npt.NDArray[np.int32], row_length: int, max_in_row: int, key: int | None
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]: ...
def first_fit(
    lengths: npt.NDArray[np.int32],
    row_length: int,
    max_in_row: int,
    order: npt.NDArray[np.int64] | None,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]: ...
def check_value(value: complex, dtype: str, function: str, keyword: str) -> None: ...
def join(
    source: Any,
    offsets: Any,
    indices: npt.NDArray[np.int64] | None,
    target: _Target,
    name: str,
    threads: int,
    *,
    side: str = "right",
    max_length: int | None = None,
    dtype: str | None = None,
    scale: float | None = None,
    lengths: npt.NDArray[np.int64] | None = None,
    argument: str = "",
) -> tuple[Any, Any]: ...
def pack(
    source: Any,
    offsets: Any,
    indices: npt.NDArray[np.int64] | None,
    packing: Any,
    options: PackOptions,
    target: _Target,
    name: str,
    threads: int,
) -> dict[str, Any]: ...
def pad(
    source: Any,
    offsets: Any,
    indices: npt.NDArray[np.int64] | None,
    options: PadOptions,
    target: _Target,
    name: str,
    threads: int,
    argument: str = "",
    *,
    lengths: bool,
    mask: str,
    replaced: tuple[int, int] | None = None,
) -> tuple[Any, Any, Any, Any]: ...
def permute(
    array: Any, axes: Sequence[int], target: Any | None, name: str, threads: int, argument: str = ""
) -> Any: ...
def as_indices(indices: Any, length: int, name: str) -> npt.NDArray[np.int64]: ...
def compiled_isas() -> list[str]: ...
def available_isas() -> list[str]: ...
def active_isa() -> str: ...
def force_isa(name: str) -> bool: ...
def available_cpus() -> int: ...
