"""How fast pinfeed is on this machine: the short form of the project's benchmark suite.

It needs NumPy and torch alone and takes less than a minute. The modules beside this one are
the harness, which the suite in the repository's `bench` directory uses as well.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from pinfeed.bench.epoch import Epoch, epoch_workload
from pinfeed.bench.facts import machine_facts
from pinfeed.bench.harness import Workload, measure
from pinfeed.bench.images import ImageBatch, core_ways, image_workload
from pinfeed.bench.report import facts_line, workload_table, write_json
from pinfeed.bench.threads import use_threads


def show_progress(line: str) -> None:
    """Overwrite the last line of a terminal; say nothing to a file or a pipe."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _workloads(epoch_images: int) -> Iterator[Workload]:
    threads = torch.get_num_threads()
    for dtype in (torch.float32, torch.float16):
        batch = ImageBatch(256, 224, 224, dtype=dtype)
        name = str(dtype).removeprefix("torch.")
        title = f"256x224x224x3 uint8 NHWC → {name} NCHW, normalized, {threads} thread(s)"
        yield image_workload(f"images-{name}", title, batch, core_ways(batch))
    yield epoch_workload("epoch", Epoch(epoch_images))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure a batch of photographs and a short epoch, and print the tables.

    Args:
        argv: Command-line arguments; those of the process if None.

    Returns:
        The exit status: 0, or 1 where a result of pinfeed was wrong or missing.
    """
    parser = argparse.ArgumentParser(
        prog="python -m pinfeed bench", description=(main.__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=10, help="samples of each way (default 10)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each way (default 1)")
    parser.add_argument("--images", type=int, default=10_000, help="images in the epoch")
    parser.add_argument("--json", type=Path, help="write the measurements to this file as well")
    options = parser.parse_args(argv)

    results = []
    with use_threads(options.threads):
        facts = {**machine_facts(), "threads": options.threads}
        print(facts_line(facts))
        for workload in _workloads(options.images):
            results.append(
                measure(workload, rounds=options.rounds, budget=2.0, progress=show_progress)
            )
            show_progress("")
            print(f"\n{workload_table(results[-1])}", flush=True)
    if options.json:
        write_json(options.json, facts, results)
    own = [way for result in results for way in result["ways"] if way["role"] == "pinfeed"]
    return 0 if all(way["status"] == "ok" for way in own) else 1
