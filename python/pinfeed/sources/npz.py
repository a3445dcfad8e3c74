"""Memory-mapped arrays of a .npz file."""

from __future__ import annotations

import io
import zipfile
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from pinfeed.files.mapped import open_regular
from pinfeed.files.npy import MAX_HEADER_BYTES, NpyHeader

# A zip's local header, which comes before the bytes of a member: its fixed part ends with the
# lengths of the name and of the extra fields that follow (PKWARE's APPNOTE.TXT, 4.3.7).
_LOCAL_HEADER = 30
_LOCAL_SIGNATURE = b"PK\x03\x04"


def npz_arrays(path: str, name: str) -> dict[str, npt.NDArray[Any]]:
    """Memory-maps the arrays of an uncompressed .npz file, by name, read-only.

    Only headers are read. (``np.load`` reads an array into memory on each access.) The arrays may be
    unaligned, which NumPy and pinfeed allow. Checksums are not verified, because that would read the
    whole file.
    """
    file_name = f"{name}: {path}"
    with open_regular(path, file_name) as file:
        members = _members(file, file_name)
        whole = np.memmap(file, np.uint8, "r")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for member in members:
        name = f"{file_name}: member {member.filename!r}"
        key = member.filename.removesuffix(".npy")
        if key == member.filename:
            raise ValueError(
                f"{name} is not an array; leave out members whose names don't end in .npy"
            )
        arrays[key] = _array(_stored_bytes(whole, member, name), name)
    return arrays


def _members(file: IO[bytes], name: str) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.infolist()
    except OSError:
        raise
    except Exception as error:  # damaged bytes may stop the parser anywhere
        raise ValueError(f"{name} is not a complete .npz file: {error}") from error


def _stored_bytes(
    whole: npt.NDArray[np.uint8], member: zipfile.ZipInfo, name: str
) -> npt.NDArray[np.uint8]:
    """The bytes of a member."""
    if member.flag_bits & 1 or member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(
            f"{name} is compressed or encrypted and can't be mapped; write the file with np.savez "
            "instead of np.savez_compressed, or read it into memory with np.load"
        )
    start = member.header_offset
    header = whole[start : start + _LOCAL_HEADER].tobytes() if start >= 0 else b""
    if len(header) < _LOCAL_HEADER or not header.startswith(_LOCAL_SIGNATURE):
        raise ValueError(f"{name}: expected its header at byte {start}, but there is none")
    name_size = int.from_bytes(header[26:28], "little")
    extra_size = int.from_bytes(header[28:30], "little")
    start += _LOCAL_HEADER + name_size + extra_size
    end = start + member.file_size
    if member.compress_size != member.file_size or end > len(whole):
        raise ValueError(
            f"{name}: expected {member.file_size} bytes stored from byte {start} on, got "
            f"{member.compress_size} in a file of {len(whole)} bytes"
        )
    return whole[start:end]


def _array(stored: npt.NDArray[np.uint8], name: str) -> npt.NDArray[Any]:
    """Views the bytes of a .npy file as an array."""
    header = NpyHeader.read(io.BytesIO(stored[:MAX_HEADER_BYTES].tobytes()), name)
    if header.end > len(stored):
        raise ValueError(
            f"{name}: an array of {header.dtype} and shape {header.shape} ends at byte {header.end}, "
            f"but the member has {len(stored)} bytes"
        )
    values = stored[header.offset : header.end].view(header.dtype)
    return values.reshape(header.shape, order="F" if header.fortran_order else "C")
