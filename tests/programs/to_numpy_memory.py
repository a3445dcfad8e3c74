"""Memory of to_numpy beyond its result, and its error if memory is too small."""

import resource
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

from pinfeed import JaggedBatch, to_numpy


def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


rows = torch.arange(256 * 3072, dtype=torch.float32).reshape(256, 3072)
offsets = torch.arange(257) * 3072
loader = DataLoader(range(8_192), 256, collate_fn=lambda indices: rows.clone())
conversions = {
    "known": lambda: to_numpy(loader),
    "unknown": lambda: to_numpy(batch for batch in loader),
    "ragged": lambda: to_numpy(JaggedBatch(b.view(-1), offsets) for b in loader).values,
    "cat": lambda: torch.cat(list(loader)).numpy(),
}
to_numpy([rows, rows])
next(iter(loader))
for name, convert in conversions.items():
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status("VmRSS")
    result = convert()
    peak = status("VmHWM") - before
    print(name, (peak - 2 * rows.nbytes) / result.nbytes)
    del result

limit = status("VmSize") + (512 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
batch = np.ones((1 << 20, 4))
try:
    to_numpy(iter([batch] * 64))
except MemoryError as error:
    print(len(error.partial) >> 20, str(error).partition(":")[2])
print(len(to_numpy(iter([batch] * 12))) >> 20)
