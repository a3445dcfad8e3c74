"""Opening files that can be mapped, and nothing else."""

from __future__ import annotations

import io
import os
import stat


def open_regular(path: str, name: str) -> io.BufferedReader:
    """Opens a file to be read; a directory is the error that ``open`` makes of it.

    Raises:
        ValueError: It is a pipe, a socket or a device. To open a pipe would wait for its writer.
        OSError: It can't be opened.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError(
            f"{name} is no regular file but a {_KINDS.get(stat.S_IFMT(mode), 'special file')}; "
            "expected one on a disk, whose rows can be read in any order"
        )
    return open(path, "rb")


_KINDS = {
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
