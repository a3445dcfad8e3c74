"""Opens Megatron's token files as a memory-mapped RaggedArray."""

import struct

import numpy as np
import pinfeed

# Megatron's codes
DTYPES = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}


def open_megatron(prefix):
    with open(f"{prefix}.idx", "rb") as file:
        assert file.read(9) == b"MMIDIDX\x00\x00"
        # version, code of the dtype, number of sequences, documents + 1
        _, dtype, count, _ = struct.unpack("<QBQQ", file.read(25))
        lengths = np.fromfile(file, "<i4", count)
    tokens = np.memmap(f"{prefix}.bin", DTYPES[dtype], "r")
    return pinfeed.RaggedArray(tokens, np.append(0, lengths.cumsum(dtype="i8")))


# stand-in for Megatron's preprocess_data.py: two documents of 3 and 1 tokens
np.array([5, 6, 7, 8], "u2").tofile("corpus.bin")
with open("corpus.idx", "wb") as file:
    file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 2, 3))
    file.write(struct.pack("<2i2q3q", 3, 1, 0, 6, 0, 1, 2))

print(open_megatron("corpus")[0])  # [5 6 7]
