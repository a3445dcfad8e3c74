"""Peak memory of RaggedArray construction; argv: the number of sequences, and their type."""

import re
import sys

import numpy as np

from pinfeed.sources.ragged import RaggedArray


def in_use(key):
    return int(re.search(key + r":\s+(\d+)", open("/proc/self/status").read())[1]) * 1024


make = lambda: (np.full(count, i, np.int32) for i in range(20_000_000 // count))
count, kind = int(sys.argv[1]), sys.argv[2]
sequences = list(make()) if kind == "list" else make()
open("/proc/self/clear_refs", "w").write("5")  # resets the peak
before = in_use("VmRSS")
ragged = RaggedArray.from_sequences(sequences)
data = ragged.values.nbytes + ragged.offsets.nbytes
assert ragged.values.nbytes == 80_000_000
print((in_use("VmHWM") - before) / data, (in_use("VmRSS") - before) / data)
