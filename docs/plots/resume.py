"""Draws how long the first batch takes after resuming a stream: ``PYTHONPATH=. python docs/plots/resume.py``."""

import copy
import json
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drawing import OTHER_PEER, PEER, PINFEED, new_plot, save_plot
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import pinfeed

SHARDS, SIZE, BATCH, BUFFER = 100, 4000, 100, 1000
ROUNDS = 5


def read_shard(path: Path) -> Iterator[Any]:
    """Yields samples from lines of JSON."""
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)


class Plain(IterableDataset[Any]):
    """Yields the same samples, without a state."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[Any]:
        for path in self.paths:
            yield from read_shard(path)


def loader_of(dataset: Any) -> Any:
    """Returns batches of torchdata, which can save its position."""
    return StatefulDataLoader(dataset, BATCH, collate_fn=len)


def states(dataset: Any, batches: list[int]) -> list[Any]:
    """Returns the state saved after each of these batches."""
    loader = loader_of(dataset)
    return [
        copy.deepcopy(loader.state_dict())
        for number, _ in enumerate(loader, 1)
        if number in batches
    ]


def seconds_to_first_batch(dataset: Any, state: Any) -> float:
    """Returns the seconds from resuming to the first batch."""
    loader = loader_of(dataset)
    loader.load_state_dict(state)
    start = time.perf_counter()
    next(iter(loader))
    return time.perf_counter() - start


def main() -> None:
    """Writes shards, and resumes at tenths of an epoch."""
    warnings.simplefilter("ignore")
    shares = [tenth / 10 + 0.005 for tenth in range(10)]  # in the middle of a shard
    batches = [round(share * SHARDS * SIZE / BATCH) for share in shares]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.jsonl") for number in range(SHARDS)]
        line = json.dumps({"text": "a few words of text " * 10, "label": 5}) + "\n"
        for path in paths:
            path.write_text(line * SIZE)
        datasets: list[tuple[str, str, Any]] = [
            ("dataset without a state", PEER, Plain(paths)),
            (
                f"StreamDataset, buffer of {BUFFER:,}",
                OTHER_PEER,
                pinfeed.StreamDataset(paths, BUFFER, open_shard=read_shard),
            ),
            ("StreamDataset", PINFEED, pinfeed.StreamDataset(paths, open_shard=read_shard)),
        ]
        figure, axes = new_plot(
            f"First batch after resuming a stream of {SHARDS} shards of {SIZE:,} lines of JSON"
        )
        saved = {label: states(dataset, batches) for label, _, dataset in datasets}
        times = {label: [float("inf")] * len(shares) for label in saved}
        for _ in range(ROUNDS):
            for index in range(len(shares)):
                for label, _, dataset in datasets:
                    seconds = seconds_to_first_batch(dataset, saved[label][index])
                    times[label][index] = min(times[label][index], 1e3 * seconds)
    for (label, color, _), rise in zip(datasets, (3, 8, -7), strict=True):
        axes.plot([100 * share for share in shares], times[label], "o-", color=color, label=label)
        end = (100 * shares[-1], times[label][-1])
        axes.annotate(
            f"{end[1]:,.0f} ms", end, (6, rise), textcoords="offset points", annotation_clip=False
        )
        print(label, times[label])
    axes.set_xlabel("percent of the epoch that was done")
    axes.set_ylabel("ms")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, 104)
    axes.legend(frameon=False, loc="upper left")
    save_plot(figure, "resume")


if __name__ == "__main__":
    main()
