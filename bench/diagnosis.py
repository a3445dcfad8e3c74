"""`python -m bench.diagnosis [names]`: runs `pinfeed.diagnose` on loaders with known bottlenecks.

One is the example of docs/profile-your-loader.md; the others consist of real parts with a bottleneck by construction.
The table shows the constructed and the reported bottleneck, and the tried changes, with a star if recommended.

`--page docs/profile-your-loader.md` replaces the outputs on the page with the current ones.
"""

import argparse
import io
import json
import mmap
import multiprocessing
import operator
import os
import re
import sqlite3
import statistics
import sys
import tempfile
import time
import timeit
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

import pinfeed
from bench import peers

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "profile-your-loader.md"
# `<!-- report of NAME -->` precedes a whole report; `<!-- report of NAME: BEGINNING | BEGINNING -->`
# precedes its lines with these beginnings.
EXCERPT = re.compile(
    r"(^<!-- report of (\w+)(?:: ([^\n]*?))? -->\n```text\n).*?(?=^```$)", re.DOTALL | re.MULTILINE
)


class Case(NamedTuple):
    """A loader with a known bottleneck.

    Attributes:
        loader: The loader.
        limits: The correct names of the bottleneck.
        step: The training step.
        can_gain: Whether a required change helps; None if that depends on the machine.
        time: The fraction of the seconds to spend on it.
    """

    loader: Any
    limits: set[str]
    step: Callable[[Any], Any] | None
    can_gain: bool | None = True
    time: float = 1.0


