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
    """An atomic write: a file or a directory is made in a hidden directory beside its path, and renamed.

    A process that is killed leaves that hidden directory, and nothing new at the path; the next write
    to the path removes it. While a directory is replaced, there is an instant between two renames when
    the old one is hidden too.
    Only one write to a path goes on at a time: another one raises FileExistsError when it begins.

    Args:
        path: Of a file or a directory. The directory that it is in must exist.
        is_file: Which of them.
        overwrite: Whether to replace what is there.
        is_own: Tells whether all in a directory may come from here, so that it may be replaced.
        name: What messages begin with: the function that writes, such as ``"to_numpy: out"``.

    Attributes:
        path: Without links, so that those stay.
        scratch: The hidden directory, which `discard` removes.
        folder: A directory in there. `commit` makes it the directory at the path, or the file of the
            path's name in it the file there.
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
        except OSError as error:  # which names a hidden file
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
        """Puts what is in `folder`, each file of it on the disk already, in its place."""
        self._require_free()  # again, because hours may have passed
        for folder, _, _ in os.walk(self.folder):
            _sync_directory(folder)
        if self._is_file:
            os.replace(os.path.join(self.folder, os.path.basename(self.path)), self.path)
        else:
            self._exchange()
        _sync_directory(os.path.dirname(self.path))

    def discard(self) -> None:
        """Removes what isn't in its place."""
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
                f"{self._name}: {self.path} is no {'file' if self._is_file else 'directory'} that "
                f"{self._name.partition(':')[0]} wrote; remove it by hand"
            )

    def _remove_remains(self, parent: str, base: str) -> None:
        """Removes what killed processes left: who has the claim is the only one who writes now."""
        for name in os.listdir(parent) if self._claim.is_locked else ():
            if re.fullmatch(rf"\.{re.escape(base)}\.[0-9a-f]{{8}}", name):
                folder = os.path.join(parent, name)
                with contextlib.suppress(OSError):
                    if os.listdir(folder) == ["result"]:  # and not what was to be replaced
                        shutil.rmtree(folder)

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


_TAKEN = "another process or thread is writing it; give each a path of its own, f'part-{rank}'"
_HAS_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # as file systems of clusters may

#: By path and process, because a forked process inherits the notes of its parent.
_claims: dict[tuple[str, int], _Claim] = {}


class _Claim:
    """The claim of one process, and one thread in it, to write a path.

    It is a lock on the hidden file ``.name.lock`` beside the path, which the system releases when the
    process ends in whatever way. Forked processes don't inherit such a lock, so that workers that
    outlive a killed process block nobody. Processes on a file system without locks are not kept apart.
    """

    def __init__(self, path: str) -> None:
        parent, base = os.path.split(path)
        self._file = os.path.join(parent, f".{base}.lock")
        self._key = (path, os.getpid())
        #: Whether no other process has it; False where the file system has no locks.
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
        """Locks the file; False if it is not there any more, because the one before was released."""
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
    """Waits until the names in a directory are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
