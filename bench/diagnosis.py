"""`python -m bench.diagnosis [names]`: loaders whose bottleneck is known, and what `pinfeed.diagnose` says.

Twelve are built of real parts, so that the limit is where it was put; one is the example of docs/my-gpu-waits.md, and
three are people's: an ImageFolder, and the demo's. Printed are the named limit beside the built one, the changes
that were tried with predictions and trials, and what is wrong. A machine that does other work meanwhile makes the
predictions worse, the limits hardly.

With `--page docs/my-gpu-waits.md` the outputs that the page shows become what was printed now.
"""

import argparse
import io
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from examples.demo import training
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

import pinfeed
from bench import peers

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "my-gpu-waits.md"
# `<!-- report of NAME -->` stands before a whole report, `<!-- report of NAME: BEGINNING | BEGINNING -->` before
# its lines that begin so.
EXCERPT = re.compile(
    r"(^<!-- report of (\w+)(?:: ([^\n]*?))? -->\n```text\n).*?(?=^```$)", re.DOTALL | re.MULTILINE
)


class Case(NamedTuple):
    """A loader with a known bottleneck.

    Attributes:
        loader: It.
        limits: The names that are right; none if nobody built one.
        step: The training step.
        can_gain: Whether there is an advice that must be found.
        time: The part of the seconds that it gets.
    """

    loader: Any
    limits: set[str]
    step: Callable[[Any], Any] | None
    can_gain: bool = True
    time: float = 1.0