class Samples:
    """A dataset of `length` samples, computed from their indices."""

    def __init__(self, make: Callable[[int], Any], length: int = 20_000) -> None:
        self.make = make
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Stream(Samples, IterableDataset):
    """The same samples as a stream, which workers share."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from map(self.make, range(first, self.length, step))


def count_to(steps: int) -> int:
    """Runs Python that holds the GIL."""
    total = 0
    for i in range(steps):
        total += i & 3
    return total


#: `count_to` for one second on this machine.
A_SECOND = int(1e6 / min(timeit.repeat(lambda: count_to(1_000_000), number=1)))


def python_work(ms: float) -> int:
    """Runs Python for about `ms`, with the GIL held."""
    return count_to(int(ms / 1000 * A_SECOND))


def sleep(ms: float, size: int) -> Callable[[Any], None]:
    """Returns a step that takes `ms` for a batch of `size`, and in proportion for other sizes."""

    def step(batch: Any) -> None:
        first = next(iter(batch)) if isinstance(batch, list | tuple) else batch
        time.sleep(ms / 1000 * len(first) / size)

    return step


def python_step(batch: Any) -> None:
    python_work(len(batch))


def example(folder: Path) -> Case:
    """The first example of the page."""
    code = PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("if __name__")[0]
    page: dict[str, Any] = {"__name__": "train"}
    exec(compile(code, "train.py", "exec"), page)
    return Case(page["loader"], {"dataset"}, page["train_step"])


def slow_python(folder: Path) -> Case:
    dataset = Samples(lambda i: torch.tensor(python_work(3)))
    return Case(DataLoader(dataset, batch_size=8, shuffle=True), {"dataset"}, sleep(5, 8))


def jpeg(seed: int) -> bytes:
    """An image of 640 × 480 pixels, as smooth as a photograph."""
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
        for _ in range(64):  # more than the loop reads, so the file is never cached whole
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

    loader = DataLoader(Samples(make), 8, num_workers=2)
    return Case(loader, {"lock"}, sleep(1, 8), can_gain=False)


def slow_step(folder: Path) -> Case:
    dataset = TensorDataset(torch.arange(100_000.0))
    return Case(DataLoader(dataset, 32, num_workers=1), {"step"}, sleep(50, 32), can_gain=False)


def too_many_workers(folder: Path) -> Case:
    dataset = Samples(lambda i: torch.tensor(python_work(1)))
    loader = DataLoader(dataset, 16, num_workers=12)
    return Case(loader, {"cpus"}, sleep(1, 16), can_gain=False)


def tiny_batches(folder: Path) -> Case:
    dataset = TensorDataset(torch.arange(100_000.0), torch.arange(100_000))
    return Case(DataLoader(dataset, batch_size=1), {"batch"}, lambda batch: None, can_gain=None)


def generator(folder: Path) -> Case:
    stream = Stream(lambda i: torch.tensor(python_work(2)))
    return Case(DataLoader(stream, batch_size=8), {"dataset"}, sleep(5, 8))


def busy_main_process(folder: Path) -> Case:
    dataset = Samples(lambda i: torch.tensor(python_work(1)))
    loader = pinfeed.DeviceLoader(DataLoader(dataset, batch_size=10), "cpu")
    return Case(loader, {"dataset"}, python_step)


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


# Twelve loaders that were not used to write the rules.


def evicted_map(folder: Path) -> Case:
    """Rows of a mapped file larger than memory: read-ahead rows are evicted before they are used."""
    path = folder / "rows.npy"
    rows = np.lib.format.open_memmap(path, "w+", np.uint8, (1 << 15, 1 << 14))
    rows[:] = 1
    rows.flush()
    dataset = EvictedRows(path)
    os.fsync(dataset.file)
    return Case(DataLoader(dataset, batch_size=16, shuffle=True), {"files"}, sleep(1, 16))


class EvictedRows(Samples):
    def __init__(self, path: Path) -> None:
        self.rows = np.load(path, mmap_mode="r")
        self.file = os.open(path, os.O_RDONLY)
        super().__init__(self.read, len(self.rows))

    def read(self, index: int) -> torch.Tensor:
        row = torch.from_numpy(self.rows[index].copy())
        self.rows._mmap.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        return row


def slow_sampler(folder: Path) -> Case:
    sampler = Stream(lambda i: time.sleep(0.0008) or i, 2000)
    loader = DataLoader(Samples(torch.tensor), 16, sampler=sampler)
    return Case(loader, {"sampler"}, sleep(10, 16))


def slow_sampler_workers(folder: Path) -> Case:
    sampler = Stream(lambda i: time.sleep(0.0008) or i, 2000)
    loader = DataLoader(Samples(torch.tensor), 16, sampler=sampler, num_workers=2)
    return Case(loader, {"sampler"}, sleep(1, 16), can_gain=None)


def rare_straggler(folder: Path) -> Case:
    dataset = Samples(lambda i: time.sleep(0.1 if i % 37 == 5 else 0.001) or torch.tensor(i))
    return Case(DataLoader(dataset, 8, num_workers=2), {"stragglers"}, sleep(2, 8))


def locked_decoder(folder: Path) -> Case:
    """Four workers alternate, and a list of indices is not accepted: no tried change helps."""
    lock = multiprocessing.Lock()

    def make(index: int) -> torch.Tensor:
        with lock:
            time.sleep(0.002)
        return torch.full((3,), operator.index(index))

    loader = DataLoader(Samples(make), 16, num_workers=4)
    return Case(loader, {"lock"}, sleep(5, 16), can_gain=False)


class SlowToFree:
    """A batch that takes 20 ms to free, outside all stages."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __del__(self) -> None:
        time.sleep(0.02)


def slow_to_free(folder: Path) -> Case:
    loader = DataLoader(Samples(torch.tensor), 16, collate_fn=SlowToFree)
    return Case(loader, {"unexplained"}, sleep(1, 16), can_gain=False)


def padded_texts(folder: Path) -> Case:
    texts = [torch.arange(1 + i % 400) for i in range(2000)]

    def pad(samples: list[torch.Tensor]) -> torch.Tensor:
        longest = max(map(len, samples))
        return torch.tensor([[*s.tolist(), *([0] * (longest - len(s)))] for s in samples])

    loader = DataLoader(texts, 64, shuffle=True, collate_fn=pad)
    return Case(loader, {"collate"}, sleep(1, 64))


def rows_of_database(folder: Path) -> Case:
    path = folder / "rows.db"
    database = sqlite3.connect(path)
    database.execute("create table rows (id integer primary key, value blob)")
    packed = zlib.compress(np.random.default_rng(0).integers(0, 8, 400_000, np.uint8).tobytes())
    rows = ((i, packed) for i in range(2000))
    database.executemany("insert into rows values (?, ?)", rows)
    database.commit()

    def make(index: int) -> torch.Tensor:
        row = sqlite3.connect(path).execute("select value from rows where id = ?", (index,))
        return torch.frombuffer(bytearray(zlib.decompress(row.fetchone()[0])), dtype=torch.uint8)

    return Case(DataLoader(Samples(make, 2000), 16), {"dataset"}, sleep(20, 16))


