"""The native module. Private: the package checks and documents, this executes."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

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
        marks: Sequence[Sequence[int]],
        offsets: Sequence[int],
        ends: Sequence[int],
    ) -> FileArray: ...

class PartArrays:
    def __init__(self, arrays: tuple[Any, ...], offsets: tuple[Any, ...] | None = None) -> None: ...

page_bytes: int

def create_shared_file(name: str) -> int: ...

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

# Where outputs go: an array, an allocator, or the pool: as tensors, ndarrays, or what samples are.
_Target: TypeAlias = Callable[[tuple[int, ...], str], Any] | type | Any | None
# mean, std and scale of Normalization, a letter for each axis ("HWC?" if nobody asked for it) and for
# each of the output, dtype
_ImageFormat: TypeAlias = tuple[Any, Any, float | None, str, str, str]
# pad_value, multiple_of, whether to return sizes, and a mask
_ImagePadding: TypeAlias = tuple[complex, tuple[int, int], bool, bool]
# kind, height and width, and the numbers that the kind has
_GeometryStep: TypeAlias = tuple[str, tuple[int, int], tuple[float, ...]]
# its kind, and what a constant one is filled with
_Border: TypeAlias = tuple[str, Sequence[float]]
# how images are interpolated, and whether bytes are without being rounded
_Interpolation: TypeAlias = tuple[str, bool]
# steps, borders before and after a resize, interpolation, key, samples that random numbers follow
# from, sizes of the images of a leaf that shares the windows, and its name, whether to return the
# windows
_Crop: TypeAlias = tuple[
    tuple[_GeometryStep, ...],
    tuple[_Border, _Border],
    _Interpolation,
    int,
    npt.NDArray[np.int64],
    tuple[npt.NDArray[np.int64], str] | None,
    bool,
    Sequence[tuple[str, float, Sequence[float]]],
]
# probability, range of the area and of the ratio; a list of one value for all channels or one for each,
# or a tensor of 2**16 to choose from
_Erasing: TypeAlias = tuple[float, tuple[float, float], tuple[float, float], Any]
# value, axes, whether lengths have no axis of their own, side, max_length, multiple_of, dtype, scale,
# time_major
_PadOptions: TypeAlias = tuple[
    complex,
    tuple[int, ...] | None,
    bool,
    str,
    int | None,
    tuple[int, ...] | None,
    str | None,
    float | None,
    bool,
]

def normalize_images(
    images: Any,
    indices: npt.NDArray[np.int64] | None,
    format: _ImageFormat,
    target: _Target,
    name: str,
    threads: int,
    argument: str = "",
) -> Any: ...
def pad_images(
    images: Any,
    indices: npt.NDArray[np.int64] | None,
    format: _ImageFormat,
    padding: _ImagePadding,
    target: _Target,
    name: str,
    threads: int,
) -> tuple[Any, Any | None, Any | None]: ...
def crop_images(
    images: Any,
    indices: npt.NDArray[np.int64] | None,
    format: _ImageFormat,
    crop: _Crop,
    target: _Target,
    name: str,
    threads: int,
) -> tuple[Any, npt.NDArray[np.int64], Any | None]: ...
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
def normalize_windows(
    images: Any,
    format: _ImageFormat,
    view: tuple[npt.NDArray[np.float64], tuple[int, int], _Interpolation],
    target: _Target,
    name: str,
    threads: int,
    argument: str = "",
) -> Any: ...
def erase_images(
    batch: Any,
    layout: str,
    format: _Erasing,
    key: int,
    samples: npt.NDArray[np.int64],
    name: str,
    threads: int,
) -> None: ...
def mix_images(images: Any, share: float, name: str, threads: int) -> None: ...
def alias_table(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]: ...
def draw_from_table(
    table: npt.NDArray[np.uint64], key: int, start: int, stop: int
) -> npt.NDArray[np.int64]: ...
def draw_keys(
    weights: npt.NDArray[np.float64], key: int, first: int
) -> npt.NDArray[np.float64]: ...
def permuted(size: int, keys: Sequence[int], start: int, stop: int) -> npt.NDArray[np.int64]: ...
def strings(
    source: Any,
    offsets: Any,
    indices: npt.NDArray[np.int64] | None,
    is_text: bool,
    name: str,
    threads: int,
) -> list[Any]: ...
def memmap_under(array: npt.NDArray[Any]) -> np.memmap[Any, Any] | None: ...
def require_whole_file(array: npt.NDArray[Any]) -> None: ...
def prefetch(source: Any, offsets: Any, indices: npt.NDArray[np.int64], name: str) -> None: ...
def best_fit(
    lengths: npt.NDArray[np.int32], row_length: int, most_in_row: int, key: int | None
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]: ...
def first_fit(
    lengths: npt.NDArray[np.int32],
    row_length: int,
    most_in_row: int,
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
    *,
    fill: complex,
    first: complex | None,
    dtype: str | None,
    flat: bool,
    marks: int,
    position_start: int,
    target: Any,
    name: str,
    threads: int,
) -> tuple[Any, Any, Any, Any, Any, Any, int]: ...
def pad(
    source: Any,
    offsets: Any,
    indices: npt.NDArray[np.int64] | None,
    options: _PadOptions,
    with_lengths_and_mask: tuple[bool, bool],
    target: _Target,
    name: str,
    threads: int,
    argument: str = "",
) -> tuple[Any, Any, Any]: ...
def permute(
    array: Any,
    axes: Sequence[int],
    target: Any | None,
    name: str,
    threads: int,
    argument: str = "",
) -> Any: ...
def as_indices(indices: Any, length: int, name: str) -> npt.NDArray[np.int64]: ...
def compiled_isas() -> list[str]: ...
def available_isas() -> list[str]: ...
def active_isa() -> str: ...
def force_isa(name: str) -> bool: ...
def available_cpus() -> int: ...
