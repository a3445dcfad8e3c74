"""Where the result goes: memory, one file, or a directory of files."""

from __future__ import annotations

import ast
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from pinfeed.exports.to_numpy.draft_file import DraftFile
from pinfeed.exports.to_numpy.memory import Memory
from pinfeed.exports.to_numpy.storage import Storage
from pinfeed.files.draft import Draft
from pinfeed.sources.ragged import holds_ragged


class Output(ABC):
    """Makes the storages of all columns, and puts them in place together.

    Attributes:
        in_memory: Whether arrays take memory.
        holds_lists: Whether a leaf may be a list of objects.
        holds_ragged: Whether a leaf may be a RaggedArray.
    """

    in_memory = False
    holds_lists = False
    holds_ragged = True

    @abstractmethod
    def storage(self, dtype: np.dtype[Any]) -> Storage:
        """A storage for one array."""

    def name(self, steps: Sequence[str], where: str) -> str:
        """What the files of a leaf are called, without ending.

        Args:
            steps: From the root of the structure to the leaf, as in `pinfeed.structure`.
            where: What messages call the leaf.

        Raises:
            ValueError: The leaf can have no name of its own.
        """
        return ""

    @abstractmethod
    def commit(self) -> None:
        """Makes what is in the finished storages the result."""

    @abstractmethod
    def discard(self) -> None:
        """Removes what isn't the result, and all of it before `commit`."""


class InMemory(Output):
    """Arrays in memory."""

    in_memory = True
    holds_lists = True

    def storage(self, dtype: np.dtype[Any]) -> Storage:
        """See `Output.storage`."""
        return Memory(dtype)

    def commit(self) -> None:
        """See `Output.commit`."""

    def discard(self) -> None:
        """See `Output.discard`."""


class InFiles(Output):
    """A .npy file, or a directory of them, that is complete or absent.

    All is written into a hidden directory beside the path, and renamed when it is on the disk.

    Args:
        path: A file if it ends in .npy, else a directory.
        overwrite: Whether to replace what is there.

    Raises:
        FileExistsError: There is something that is not to be replaced.
        OSError: Nothing can be written there.
    """

    def __init__(self, path: str | os.PathLike[str], overwrite: bool) -> None:
        self._is_file = os.path.realpath(os.fsdecode(path)).endswith(".npy")
        self.holds_ragged = not self._is_file
        self._draft = Draft(
            path,
            is_file=self._is_file,
            overwrite=overwrite,
            is_own=holds_arrays,
            writer="to_numpy",
            name="to_numpy: out",
        )
        self._files: list[DraftFile] = []
        self._names: set[str] = set()

    def storage(self, dtype: np.dtype[Any]) -> Storage:
        """See `Output.storage`."""
        kept = np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype))
        if kept != dtype:  # those of ml_dtypes come back as bytes
            raise TypeError(f"to_numpy: a .npy file can't hold {dtype}; convert with .astype(...)")
        draft = self._draft
        final = os.path.dirname(draft.path) if self._is_file else draft.path
        scratch = os.path.join(draft.scratch, str(len(self._files)))
        file = DraftFile(dtype, scratch, draft.folder, final)
        self._files.append(file)
        return file

    def name(self, steps: Sequence[str], where: str) -> str:
        """See `Output.name`: steps joined with dots."""
        if self._is_file:
            name = os.path.basename(self._draft.path).removesuffix(".npy")
            hint = "a .npy file holds one array; give the path of a directory"
        else:
            name = file_name(steps)
            hint = "rename a key"
        for taken in (name, f"{name}.npy"):  # the first of a RaggedArray's directory
            if taken in self._names:
                raise ValueError(f"{where}: another leaf is already written to {taken}; {hint}")
            self._names.add(taken)
        return name

    def commit(self) -> None:
        """See `Output.commit`."""
        self._draft.commit()

    def discard(self) -> None:
        """See `Output.discard`."""
        for file in self._files:
            file.close()
        self._draft.discard()


def file_name(steps: Sequence[str]) -> str:
    """What the file of a leaf is called, without ending; nothing for a structure's root."""
    name = ".".join(_readable(step) for step in steps)
    if name.startswith("."):  # hidden, or a directory above
        return f"%2E{name[1:]}"
    return name if name or not steps else "%"


def _readable(step: str) -> str:
    """A step as part of a file's name: ``image`` of ``['image']``, ``0`` of ``[0]``, ``x`` of ``.x``."""
    text = step[1:] if step.startswith(".") else step[1:-1]
    if text[0] in "'\"":
        text = ast.literal_eval(text)
    return text.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")


def holds_arrays(directory: str) -> bool:
    """Whether all that is there may come from here: only such a directory is ever removed."""
    with os.scandir(directory) as entries:
        return all(
            holds_ragged(entry.path)
            if entry.is_dir(follow_symlinks=False)
            else entry.name.endswith(".npy")
            for entry in entries
        )