class Table(Samples):
    """A common hand-written dataset of arrays."""

    def __init__(self) -> None:
        self.x = np.random.default_rng(0).random((20_000, 32), np.float32)
        self.y = np.arange(20_000)
        super().__init__(lambda i: {"x": self.x[i], "y": self.y[i]})


def table(folder: Path) -> Case:
    return Case(DataLoader(Table(), 256, shuffle=True), {"collate"}, None)


def remote_files(folder: Path) -> Case:
    """10 ms per sample, and a step that is slower than four workers."""
    dataset = Samples(lambda i: time.sleep(0.01) or torch.tensor(i))
    return Case(DataLoader(dataset, 8, num_workers=4), {"step"}, sleep(60, 8), can_gain=False)


def short_epochs(folder: Path) -> Case:
    dataset = Samples(lambda i: time.sleep(0.001) or torch.tensor(i), 32)
    return Case(DataLoader(dataset, 8, num_workers=2), {"start"}, sleep(1, 8))


def stream_of_frames(folder: Path) -> Case:
    frames = Stream(lambda i: np.full(6_000_000, i % 256, np.uint8))
    loader = DataLoader(frames, 8, num_workers=2, collate_fn=as_arrays)
    return Case(loader, {"hand_off"}, sleep(1, 8))


CASES = {
    case.__name__: case
    for case in (
        example, slow_python, decode, heavy_collate, large_batches, cold_files, straggler,
        shared_lock, slow_step, too_many_workers, tiny_batches, generator, busy_main_process,
        image_folder, evicted_map, slow_sampler, slow_sampler_workers, rare_straggler,
        locked_decoder, slow_to_free, padded_texts, rows_of_database, table, remote_files,
        short_epochs, stream_of_frames,
    )
}  # fmt: skip


def wrong(case: Case, report: Any) -> list[str]:
    """Returns the errors of a report."""
    errors = []
    if report.limit not in case.limits:
        errors.append(f"expected the limit {' or '.join(case.limits)}, got {report.limit}")
    if case.can_gain and not report.recommended:
        errors.append("expected a recommended change, got none")
    if case.can_gain is False and report.recommended:
        errors.append(f"expected no recommended change, got {report.recommended[0].name}")
    return errors


def rows(name: str, case: Case, report: Any) -> Iterator[list[str]]:
    """Returns the rows of the table: one per tried change, with a star if recommended."""
    start = [name, " or ".join(sorted(case.limits)), report.limit, f"{report.measured.load:.0%}"]
    for change in report.changes:
        if change.tried is not None:
            times = [statistics.fmean(change.before), change.tried]
            star = " *" * change.is_recommended
            gain = f"{1 + change.gain:.2f} ×"
            yield [*start, change.name + star, *(f"{1e3 * s:.3g}" for s in times), gain]
            start = [""] * 4
    if start[0]:
        yield [*start, "none", "", "", ""]


def with_excerpts(page: str, reports: dict[str, Any]) -> str:
    """Returns the page with its report lines replaced by lines from these reports."""

    def excerpt(match: re.Match[str]) -> str:
        start, name, beginnings = match.groups()
        if name not in reports:
            return match[0]
        lines = str(reports[name]).splitlines()
        if beginnings is not None:
            starts = tuple(beginnings.split(" | "))
            lines = [line for line in lines if line.strip().startswith(starts)]
        return start + "".join(f"{line}\n" for line in lines)

    return EXCERPT.sub(excerpt, page)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.diagnosis", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}; all if none")
    parser.add_argument("--seconds", type=float, default=20, help="seconds per loader (default 20)")
    parser.add_argument("--text", action="store_true", help="print the whole reports too")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    parser.add_argument("--page", type=Path, help="page whose excerpts of reports to replace")
    options = parser.parse_args()
    reports: dict[str, Any] = {}
    wrongs = []
    print("| loader | built | named | load | change | as it is, ms | tried, ms | gain |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.names or CASES:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            case = CASES[name](Path(folder))
            reports[name] = report = pinfeed.diagnose(
                case.loader, case.step, case.time * options.seconds
            )
        for row in rows(name, case, report):
            print(f"| {' | '.join(row)} |", flush=True)
        wrongs += [f"{name}: {error}" for error in wrong(case, report)]
    print("", *wrongs, sep="\n")
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
