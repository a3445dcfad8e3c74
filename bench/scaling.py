"""How many nodes a storage feeds: a simulation of training on sharded files.

`python -m bench.scaling` prints, for each job and plan, what share of the GPUs' speed is left as
nodes are added, and from which number on less than 95 % is. With a folder as its argument it
measures this machine's own rates there first, and takes them for those of a node.

Each step, every node reads a batch in chunks: from a storage server that has the chunk's shard,
through the node's network card, and through its processor, which makes the batch. Chunks that are
in the node's page cache start at the processor. Each of these is a queue that serves chunks in turn
at a fixed rate. Nodes read `depth` batches ahead, and start a step together, as data-parallel
training does: the slowest of them sets the pace.

Left out: latency (enough reads are under way), writes such as checkpoints, other jobs, and the
network between GPUs, which is another one.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pinfeed.bench.report import table

GB = 1e9
NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ENOUGH = 0.95


@dataclass(frozen=True)
class Job:
    """What one GPU trains on.

    Attributes:
        rate: Samples per second that the GPU takes.
        sample_bytes: As they are read.
        batch: Samples per GPU and step.
    """

    name: str
    rate: float
    sample_bytes: int
    batch: int

    def bytes_per_second(self, gpus: int = 1) -> float:
        """What that many GPUs read."""
        return self.rate * self.sample_bytes * gpus


@dataclass(frozen=True)
class Node:
    """One machine; rates in bytes per second.

    Attributes:
        network: Of the cards that lead to the storage.
        processor: At which it makes batches of bytes in its memory, on all cores.
        memory: Bytes that the page cache may take.
    """

    gpus: int
    network: float
    processor: float
    memory: float


@dataclass(frozen=True)
class Storage:
    """What the nodes read from; shards lie on servers at random.

    Attributes:
        server: Bytes per second of each server.
    """

    servers: int
    server: float

    @property
    def rate(self) -> float:
        """Of all servers together."""
        return self.servers * self.server


@dataclass(frozen=True)
class Plan:
    """How the work is laid out.

    Attributes:
        dataset: Bytes of the whole dataset as it is read.
        own_shards: Whether a node reads the same shards in every epoch. Otherwise every epoch is
            shuffled over all nodes, and a node's cache holds any part of the dataset.
    """

    dataset: float
    own_shards: bool

    def cached(self, node: Node, nodes: int) -> float:
        """The share of a node's reads that its page cache answers after the first epoch."""
        share = self.dataset / nodes if self.own_shards else self.dataset
        return min(1.0, node.memory / share)


def bound(job: Job, node: Node, storage: Storage, nodes: int, cached: float = 0.0) -> float:
    """The share of the GPUs' speed that no order of reads can exceed.

    It is reached if no queue is ever empty while another one is full.
    """
    wanted = job.bytes_per_second(node.gpus)
    read = (1 - cached) * wanted
    shares = [1.0, node.processor / wanted]
    if read > 0:
        shares += [node.network / read, storage.rate / (read * nodes)]
    return min(shares)


def simulate(
    job: Job,
    node: Node,
    storage: Storage,
    nodes: int,
    *,
    cached: float = 0.0,
    chunk: float = 16e6,
    depth: int = 2,
    steps: int = 60,
    seed: int = 0,
) -> float:
    """The share of the GPUs' speed that is left.

    Args:
        nodes: How many of them train together.
        cached: The share of chunks that lie in a node's page cache.
        chunk: Bytes of a read; a smaller batch is one.
        depth: Batches that a node reads ahead.
        steps: Of training, the first third of which fills queues and is not counted.
        seed: Which server has which chunk, and who comes first in a queue.
    """
    rng = np.random.default_rng(seed)
    batch_bytes = job.batch * job.sample_bytes * node.gpus
    chunks = max(1, round(batch_bytes / chunk))
    size = batch_bytes / chunks
    step_seconds = job.batch / job.rate

    starts = np.zeros(steps)
    servers_free = np.zeros(storage.servers)
    network_free, processor_free = np.zeros(nodes), np.zeros(nodes)
    for step in range(steps):
        asked = starts[step - depth] if step >= depth else 0.0  # when a batch left the queue
        there = np.full((nodes, chunks), asked)
        is_read = rng.random((nodes, chunks)) >= cached
        server = rng.integers(storage.servers, size=(nodes, chunks))
        served = _serve_together(server[is_read], servers_free, asked, size / storage.server, rng)
        there[is_read] = _through(served, is_read, network_free, size / node.network)
        there.sort(axis=1)
        done = _in_turn(there, processor_free, size / node.processor)
        before = starts[step - 1] + step_seconds if step else 0.0
        starts[step] = max(done[:, -1].max(), before)
    first = steps // 3
    return step_seconds * (steps - 1 - first) / (starts[-1] - starts[first])


def _serve_together(server, free, asked: float, seconds: float, rng) -> np.ndarray:
    """When each chunk leaves its server, if all nodes ask for theirs at once, in a random order.

    Updates `free`, the times at which servers are done with what they have.
    """
    left = np.empty(len(server))
    order = rng.permutation(len(server))
    order = order[np.argsort(server[order], kind="stable")]
    counts = np.bincount(server, minlength=len(free))
    places = np.concatenate([np.arange(1, count + 1) for count in counts])
    left[order] = np.repeat(np.maximum(free, asked), counts) + places * seconds
    np.maximum(free, asked, out=free, where=counts > 0)
    free += counts * seconds
    return left


