"""Columns: what becomes of one leaf of all batches, and of the arrays in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from pinfeed.arguments import torch_dtype_name
from pinfeed.exports.to_numpy.storage import Array, Memory, OutputFiles, Storage
from pinfeed.functions.padding import Side

#: The arrays that a leaf consists of, on whatever device, or one list.
Parts = tuple[Any, ...]


@dataclass(frozen=True)
class Options:
    """How columns are made, as the caller asked for it.

    Attributes:
        files: Where arrays are written; None: into memory.
        bfloat16: What becomes of that dtype: ``"float32"``, or ``"uint16"`` for its bits.
        side: Where the padding of `Padded` batches is, and where more is added.
        function: What messages begin with.
    """

    files: OutputFiles | None = None
    bfloat16: str = "float32"
    side: Side | None = None
    function: str = "to_numpy"

    @property
    def holds_ragged(self) -> bool:
        """Whether a leaf may become a RaggedArray."""
        return self.files is None or not self.files.is_file

    def where(self, path: str, batch: int) -> str:
        """What messages call a leaf of a batch, or without a path the batch."""
        leaf = f"leaf {path} of " if path else ""
        return f"{self.function}: {leaf}batch {batch}"


class Column(ABC):
    """One leaf of all batches.

    The leaf of a batch goes through `parts`, `count` and `check`, which raise TypeError or
    ValueError if it doesn't fit; when no leaf of the batch did, it is written.

    Args:
        options: How columns are made.
        steps: From a batch to the leaf, as in `pinfeed.structure`.

    Attributes:
        path: The steps as one text, such as ``"['x'][0]"``.
        batch: The number of the batch at hand, for messages.
    """

    def __init__(self, options: Options, steps: Sequence[str]) -> None:
        self._options, self._steps = options, steps
        self.path, self.batch = "".join(steps), 0

    @property
    def where(self) -> str:
        """What messages call the leaf at hand, such as ``"to_numpy: leaf ['x'] of batch 3"``."""
        return self._options.where(self.path, self.batch)

    def _storage(self, dtype: np.dtype[Any], axes: int) -> Storage:
        """Where an array of at most so many axes is written."""
        files = self._options.files
        return Memory(dtype) if files is None else files.storage(dtype, axes, self.where)

    def _file_name(self) -> str:
        """What the leaf's files are called, without ending."""
        files = self._options.files
        return "" if files is None else files.name(self._steps, self.where)

    @abstractmethod
    def parts(self, leaf: Any) -> Parts:
        """The arrays of a leaf, on whatever device, or its one list."""

    def count(self, parts: Parts) -> int:
        """How many samples the leaf of a batch has."""
        return len(parts[0])

    def check(self, parts: Parts, end: int) -> None:  # noqa: B027
        """Raises if the leaf can't follow those before; ``end`` counts the samples with its own."""

    def size(self, samples: int) -> int:
        """How many bytes of memory so many samples take, as far as the first batch tells."""
        return 0

    def allocate(self, samples: int) -> None:  # noqa: B027
        """Makes room for that many samples, which may turn out to be more or fewer."""

    @abstractmethod
    def write(self, start: int, count: int, parts: Parts) -> None:
        """Copies the first ``count`` samples of a leaf, in memory by now, behind ``start`` others."""

    def finish(self, samples: int) -> None:  # noqa: B027
        """Brings what was written into its final form."""

    @abstractmethod
    def result(self) -> Any:
        """The column, once it is finished and the files are in their place."""

    @abstractmethod
    def partial(self, samples: int) -> Any:
        """The first samples, one at least, as they lie there; moves nothing, takes no memory.

        Raises:
            RuntimeError: They are in no order, because `finish` was left halfway.
        """


class ObjectColumn(Column):
    """Lists with an object for each sample, and arrays of strings or objects; becomes a list."""

    def __init__(self, options: Options, steps: Sequence[str]) -> None:
        super().__init__(options, steps)
        if options.files is not None:
            raise TypeError(
                f"{self.where}: a .npy file can't hold lists of objects; leave the leaf out, "
                "or make numbers of it"
            )
        self._objects: list[Any] = []

    @override
    def parts(self, leaf: Any) -> tuple[list[Any]]:
        if is_object_array(leaf):
            leaf = leaf.tolist()
        if not isinstance(leaf, list | tuple):
            raise TypeError(
                f"{self.where}: expected a list of objects as before, got {type(leaf).__name__}"
            )
        return (list(leaf),)

    @override
    def write(self, start: int, count: int, parts: Parts) -> None:
        self._objects += parts[0][:count]

    @override
    def result(self) -> list[Any]:
        return self._objects

    @override
    def partial(self, samples: int) -> list[Any]:
        return self._objects[:samples]


def is_object_array(leaf: Any) -> bool:
    """Whether a leaf is an array of Python objects, or of strings, whose dtype is their longest."""
    return isinstance(leaf, np.ndarray) and leaf.ndim > 0 and leaf.dtype.kind in "OUST"


def plain(array: Any, bfloat16: str, where: str) -> Array:
    """An array or a tensor, on whatever device, as one that only has to be copied.

    Args:
        array: What stands in the batch.
        bfloat16: What becomes of that dtype: ``"float32"``, or ``"uint16"`` for its bits.
        where: What messages call it.

    Raises:
        TypeError: There are no values that NumPy could hold.
    """
    if isinstance(array, torch.Tensor):
        return _plain_tensor(array, bfloat16, where)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{where}: expected a tensor or an ndarray, got {type(array).__name__}")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{where}: the mask of a masked array would be lost; use .filled()")
    if array.dtype.hasobject or array.dtype.itemsize == 0:
        raise TypeError(f"{where}: expected a dtype of fixed size, got {array.dtype}")
    return array


def _plain_tensor(tensor: torch.Tensor, bfloat16: str, where: str) -> torch.Tensor:
    if tensor.is_nested:
        raise TypeError(
            f"{where}: expected a dense tensor, got a nested one; "
            "use pinfeed.JaggedBatch(tensor.values(), tensor.offsets())"
        )
    if tensor.layout != torch.strided:
        raise TypeError(f"{where}: expected a dense tensor, got {tensor.layout}; use .to_dense()")
    if tensor.is_meta:
        raise TypeError(f"{where}: a tensor on the meta device has no values")
    tensor = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
    is_bits = tensor.dtype == torch.bfloat16 and bfloat16 == "uint16"
    return tensor.view(torch.uint16) if is_bits else tensor


def numpy_dtype(array: Array, where: str, before: np.dtype[Any] | None = None) -> np.dtype[Any]:
    """The dtype that an array has as part of the result.

    Args:
        array: As `plain` returned it.
        where: What messages call it.
        before: What it must be, because the batches before had it.

    Raises:
        TypeError: NumPy has none, or it is another one.
    """
    if isinstance(array, np.ndarray):
        dtype = array.dtype
    elif array.dtype == torch.bfloat16:
        dtype = np.dtype(np.float32)
    else:
        dtype = _dtype_of_tensor(array, where)
    if before is not None and dtype != before:
        raise TypeError(f"{where}: expected {before} as before, got {dtype}")
    return dtype


def _dtype_of_tensor(tensor: torch.Tensor, where: str) -> np.dtype[Any]:
    name = torch_dtype_name(tensor.dtype)
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.isbuiltin != 1 or dtype.hasobject:
        raise TypeError(
            f"{where}: NumPy has no {name}; convert with .float(), or take the bits with "
            f".view(torch.uint{8 * tensor.itemsize})"
        )
    return dtype
