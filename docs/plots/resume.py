"""Draws how long the first batch takes after resuming a stream: ``python docs/plots/resume.py``."""

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


def read_shard(path: Path) -> Iterator[Any]:
    """Samples out of lines of JSON."""
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)


class Plain(IterableDataset[Any]):
    """The same without a state."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[Any]:
        for path in self.paths:
            yield from read_shard(path)


def seconds_to_first_batch(dataset: Any, done: float) -> float:
    """Resumes behind a share of the epoch, and waits for one batch."""

    def loader() -> Any:
        return StatefulDataLoader(dataset, BATCH, collate_fn=len)

    first, resumed = loader(), loader()
    state: Any = first.state_dict()
    for _ in zip(range(round(done * SHARDS * SIZE / BATCH)), first, strict=False):
        state = None
    resumed.load_state_dict(state or first.state_dict())
    start = time.perf_counter()
    next(iter(resumed))
    return time.perf_counter() - start


def main() -> None:
    """Writes shards, and resumes at tenths of an epoch."""
    warnings.simplefilter("ignore")
    shares = [tenth / 10 + 0.0049 for tenth in range(10)]  # half of a shard further
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
                pinfeed.StreamDataset(paths, BUFFER, open=read_shard),
            ),
            ("StreamDataset", PINFEED, pinfeed.StreamDataset(paths, open=read_shard)),
        ]
        figure, axes = new_plot(
            f"First batch after resuming a stream of {SHARDS} shards of {SIZE:,} lines of JSON"
        )
        for label, colour, dataset in datasets:
            times = [
                1e3 * min(seconds_to_first_batch(dataset, share) for _ in range(3))
                for share in shares
            ]
            axes.plot([100 * share for share in shares], times, "o-", color=colour, label=label)
            axes.annotate(
                f"{times[-1]:,.0f} ms",
                (100 * shares[-1], times[-1]),
                (6, 4),
                textcoords="offset points",
            )
            print(label, times)
    axes.set_xlabel("percent of the epoch that was done")
    axes.set_ylabel("ms")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, 100)
    axes.legend(frameon=False, loc="upper left")
    save_plot(figure, "resume")


if __name__ == "__main__":
    main()
