"""Atomic writes: files and directories that are complete or absent."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
from collections.abc import Callable


class AtomicWrite:
    """Writes a file or a directory in a hidden directory beside its path, and renames it at the end.

    A killed process leaves the path unchanged, and the hidden directory, which the next write to the path
    removes. While a directory is replaced, there is an instant between two renames when the old one is
    hidden too. A second write to a path at the same time raises FileExistsError when it begins.

    Args:
        path: Path of a file or a directory. Its parent must exist.
        is_file: Whether the path is a file.
        overwrite: Whether to replace an existing path.
        is_own: Function that tells whether a directory's contents look like pinfeed's, so it may be
            replaced.
        name: Prefix of messages: the writing function, such as ``"to_numpy: out"``.

    Attributes:
        path: The path with links resolved, so links are preserved.
        scratch: The hidden directory, which `discard` removes.
        folder: A directory in ``scratch``. `commit` moves it, or the file in it with the path's name,
            to the path.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        is_file: bool,
        overwrite: bool,
        is_own: Callable[[str], bool],
        name: str,
    ) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            raise TypeError(f"{name}: expected a path, got {type(path).__name__}")
        self.path = os.path.realpath(os.fsdecode(path))
        self._is_file, self._overwrite = is_file, overwrite
        self._is_own, self._name = is_own, name
        parent, base = os.path.split(self.path)
        if is_file and base == ".npy":
            raise ValueError(f"{name}: expected a name before .npy, got {os.fsdecode(path)!r}")
        self.scratch = os.path.join(parent, f".{base}.{os.urandom(4).hex()}")
        self.folder = os.path.join(self.scratch, "result")
        try:
            self._claim = _Claim(self.path)
        except OSError as error:  # its message names a hidden file
            raise type(error)(
                error.errno, f"{name}: {error.strerror}", os.fsdecode(path)
            ) from error
        try:
            self._require_free()
            self._remove_remains(parent, base)
            os.mkdir(self.scratch)
            os.mkdir(self.folder)
        except BaseException:
            self.discard()
            raise

    def commit(self) -> None:
        """Moves the contents of `folder`, whose files are synced already, to the path."""
        self._require_free()  # again, because hours may have passed
        for folder, _, _ in os.walk(self.folder):
            _sync_directory(folder)
        if self._is_file:
            os.replace(os.path.join(self.folder, os.path.basename(self.path)), self.path)
        else:
            self._exchange()
        _sync_directory(os.path.dirname(self.path))

    def discard(self) -> None:
        """Removes everything that wasn't committed."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self._claim.release()

    def _require_free(self) -> None:
        if not os.path.lexists(self.path):
            return
        if not self._overwrite:
            raise FileExistsError(f"{self._name}: {self.path} exists; overwrite=True replaces it")
        is_directory = os.path.isdir(self.path)
        if self._is_file == is_directory or (is_directory and not self._is_own(self.path)):
            raise FileExistsError(
                f"{self._name}: {self.path} is not a {'file' if self._is_file else 'directory'} that "
                f"{self._name.partition(':')[0]} wrote; remove it by hand"
            )

    def _remove_remains(self, parent: str, base: str) -> None:
        """Removes leftovers of killed processes, which is safe because this claim is exclusive."""
        for name in os.listdir(parent) if self._claim.is_locked else ():
            if re.fullmatch(rf"\.{re.escape(base)}\.[0-9a-f]{{8}}", name):
                folder = os.path.join(parent, name)
                with contextlib.suppress(OSError):
                    if os.listdir(folder) == ["result"]:  # and not a replaced directory
                        shutil.rmtree(folder)

    def _exchange(self) -> None:
        old = os.path.join(self.scratch, "old")
        try:
            if os.path.lexists(self.path):
                os.rename(self.path, old)
            os.rename(self.folder, self.path)
        except BaseException:  # an interrupt may come after either rename
            if os.path.lexists(old) and not os.path.lexists(self.path):
                os.rename(old, self.path)
            raise


_TAKEN = "another process or thread is writing it; give each its own path, such as f'part-{rank}'"
_HAS_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # some cluster file systems

#: By path and process, because a forked process inherits its parent's dict.
_claims: dict[tuple[str, int], _Claim] = {}


class _Claim:
    """The exclusive claim of one thread of one process to write a path.

    It is a lock on the hidden file ``.name.lock`` beside the path, which the system releases when the
    process ends. Forked processes don't inherit it, so workers that outlive a killed process don't
    block others. On a file system without locks, processes are not protected from each other.
    """

    def __init__(self, path: str) -> None:
        parent, base = os.path.split(path)
        self._file = os.path.join(parent, f".{base}.lock")
        self._key = (path, os.getpid())
        #: False on a file system without locks.
        self.is_locked = True
        if _claims.setdefault(self._key, self) is not self:
            raise FileExistsError(errno.EEXIST, _TAKEN)
        try:
            while not self._lock():
                pass
        except BaseException:
            del _claims[self._key]
            raise

    def _lock(self) -> bool:
        """Locks the file; returns False if an earlier owner has just removed it."""
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise FileExistsError(errno.EEXIST, _TAKEN) from error
        except OSError as error:
            if error.errno not in _HAS_NO_LOCKS:
                os.close(self._descriptor)
                raise
            self.is_locked = False
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._descriptor), os.stat(self._file)):
                return True
        os.close(self._descriptor)
        return False

    def release(self) -> None:
        """Ends the claim, once."""
        if self._key in _claims:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._file)
            os.close(self._descriptor)
            del _claims[self._key]


def _sync_directory(path: str) -> None:
    """Syncs the names in a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
