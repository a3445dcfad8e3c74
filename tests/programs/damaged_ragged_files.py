"""A saved RaggedArray, damaged byte by byte; argv: its folder, and the file."""

import re
import sys
import warnings

import numpy as np

from pinfeed.sources.ragged import RaggedArray

warnings.simplefilter("ignore")  # NumPy's warnings about headers that it guesses
folder, name = sys.argv[1:]
ends = np.array([0, 3, 3, 4, 9])
RaggedArray(np.arange(18, dtype=np.int16).reshape(9, 2), ends).save(folder)
path = f"{folder}/{name}.npy"
intact = open(path, "rb").read()
counts = {"opened": 0, "refused": 0}


def first_bad(ends, count):
    for i, end in enumerate(ends):
        if not 0 <= end <= count or (i > 0 and end < ends[i - 1]):
            return f"offsets[{i}] must be ", f", got {end}"


def attempt(content):
    with open(path, "wb") as file:
        file.write(content)
    expected = None
    if name == "offsets" and content[:128] == intact[:128] and len(content) == len(intact):
        expected = first_bad(np.frombuffer(content[128:], np.int64).tolist(), 9)
    try:
        ragged = RaggedArray.open(folder)
    except (OSError, ValueError) as error:
        # If the header declares too few values, the first offset beyond them raises.
        past_the_end = name == "values" and re.search("offsets.npy.*number of values", str(error))
        assert path in str(error) or past_the_end, error
        assert expected is None or all(words in str(error) for words in expected), (expected, error)
        counts["refused"] += 1
        return
    assert expected is None, expected
    assert first_bad(ragged.offsets.tolist(), len(ragged.values)) is None
    for i, sequence in enumerate(ragged):
        part = ragged.values[ragged.offsets[i] : ragged.offsets[i + 1]]
        assert sequence.tobytes() == part.tobytes()
    ragged[::-1].values.tobytes()
    counts["opened"] += 1


for position in range(len(intact)):
    for change in (1, 32, 255):
        damaged = bytearray(intact)
        damaged[position] ^= change
        attempt(bytes(damaged))
for length in range(len(intact)):
    attempt(intact[:length])
assert counts["opened"] < counts["refused"], counts
opened = counts["opened"]
attempt(intact + b"more")
attempt(intact)
assert counts["opened"] == opened + 2
print(counts)
