"""Children of a worker collate; argv: the start methods."""

import multiprocessing
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader

import pinfeed
from batches import in_worker_memory


def files_of_shared_memory():
    return [line.split()[-1] for line in open("/proc/self/maps") if "/dev/shm/torch_" in line]


def work(collate, i, pipe):
    try:
        batch = collate([{"x": np.full(10_000, i), "label": i}] * 2)
        assert pinfeed.Collate()([torch.full((3,), i)] * 2).tolist() == [[i] * 3] * 2
        shared = [entry.is_shared() for entry in batch.values()]
        pipe.send(
            (batch["x"][1, -1].item(), batch["label"].tolist(), shared, files_of_shared_memory())
        )
    except BaseException as error:
        pipe.send(repr(error))


class Samples:
    def __init__(self):
        self.collate = pinfeed.Collate()

    def __len__(self):
        return 2

    def __getitem__(self, i):
        for context in map(multiprocessing.get_context, sys.argv[1].split(",")):
            here, there = context.Pipe()
            multiprocessing.current_process()._config["daemon"] = False  # like some users
            child = context.Process(target=work, args=(self.collate, i, there))
            child.start()
            assert here.poll(60)
            result = here.recv()
            assert result == (i, [i, i], [False, False], []), result
            child.join()
        return np.full(2000, i)


if __name__ == "__main__":
    collate = pinfeed.Collate()
    loader = DataLoader(Samples(), 2, num_workers=1, collate_fn=collate, timeout=90)
    for i, batch in enumerate(loader):
        assert in_worker_memory(batch)
        assert batch[:, 0].tolist() == [2 * i, 2 * i + 1]
