"""A member of an .npz file that declares more bytes than the file has; argv: the path."""

import struct
import sys
import zipfile

import numpy as np

import pinfeed

path = sys.argv[1]
with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w") as member:
    np.save(member, np.arange(4096 * 4, dtype="u1"))
contents = bytearray(open(path, "rb").read())
start = contents.rindex(b"PK\x01\x02")
for grown in range(4096, 1 << 16, 4096):
    size = struct.unpack_from("<I", contents, start + 24)[0] + grown
    struct.pack_into("<II", contents, start + 20, size, size)
    shape = contents.index(b"(16384,)")
    contents[shape : shape + 8] = b"(%5d,)" % (16384 + grown)
    open(path, "wb").write(contents)
    try:
        print(pinfeed.ArrayDataset(path)["x"].sum())
    except ValueError:
        print("ValueError")
    contents[shape : shape + 8] = b"(16384,)"
    struct.pack_into("<II", contents, start + 20, size - grown, size - grown)
