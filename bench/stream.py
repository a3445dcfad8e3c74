"""A stream and its source, and what it costs to carry the state that resumes it."""

import itertools
import json
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

import pinfeed
from bench.epoch import exhaust
from bench.harness import Role, Way, Workload

SHARDS = 16
BUFFER = 1000
BATCH = 256

Open = Callable[[Any], Iterable[Any]]


# What a shard holds. The number of each sample is what a result is checked by.


def count_up(numbers: range) -> Iterator[int]:
    yield from numbers


def read_json(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)


def read_images(path: Path) -> Iterator[tuple[np.ndarray, int]]:
    size = 32 * 32 * 3
    with path.open("rb") as records:
        while record := records.read(8 + size):
            number = int.from_bytes(record[:8], "little")
            yield np.frombuffer(record, np.uint8, size, 8).reshape(32, 32, 3), number


def _write_json(path: Path, numbers: range) -> None:
    texts = ({"number": n, "text": "a few words of text " * 3, "label": n % 10} for n in numbers)
    path.write_text("".join(json.dumps(text) + "\n" for text in texts))


def _write_images(path: Path, numbers: range) -> None:
    random = np.random.default_rng(numbers.start)
    path.write_bytes(b"".join(n.to_bytes(8, "little") + random.bytes(3072) for n in numbers))


# By name: samples, what makes a file of some of them, what reads it, where the number is.
SOURCES: dict[str, tuple[int, Any, Open, Callable[[Any], int]]] = {
    "stream-free": (200_000, None, iter, int),
    "stream-generated": (200_000, None, count_up, int),
    "stream-json": (50_000, _write_json, read_json, lambda sample: sample["number"]),
    "stream-images": (20_000, _write_images, read_images, lambda sample: sample[1]),
}

TITLES = {
    "stream-free": "ranges of ints, whose samples cost nothing",
    "stream-generated": "generators of ints, whose samples cost next to nothing",
    "stream-json": "files of 50,000 lines of JSON",
    "stream-images": "files of 20,000 records of a number and an image of 32x32x3",
}


def _shards(name: str, folder: Path) -> list[Any]:
    count, write, _, _ = SOURCES[name]
    size = count // SHARDS
    shards: list[Any] = []
    for numbers in (range(count)[start : start + size] for start in range(0, count, size)):
        if write is None:
            shards.append(numbers)
        else:
            shards.append(folder / f"{numbers.start}")
            write(shards[-1], numbers)
    return shards


def streamed(name: str) -> Workload:
    """All samples of the source, one by one, without a loader."""
    count, _, open_shard, number = SOURCES[name]
    folder = tempfile.TemporaryDirectory()
    shards = _shards(name, Path(folder.name))

    def error(samples: Iterable[Any]) -> float:
        seen = sorted(map(number, samples))
        folder.name  # noqa: B018 - keeps the files for as long as there are ways to read them
        return 0.0 if seen == list(range(count)) else float("inf")

    def source() -> Iterator[Any]:
        for shard in shards:
            yield from open_shard(shard)

    def stream(buffer: int) -> Callable[[], Any]:
        dataset = pinfeed.StreamDataset(shards, buffer, open=open_shard)
        return lambda: iter(dataset)

    def holding() -> Iterator[Any]:
        held: deque[Any] = deque(maxlen=BUFFER)
        for sample in itertools.chain.from_iterable(map(open_shard, shards)):
            held.append(sample)
            yield sample

    def by_hand() -> Iterator[Any]:
        held = list(itertools.islice(samples := source(), BUFFER))
        random = np.random.default_rng(0)
        blocks = (random.integers(BUFFER, size=1024).tolist() for _ in itertools.repeat(None))
        places = itertools.chain.from_iterable(blocks)
        for sample, place in zip(samples, places, strict=False):
            yield held[place]
            held[place] = sample
        yield from held

    ways = [
        Way(
            "the source itself, shard after shard",
            lambda: lambda: itertools.chain.from_iterable(map(open_shard, shards)),
            Role.LIMIT,
        ),
        Way("**pinfeed** `StreamDataset`", lambda: stream(0), Role.PINFEED),
        Way(
            f"**pinfeed** `StreamDataset`, buffer of {BUFFER:,}",
            lambda: stream(BUFFER),
            Role.PINFEED,
        ),
        Way("a generator that goes through the shards", lambda: source),
        Way(
            f"a generator that holds the last {BUFFER:,} samples, in order",
            lambda: holding,
            Role.OVERHEAD,
        ),
        Way(
            f"a generator with a buffer of {BUFFER:,}, its places drawn in blocks",
            lambda: by_hand,
            Role.OVERHEAD,
        ),
    ]
    title = f"{count:,} samples from {SHARDS} shards: {TITLES[name]}"
    return Workload(name, title, ways, error, consume=exhaust)


class _Plain(IterableDataset[Any]):
    """The same samples without a state."""

    def __init__(self, dataset: pinfeed.StreamDataset) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)


def resumable(name: str) -> Workload:
    """Batches of numbers, which are as cheap as samples can be, with a state every so often."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    count = 200_000
    shards = [range(count)[i : i + 1000] for i in range(0, count, 1000)]

    def error(batches: Iterable[torch.Tensor]) -> float:
        seen = torch.cat(list(batches)).sort().values
        return 0.0 if torch.equal(seen, torch.arange(count)) else float("inf")

    def dataset(buffer: int) -> pinfeed.StreamDataset:
        return pinfeed.StreamDataset(shards, buffer, open=iter)

    def saving(loader: Any, every: int) -> Iterator[torch.Tensor]:
        for number, batch in enumerate(loader, 1):
            if number % every == 0:
                loader.state_dict()
            yield batch

    def way(label: str, make: Callable[[], Any], every: int, role: Role) -> Way:
        def build() -> Callable[[], Any]:
            loader = make()
            return lambda: saving(loader, every)

        return Way(label, build, role)

    def stateful(source: Any) -> Any:
        return StatefulDataLoader(source, BATCH, collate_fn=torch.tensor)

    never = 10**9
    asked = {never: "never", 100: "every 100 batches", 10: "every 10 batches", 1: "always"}
    ways = [
        way(
            f"a dataset without state, asked for it {asked[every]}",
            lambda: stateful(_Plain(dataset(0))),
            every,
            Role.LIMIT,
        )
        for every in (never, 1)
    ]
    for buffer in (0, BUFFER):
        shuffled = f", buffer of {BUFFER:,}" if buffer else ""
        ways += [
            way(
                f"**pinfeed** `StreamDataset`{shuffled}, asked {when}",
                lambda buffer=buffer: stateful(dataset(buffer)),
                every,
                Role.PINFEED,
            )
            for every, when in asked.items()
        ]
    ways.append(
        way(
            "the same stream in torch's `DataLoader`",
            lambda: DataLoader(dataset(0), BATCH, collate_fn=torch.tensor),
            never,
            Role.PEER,
        )
    )
    title = (
        f"{count:,} numbers in batches of {BATCH} through torchdata's `StatefulDataLoader`, "
        "0 workers, asked for its state now and then"
    )
    return Workload(name, title, ways, error, consume=exhaust)


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return every workload here by name: its number of threads and what makes it."""
    return {**dict.fromkeys(SOURCES, (1, streamed)), "resume": (1, resumable)}
