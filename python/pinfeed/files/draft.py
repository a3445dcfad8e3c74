"""Files that are complete or absent: written beside their place, and renamed."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable

_LONGEST_NAME = 255  # bytes, on all usual file systems


class Draft:
    """What is being written for a path, in a hidden directory beside it.

    A process that is killed leaves that directory and nothing at the path; while a directory is
    replaced there is an instant between two renames when the old one is in there too.

    Args:
        path: A file or a directory. The directory that it is in must exist.
        is_file: Which of them.
        overwrite: Whether to replace what is there.
        is_own: Whether a directory may be replaced, for all in it may come from here.
        writer: Who writes such directories, for messages.
        name: What messages begin with.

    Attributes:
        path: Without links, so that those stay.
        scratch: The hidden directory; nothing of it stays.
        folder: A directory in there. `commit` makes it the directory at the path, or the file of the
            path's name in it the file there.

    Raises:
        FileExistsError: There is something that is not to be replaced.
        ValueError: The name is too long, or the directory is the current one.
        OSError: Nothing can be written there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        is_file: bool,
        overwrite: bool,
        is_own: Callable[[str], bool],
        writer: str,
        name: str,
    ) -> None:
        given = os.fsdecode(path)
        self.path = os.path.realpath(given)
        self._is_file, self._overwrite = is_file, overwrite
        self._is_own, self._writer, self._name = is_own, writer, name
        self._parent, base = os.path.split(self.path)
        if not is_file and self.path == os.getcwd():
            raise ValueError(
                f"{name}: {given!r} is the current directory, which can't be replaced; name a "
                "directory in it"
            )
        longest = _LONGEST_NAME - len(".." + secrets.token_hex(4))
        if len(os.fsencode(base)) > longest:
            raise ValueError(
                f"{name}: expected a name of at most {longest} bytes (the file is first written "
                f"under a longer one), got {len(os.fsencode(base))}: {base[:40]!r}..."
            )
        self._require_free()
        if is_file and base == ".npy":
            raise ValueError(f"{name}: expected a name before .npy, got {given!r}")
        self.scratch = os.path.join(self._parent, f".{base}.{secrets.token_hex(4)}")
        self.folder = os.path.join(self.scratch, "result")
        try:
            os.mkdir(self.scratch)
            os.mkdir(self.folder)
        except OSError as error:  # which names the hidden directory
            self.discard()
            raise OSError(error.errno, f"{name}: {error.strerror}", given) from error
        except BaseException:  # an interrupt
            self.discard()
            raise

    def commit(self) -> None:
        """Puts what is in `folder`, each file of it on the disk already, in its place."""
        self._require_free()  # again, because hours may have passed
        for folder, _, _ in os.walk(self.folder):
            sync_directory(folder)
        if self._is_file:
            os.replace(os.path.join(self.folder, os.path.basename(self.path)), self.path)
        else:
            self._exchange()
        sync_directory(self._parent)

    def discard(self) -> None:
        """Removes what isn't in its place."""
        try:
            shutil.rmtree(self.scratch, ignore_errors=True)
        except BaseException:  # an interrupt
            shutil.rmtree(self.scratch, ignore_errors=True)
            raise

    def _require_free(self) -> None:
        if not os.path.lexists(self.path):
            return
        if not self._overwrite:
            raise FileExistsError(f"{self._name}: {self.path} exists; overwrite=True replaces it")
        is_directory = os.path.isdir(self.path)
        if self._is_file == is_directory or (is_directory and not self._is_own(self.path)):
            raise FileExistsError(
                f"{self._name}: {self.path} is no {'file' if self._is_file else 'directory'} that "
                f"{self._writer} wrote; remove it by hand"
            )

    def _exchange(self) -> None:
        old = os.path.join(self.scratch, "old")
        try:
            if os.path.lexists(self.path):
                os.rename(self.path, old)
            os.rename(self.folder, self.path)
        except BaseException:  # an interrupt too, which may come behind either of them
            if os.path.lexists(old) and not os.path.lexists(self.path):
                os.rename(old, self.path)
            raise


def sync_directory(path: str) -> None:
    """Waits until the names in a directory are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