class Samples:
    """A dataset of `length` samples, each made by a function of its index."""

    def __init__(self, make: Callable[[int], Any], length: int = 20_000) -> None:
        self.make = make
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Generated(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(first, 100_000, step):
            yield torch.tensor(python_work(2) + i)


def count_to(steps: int) -> int:
    """Python that holds the GIL."""
    total = 0
    for i in range(steps):
        total += i & 3
    return total


#: A second of `count_to` on this machine.
A_SECOND = int(1e6 / min(timeit.repeat(lambda: count_to(1_000_000), number=1)))


def python_work(ms: float) -> int:
    """Takes about so long in Python, with the GIL held."""
    return count_to(int(ms / 1000 * A_SECOND))


def sleep(ms: float, size: int) -> Callable[[Any], None]:
    """A step that takes so long for a batch of that size, and in proportion for others."""

    def step(batch: Any) -> None:
        first = next(iter(batch)) if isinstance(batch, list | tuple) else batch
        time.sleep(ms / 1000 * len(first) / size)

    return step


def python_step(batch: Any) -> None:
    python_work(len(batch))


def example(folder: Path) -> Case:
    """The first one of the page."""
    code = PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("if __name__")[0]
    page: dict[str, Any] = {"__name__": "train"}
    exec(compile(code, "train.py", "exec"), page)
    return Case(page["loader"], {"dataset"}, page["train_step"])


def slow_python(folder: Path) -> Case:
    dataset = Samples(lambda i: torch.tensor(python_work(3)))
    return Case(DataLoader(dataset, batch_size=8, shuffle=True), {"dataset"}, sleep(5, 8))


def jpeg(seed: int) -> bytes:
    """A picture of 640 × 480 pixels, smooth enough to be like a photograph."""
    pixels = np.random.default_rng(seed).integers(0, 256, (60, 80, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((640, 480)).save(buffer, "jpeg", quality=90)
    return buffer.getvalue()


def decode(folder: Path) -> Case:
    file = jpeg(0)

    def make(index: int) -> torch.Tensor:
        return torch.from_numpy(np.array(Image.open(io.BytesIO(file)).resize((128, 128))))

    loader = DataLoader(Samples(make), 8, shuffle=True, num_workers=1)
    return Case(loader, {"dataset"}, sleep(10, 8))


def heavy_collate(folder: Path) -> Case:
    floats = np.random.default_rng(0).random(500).tolist()
    return Case(DataLoader(Samples(lambda i: floats), batch_size=16), {"collate"}, sleep(2, 16))


def as_arrays(samples: list[Any]) -> Any:
    return np.stack(samples)


def large_batches(folder: Path) -> Case:
    image = np.ones((19_000_000,), np.uint8)
    loader = DataLoader(Samples(lambda i: image), 8, num_workers=2, collate_fn=as_arrays)
    return Case(loader, {"hand_off"}, sleep(1, 8))


def cold_files(folder: Path) -> Case:
    size, count, path = 16_384, 1 << 17, folder / "rows"
    with path.open("wb") as file:
        for _ in range(64):  # more than is read meanwhile, or it would all be in memory in the end
            file.write(bytes(size * count // 64))
    rows = os.open(path, os.O_RDONLY)
    os.fsync(rows)
    os.posix_fadvise(rows, 0, 0, os.POSIX_FADV_DONTNEED)

    def make(index: int) -> torch.Tensor:
        return torch.frombuffer(bytearray(os.pread(rows, size, index * size)), dtype=torch.uint8)

    loader = DataLoader(Samples(make, count), batch_size=16, shuffle=True)
    return Case(loader, {"files"}, sleep(1, 16))


def straggler(folder: Path) -> Case:
    dataset = Samples(lambda i: time.sleep(0.2 if i % 50 == 17 else 0.001) or torch.tensor(i))
    return Case(DataLoader(dataset, 10, num_workers=2), {"stragglers"}, sleep(5, 10))


def shared_lock(folder: Path) -> Case:
    lock = multiprocessing.Lock()

    def make(index: int) -> torch.Tensor:
        with lock:
            time.sleep(0.003)
        return torch.tensor(index)

    return Case(DataLoader(Samples(make), 8, num_workers=2), {"lock"}, sleep(1, 8))


def slow_step(folder: Path) -> Case:
    dataset = TensorDataset(torch.arange(100_000.0))
    return Case(DataLoader(dataset, 32, num_workers=1), {"step"}, sleep(50, 32), can_gain=False)


def too_many_workers(folder: Path) -> Case:
    dataset = Samples(lambda i: torch.tensor(python_work(1)))
    loader = DataLoader(dataset, 16, num_workers=12)
    return Case(loader, {"workers", "cpus"}, sleep(1, 16), can_gain=False)


def tiny_batches(folder: Path) -> Case:
    dataset = TensorDataset(torch.arange(100_000.0), torch.arange(100_000))
    return Case(DataLoader(dataset, batch_size=1), {"batch"}, lambda batch: None)


def generator(folder: Path) -> Case:
    return Case(DataLoader(Generated(), batch_size=8), {"dataset"}, sleep(5, 8))


def busy_main_process(folder: Path) -> Case:
    dataset = Samples(lambda i: torch.tensor(python_work(1)))
    loader = pinfeed.DeviceLoader(DataLoader(dataset, batch_size=10), "cpu")
    return Case(loader, {"gil"}, python_step)


def image_folder(folder: Path) -> Case:
    for label in range(4):
        (folder / str(label)).mkdir()
        for i in range(100):
            (folder / str(label) / f"{i}.jpg").write_bytes(jpeg(i))
    v2 = peers.v2()
    from torchvision.datasets import ImageFolder

    view = v2.Compose([v2.PILToTensor(), v2.RandomResizedCrop(224, antialias=True)])
    dataset = ImageFolder(folder, view)
    return Case(DataLoader(dataset, 8, shuffle=True), {"dataset"}, sleep(20, 8), time=0.5)


def demo(folder: Path, feed: str) -> Case:
    rng = np.random.default_rng(0)
    photos = rng.integers(0, 256, (2, 300, 400, 3), np.uint8)
    positions = training.draw_positions(photos[0].shape, 4096, rng, held_out=False)
    training.cut_patches(photos, positions, folder)
    loader = training.training_loader(feed, folder)
    training.set_epoch(loader, 0)
    return Case(loader, set(), None, can_gain=False, time=0.5)


def demo_stock(folder: Path) -> Case:
    return demo(folder, "stock")


def demo_pinfeed(folder: Path) -> Case:
    return demo(folder, "pinfeed")


CASES = {
    case.__name__: case
    for case in (
        example,
        slow_python,
        decode,
        heavy_collate,
        large_batches,
        cold_files,
        straggler,
        shared_lock,
        slow_step,
        too_many_workers,
        tiny_batches,
        generator,
        busy_main_process,
        image_folder,
        demo_stock,
        demo_pinfeed,
    )
}


def wrong(case: Case, report: Any) -> list[str]:
    """What is not as it must be."""
    found = []
    if case.limits and report.limit not in case.limits:
        found.append(f"the limit is {' or '.join(case.limits)}, and not {report.limit}")
    if case.can_gain and not report.recommended:
        found.append("no advice, though there is something to gain")
    if case.limits == {"step"} and report.recommended:
        found.append("an advice, though there is nothing to gain")
    return found


def rows(name: str, case: Case, report: Any) -> Iterator[list[str]]:
    """The rows of the table: one for each change that was tried, with a star if it is advised."""
    start = [name, " or ".join(sorted(case.limits)), report.limit]
    for change in report.changes:
        if change.tried is not None:
            yield [
                *start,
                change.name + " *" * change.is_recommended,
                f"{1e3 * change.predicted:.3g}",
                f"{1e3 * change.tried:.3g}",
                f"{change.error:+.0%}",
                f"{1 + change.gain:.2f} ×",
            ]
            start = [""] * 3
    if start[0]:
        yield [*start, "none", "", "", "", ""]


def with_excerpts(page: str, reports: dict[str, Any]) -> str:
    """The page with lines of these reports in the place of those that it shows of the same loaders."""

    def excerpt(match: re.Match[str]) -> str:
        start, name, beginnings = match.groups()
        if name not in reports:
            return match[0]
        lines = str(reports[name]).splitlines()
        if beginnings is not None:
            wanted = tuple(beginnings.split(" | "))
            lines = [line for line in lines if line.strip().startswith(wanted)]
        return start + "".join(f"{line}\n" for line in lines)

    return EXCERPT.sub(excerpt, page)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.diagnosis", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}; all if none")
    parser.add_argument("--seconds", type=float, default=20, help="for each (default 20)")
    parser.add_argument("--text", action="store_true", help="print the whole reports, too")
    parser.add_argument("--json", type=Path, help="write all numbers there")
    parser.add_argument("--page", type=Path, help="a page whose excerpts of reports become these")
    options = parser.parse_args()
    reports: dict[str, Any] = {}
    wrongs = []
    print("| loader | built | named | change | predicted, ms | tried, ms | error | gain |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.names or CASES:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            case = CASES[name](Path(folder))
            reports[name] = report = pinfeed.diagnose(
                case.loader, case.step, case.time * options.seconds
            )
        for row in rows(name, case, report):
            print(f"| {' | '.join(row)} |", flush=True)
        wrongs += [f"{name}: {what}" for what in wrong(case, report)]
    changes = [change for report in reports.values() for change in report.changes if change.after]
    errors = [abs(change.error) for change in changes]
    shares = (f"{sum(e <= most for e in errors)} within {most:.0%}" for most in (0.1, 0.2))
    print(f"\n{len(errors)} predictions: {', '.join(shares)}", *wrongs, sep="\n")
    if options.text:
        for name, report in reports.items():
            print(f"\n{name}\n\n{report}")
    if options.json:
        numbers = {name: report.to_dict() for name, report in reports.items()}
        options.json.write_text(json.dumps(numbers, indent=1))
    if options.page:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(with_excerpts(page, reports), encoding="utf-8")
    sys.exit(bool(wrongs))


if __name__ == "__main__":
    main()