def _through(served, is_read, free, seconds: float) -> np.ndarray:
    """When chunks that nodes read leave their network cards."""
    arrivals = np.full(is_read.shape, np.inf)
    arrivals[is_read] = served
    order = np.argsort(arrivals, axis=1)
    done = np.empty_like(arrivals)
    in_turn = _in_turn(np.take_along_axis(arrivals, order, axis=1), free, seconds)
    np.put_along_axis(done, order, in_turn, axis=1)
    return done[is_read]


def _in_turn(arrivals, free, seconds: float) -> np.ndarray:
    """When each column's chunks leave a queue that serves them in order; infinite ones never come.

    Updates `free`, the time of each node at which the queue is empty.
    """
    done = np.empty_like(arrivals)
    for i in range(arrivals.shape[1]):
        done[:, i] = np.maximum(arrivals[:, i], free) + seconds
        np.copyto(free, done[:, i], where=np.isfinite(done[:, i]))
    return done


def knee(efficiencies: dict[int, float]) -> int | None:
    """The first number of nodes that are not fed, None if all are."""
    return next((nodes for nodes, share in efficiencies.items() if share < ENOUGH), None)


def sweep(
    job: Job, node: Node, storage: Storage, plan: Plan, nodes: Sequence[int] = NODES
) -> dict[int, float]:
    """What is left of the GPUs' speed after the first epoch, by the number of nodes."""
    return {
        count: simulate(job, node, storage, count, cached=plan.cached(node, count))
        for count in nodes
    }


# Where the figures come from is in docs/scaling.md.
IMAGE = 224 * 224 * 3
RESNET50 = Job("ResNet-50", 2470, IMAGE, 256)
RESNET50_FLOAT32 = replace(RESNET50, name="ResNet-50, float32", sample_bytes=4 * IMAGE)
VIT_L = Job("ViT-L/16", 1071, IMAGE, 128)
LLM_7B = Job("7B tokens", 10_643 / 2048, 2048 * 2, 6)
NODE = Node(gpus=8, network=50 * GB, processor=17 * GB, memory=1600 * GB)
STORAGE = Storage(servers=20, server=5 * GB)
IMAGES = 400e6

PLANS = {
    "ResNet-50, float32 files": (RESNET50_FLOAT32, Plan(4 * IMAGE * IMAGES, own_shards=False)),
    "ResNet-50, uint8 files": (RESNET50, Plan(IMAGE * IMAGES, own_shards=False)),
    "ResNet-50, uint8, own shards": (RESNET50, Plan(IMAGE * IMAGES, own_shards=True)),
    "ViT-L/16, uint8 files": (VIT_L, Plan(IMAGE * IMAGES, own_shards=False)),
    "7B model, uint16 tokens": (LLM_7B, Plan(2 * 1e13, own_shards=False)),
}


def measure_node(folder: Path, size: int = 512 * 2**20) -> dict[str, float]:
    """This machine's rates, in bytes per second: of a cold file, and of making batches.

    Args:
        folder: On the disk that is meant; a file of `size` is written there and removed.
    """
    import pinfeed
    from pinfeed.bench.images import MEAN, STD

    path = folder / "scaling.bin"
    rows = size // IMAGE
    images = np.random.default_rng(0).integers(0, 256, (rows, 224, 224, 3), dtype=np.uint8)
    try:
        path.write_bytes(images.data)
        disk = _best(lambda: _read_cold(path, 16), images.nbytes)
    finally:
        path.unlink(missing_ok=True)
    dataset = pinfeed.ArrayDataset(images)
    order = np.random.default_rng(1).permutation(rows)

    def epoch(collate: pinfeed.Collate) -> Callable[[], None]:
        def run() -> None:
            for start in range(0, rows - 255, 256):
                collate(dataset.__getitems__(order[start : start + 256]))

        return run

    counted = rows // 256 * 256 * IMAGE
    return {
        "cold file, 16 readers": disk,
        "batches of uint8": _best(epoch(pinfeed.Collate()), counted),
        "batches of float32, of the bytes read": _best(
            epoch(pinfeed.Collate(pinfeed.Image(MEAN, STD))), counted
        ),
    }


def _best(run: Callable[[], object], size: int) -> float:
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return size / min(seconds)


def _read_cold(path: Path, readers: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        block = 2**20
        with ThreadPoolExecutor(readers) as pool:
            for read in pool.map(
                lambda start: len(os.pread(descriptor, block, start)), range(0, size, block)
            ):
                if read == 0:
                    raise OSError(f"{path} ends early")
    finally:
        os.close(descriptor)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="measure this machine's rates here")
    folder = parser.parse_args().folder
    node = NODE
    if folder is not None:
        rates = measure_node(folder)
        rows = [[name, f"{rate / GB:.2f}"] for name, rate in rates.items()]
        print(table(["this machine", "GB/s"], rows), "\n")
        node = replace(node, processor=rates["batches of uint8"])
    rows = []
    for name, (job, plan) in PLANS.items():
        shares = sweep(job, node, STORAGE, plan)
        first = knee(shares)
        wanted = job.bytes_per_second(node.gpus) / GB
        cells = [f"{share:.2f}" for share in shares.values()]
        rows.append([name, f"{wanted:,.3g}", *cells, "none" if first is None else str(first)])
    print(table(["plan", "GB/s a node", *map(str, NODES), "knee"], rows))


if __name__ == "__main__":
    main()
