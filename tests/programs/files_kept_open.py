"""A diagnosis names the files that samples and the step keep open; argv: their paths."""

import functools
import sys

from torch.utils.data import DataLoader

import pinfeed


@functools.lru_cache
def opened(path, mode):
    return open(path, mode)


class Rows(list):
    def __getitem__(self, index):
        opened(sys.argv[1], "rb").seek(index)
        return opened(sys.argv[1], "rb").read(1)[0]


class Closing(Rows):
    file = None

    def __getitem__(self, index):
        self.file = self.file or open(sys.argv[1], "rb")
        return self.file.read(1)[0] if not self.file.seek(0) else 0


def step(batch):
    opened(sys.argv[2], "w").write(".")


for rows in (Closing, Rows):
    report = pinfeed.diagnose(DataLoader(rows(range(100)), 4), step, 0.2)
    print(any("opened files in this process (rows)" in note for note in report.notes))
    print(any("(log" in note for note in report.notes))
