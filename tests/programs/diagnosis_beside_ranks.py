"""A step that runs beside other ranks' steps gives a warning; argv: a file."""

import os
import sys

import torch
from torch.utils.data import DataLoader, DistributedSampler

import pinfeed


def diagnose(rank, file):
    os.environ["LOCAL_WORLD_SIZE"] = "2"
    torch.distributed.init_process_group("gloo", f"file://{file}", rank=rank, world_size=2)
    torch.distributed.barrier()  # a rank that ends early breaks the connection of the other
    sampler = DistributedSampler(range(100), shuffle=False)
    loader = DataLoader(range(100), batch_size=5, sampler=sampler)
    if rank == 0:  # the other rank waits for nobody
        with pytest.warns(
            UserWarning, match="different numbers of times.*pass a step that trains model.module"
        ):
            report = pinfeed.diagnose(loader, lambda batch: batch + 1, seconds=0.5)
        assert report.measured.cpus == 1 or os.cpu_count() > 3
        assert all(i % 2 == 0 for batch in report.measured.loop.batches for i in batch.indices)
        assert len(sampler) == 50 and next(iter(sampler)) == 0
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    import pytest

    torch.multiprocessing.start_processes(diagnose, (sys.argv[1],), 2, start_method="fork")
    print("done")
