"""Where the result goes: memory, one file, or a directory of files."""

from __future__ import annotations

import ast
import os
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from pinfeed.draining.draft_file import DraftFile
from pinfeed.draining.memory import Memory
from pinfeed.draining.storage import Storage

VALUES = "values.npy"
OFFSETS = "offsets.npy"


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
        self._path = os.path.realpath(os.fsdecode(path))  # of a link, what it points to
        self._overwrite = overwrite
        self._is_file = self._path.endswith(".npy")
        self.holds_ragged = not self._is_file
        self._require_free()
        self._parent, base = os.path.split(self._path)
        if not os.path.isdir(self._parent):
            raise FileNotFoundError(f"to_numpy: out: there is no directory {self._parent}")
        self._draft = os.path.join(self._parent, f".{base}.{secrets.token_hex(4)}")
        self._folder = os.path.join(self._draft, "result")
        self._files: list[DraftFile] = []
        self._names: set[str] = set()
        os.mkdir(self._draft)
        os.mkdir(self._folder)

    def storage(self, dtype: np.dtype[Any]) -> Storage:
        """See `Output.storage`."""
        draft = os.path.join(self._draft, str(len(self._files)))
        final = self._parent if self._is_file else self._path
        file = DraftFile(dtype, draft, self._folder, final)
        self._files.append(file)
        return file

    def name(self, steps: Sequence[str], where: str) -> str:
        """See `Output.name`: steps joined with dots."""
        if self._is_file:
            name = os.path.basename(self._path).removesuffix(".npy")
            hint = "a .npy file holds one array; give the path of a directory"
        else:
            name = ".".join(_readable(step) for step in steps)
            hint = "rename a key"
            if name.startswith("."):  # hidden, or a directory above
                name = f"%2E{name[1:]}"
            elif steps and not name:  # which is the name of a bare leaf
                name = "%"
        for taken in (name, f"{name}.npy"):  # the first of a RaggedArray's directory
            if taken in self._names:
                raise ValueError(f"{where}: another leaf is already written to {taken}; {hint}")
            self._names.add(taken)
        return name

    def commit(self) -> None:
        """See `Output.commit`."""
        self._require_free()  # again, because hours may have passed
        if self._is_file:
            _sync_directory(self._folder)
            os.replace(os.path.join(self._folder, os.path.basename(self._path)), self._path)
        else:
            for folder, _, _ in os.walk(self._folder):
                _sync_directory(folder)
            self._exchange()
        _sync_directory(self._parent)

    def discard(self) -> None:
        """See `Output.discard`."""
        for file in self._files:
            file.close()
        shutil.rmtree(self._draft, ignore_errors=True)

    def _require_free(self) -> None:
        if not os.path.lexists(self._path):
            return
        if not self._overwrite:
            raise FileExistsError(f"to_numpy: out: {self._path} exists; overwrite=True replaces it")
        if self._is_file == os.path.isdir(self._path) or not _is_output(self._path):
            raise FileExistsError(
                f"to_numpy: out: {self._path} is nothing that to_numpy wrote; remove it by hand"
            )

    def _exchange(self) -> None:
        old = os.path.join(self._draft, "old")
        replaces = os.path.lexists(self._path)
        if replaces:
            os.rename(self._path, old)
        try:
            os.rename(self._folder, self._path)
        except BaseException:
            if replaces:
                os.rename(old, self._path)
            raise


def _readable(step: str) -> str:
    """A step as part of a file's name: ``image`` of ``['image']``, ``0`` of ``[0]``, ``x`` of ``.x``."""
    text = step[1:] if step.startswith(".") else step[1:-1]
    if text[0] in "'\"":
        text = ast.literal_eval(text)
    return text.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")


def _is_output(path: str) -> bool:
    """Whether all that is there may come from here: only such a directory is ever removed."""
    if not os.path.isdir(path):
        return True
    with os.scandir(path) as entries:
        return all(
            {VALUES, OFFSETS}.issuperset(os.listdir(entry))
            if entry.is_dir(follow_symlinks=False)
            else entry.name.endswith(".npy")
            for entry in entries
        )


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
