"""One run of the demo: image patches, the two feeds, the CNN, and the time of each step."""

from __future__ import annotations

import hashlib
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

import pinfeed
from pinfeed import augment

SEED = 0
BATCH_SIZE = 256
PATCH_SIZE = 64
PADDING = 4
COLUMNS = 4
CLASSES = 2 * COLUMNS
#: Patches overlap, so a random split puts trained pixels into the test set. Instead no training patch
#: touches these rows of an image, and held-out patches lie inside them.
HELD_OUT_ROWS = range(180, 256)
#: Low, so that the last-bit differences between the feeds don't grow into different models.
LEARNING_RATE = 0.01
# The constants that torchvision's documentation gives for ImageNet.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: The augmentation of training patches, drawn anew in every epoch.
VIEW = augment.Compose(
    [augment.RandomCrop(PATCH_SIZE, padding=PADDING), augment.RandomHorizontalFlip()]
)


def draw_positions(
    shape: Sequence[int], count: int, rng: np.random.Generator, *, held_out: bool
) -> NDArray[np.int64]:
    """Draws distinct positions in two images: image number, top row, left column; shape (count, 3)."""
    first, end = HELD_OUT_ROWS.start, HELD_OUT_ROWS.stop
    inside = range(first, end - PATCH_SIZE + 1)
    outside = [*range(first - PATCH_SIZE + 1), *range(end, shape[0] - PATCH_SIZE + 1)]
    tops = np.array(inside if held_out else outside)
    lefts = shape[1] - PATCH_SIZE + 1
    chosen = np.sort(rng.choice(2 * len(tops) * lefts, size=count, replace=False))
    photo, row, left = np.unravel_index(chosen, (2, len(tops), lefts))
    return np.stack([photo, tops[row], left], axis=1).astype(np.int64)


def cut_patches(
    photos: Sequence[NDArray[np.uint8]], positions: NDArray[np.int64], folder: Path
) -> Path:
    """Writes patches and labels as .npy; a label is the column of the patch's center."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "patches.npy"
    size = PATCH_SIZE
    patches = (photos[i][top : top + size, left : left + size] for i, top, left in positions)
    pinfeed.write_array(path, patches, overwrite=True)
    photo, _, left = positions.T
    column = (left + PATCH_SIZE // 2) * COLUMNS // photos[0].shape[1]
    np.save(folder / "labels.npy", photo * COLUMNS + column)
    return path


def _torchvision_transform() -> Callable[[Tensor], Tensor]:
    """Returns torchvision's Compose, or the same arithmetic if torchvision is not installed."""
    try:
        from torchvision.transforms import (  # type: ignore[import-untyped]
            Compose,
            ConvertImageDtype,
            Normalize,
        )
    except (ImportError, RuntimeError):  # RuntimeError: built for another torch
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
        return lambda pixels: pixels.float().div_(255).sub_(mean).div_(std)
    transform: Callable[[Tensor], Tensor] = Compose(
        [ConvertImageDtype(torch.float32), Normalize(MEAN, STD)]
    )
    return transform


class TorchvisionPatches(Dataset[dict[str, Any]]):
    """Patches as a torchvision user reads them: crop, flip, ``ToTensor``, ``Normalize``, one by one.

    The last two are torchvision's, if it is installed. The crops are drawn before the epoch, untimed, so
    that both feeds see the same.
    """

    crops: NDArray[np.int64] | None = None  # (N, 3), as `seen` returns them

    def __init__(self, folder: Path) -> None:
        self.images = np.load(folder / "patches.npy", mmap_mode="r")
        self.labels = np.load(folder / "labels.npy")
        self.transform = _torchvision_transform()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        pixels = torch.from_numpy(np.ascontiguousarray(self.images[index].transpose(2, 0, 1)))
        if self.crops is not None:
            top, left, is_mirrored = self.crops[index].tolist()
            padded = nn.functional.pad(pixels, [PADDING] * 4)
            pixels = padded[:, top + PADDING :, left + PADDING :][:, :PATCH_SIZE, :PATCH_SIZE]
            pixels = pixels.flip(-1) if is_mirrored else pixels
        return {"image": self.transform(pixels), "label": int(self.labels[index])}


def make_loader(
    feed: str, folder: Path, view: augment.Geometry | None = None, **options: Any
) -> DataLoader[dict[str, Tensor]]:
    """Returns the loader of one feed, without workers: the only difference between the runs."""
    if feed == "stock":
        return DataLoader(TorchvisionPatches(folder), BATCH_SIZE, **options)
    arrays = {"image": folder / "patches.npy", "label": folder / "labels.npy"}
    dataset = pinfeed.ArrayDataset(arrays)
    collate = pinfeed.Collate({"image": pinfeed.Image(MEAN, STD, augment=view)}, seed=SEED)
    return DataLoader(dataset, BATCH_SIZE, collate_fn=collate, **options)


def training_loader(feed: str, folder: Path) -> DataLoader[dict[str, Tensor]]:
    """Returns a shuffling loader; order and crops depend only on the seed, not on the feed."""
    generator = torch.Generator().manual_seed(SEED)
    return make_loader(feed, folder, view=VIEW, shuffle=True, generator=generator)


def set_epoch(loader: DataLoader[dict[str, Tensor]], epoch: int) -> None:
    """Sets the epoch whose crops a training loader draws."""
    dataset: Any = loader.dataset
    if isinstance(dataset, TorchvisionPatches):
        blank = np.broadcast_to(np.uint8(0), (len(dataset), PATCH_SIZE, PATCH_SIZE, 1))
        dataset.crops = np.concatenate([crops for _, crops in seen(blank, epoch)])
    else:
        collate: Any = loader.collate_fn
        collate.set_epoch(epoch)


def seen(
    patches: NDArray[np.uint8], epoch: int
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Yields an epoch's crops of patches (N, H, W, C): batches of pixels, and of top, left and mirrored.

    Each patch carries two corners as points, which show the position of its crop.
    """
    image = pinfeed.Image(output="HWC", dtype=torch.uint8, augment=VIEW)
    collate = pinfeed.Collate({"image": image, "corners": pinfeed.Points()}, seed=SEED)
    collate.set_epoch(epoch)
    corners = np.broadcast_to([[0, 0], [PATCH_SIZE, PATCH_SIZE]], (len(patches), 2, 2))
    dataset = pinfeed.ArrayDataset({"image": patches, "corners": corners})
    for batch in DataLoader(dataset, BATCH_SIZE, collate_fn=collate):
        left, top = batch["corners"].values.numpy().astype(np.int64).reshape(-1, 2, 2).T
        is_mirrored = left[1] < left[0]
        left = np.where(is_mirrored, left[0] - PATCH_SIZE, -left[0])
        yield batch["image"].numpy(), np.stack([-top[0], left, is_mirrored], axis=1)


def largest_difference(folder: Path) -> tuple[int, float]:
    """Compares an epoch of both feeds; returns the number of batches and the largest difference."""
    feeds = [training_loader(feed, folder) for feed in ("stock", "pinfeed")]
    for feed in feeds:
        set_epoch(feed, 0)
    worst = torch.zeros(())
    with progress("comparing batches", len(feeds[0])) as bar:
        for stock, pinfeed in zip(*feeds, strict=True):
            for name in ("image", "label"):
                # Unlike max(), torch.maximum propagates NaN, which fails the check.
                worst = torch.maximum(worst, (stock[name] - pinfeed[name]).abs().max())
            bar.update()
    return len(feeds[0]), worst.item()


def make_model() -> nn.Sequential:
    """Returns the CNN, float32 (N, 3, 64, 64) to logits (N, 8), with the same weights each time.

    The two feeds round differently in the last bit. A smooth network (SiLU, not ReLU) doesn't amplify
    such a difference during training.
    """
    torch.manual_seed(SEED)
    layers: list[nn.Module] = []
    for inputs, outputs, size, stride in ((3, 16, 5, 4), (16, 32, 3, 2), (32, 64, 3, 2)):
        layers += [
            nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.SiLU(),
        ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, CLASSES))


@dataclass
class Run:
    """The measurements of one run; the lists have one entry per epoch."""

    feed: str
    images: int  # per epoch
    data_seconds: list[float] = field(default_factory=list)  # waiting for batches
    compute_seconds: list[float] = field(default_factory=list)  # forward, backward and step
    losses: list[float] = field(default_factory=list)
    order: str = ""  # digest of the labels of all training batches, in order
    training_accuracy: float = 0.0
    held_out_accuracy: float = 0.0
    peak_bytes: int = 0  # peak resident memory of the process


def train(feed: str, out: Path, epochs: int, threads: int) -> Iterator[Run]:
    """Trains one model and evaluates it at the end; yields the measurements so far after each epoch.

    Needs a process of its own, because ``peak_bytes`` is measured per process.
    """
    torch.set_num_threads(threads)
    model = make_model()
    loader = training_loader(feed, out / "training")
    optimizer = torch.optim.SGD(
        model.parameters(), lr=LEARNING_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=LEARNING_RATE, total_steps=epochs * len(loader)
    )
    run = Run(feed, images=len(loader.dataset))  # type: ignore[arg-type]
    order = hashlib.sha256()
    for epoch in range(1, epochs + 1):
        set_epoch(loader, epoch)
        model.train()
        data_seconds = compute_seconds = loss_sum = 0.0
        with progress(f"{feed:>7}  epoch {epoch:>2}/{epochs}", len(loader)) as bar:
            start = time.perf_counter()
            batches = iter(loader)
            while (batch := next(batches, None)) is not None:
                ready = time.perf_counter()
                loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                loss_sum += loss.item() * len(batch["label"])
                done = time.perf_counter()
                data_seconds += ready - start
                compute_seconds += done - ready
                order.update(batch["label"].numpy())
                waiting = data_seconds / (data_seconds + compute_seconds)
                bar.set_postfix_str(f"loss {loss.item():.3f}, waiting for data {waiting:.0%}")
                bar.update()
                # Restart the clock here, so that bar and digest are not timed.
                start = time.perf_counter()
        run.data_seconds.append(data_seconds)
        run.compute_seconds.append(compute_seconds)
        run.losses.append(loss_sum / run.images)
        if epoch < epochs:
            yield run
    run.order = order.hexdigest()
    run.training_accuracy = _accuracy(model, make_loader(feed, out / "training"))
    run.held_out_accuracy = _accuracy(model, make_loader(feed, out / "held-out"))
    run.peak_bytes = peak_resident_bytes()
    yield run


@torch.no_grad()
def _accuracy(model: nn.Module, loader: DataLoader[dict[str, Tensor]]) -> float:
    model.eval()
    right = [model(batch["image"]).argmax(dim=1) == batch["label"] for batch in loader]
    return torch.cat(right).double().mean().item()


@contextmanager
def progress(name: str, total: int) -> Iterator[Any]:
    """Shows a tqdm bar; in a log, where a live bar is unreadable, one line at its end."""
    start = time.perf_counter()
    with tqdm(desc=name, total=total, unit="batch", disable=None) as bar:
        live = not bar.disable
        yield bar
    if not live:
        seconds = time.perf_counter() - start
        line = tqdm.format_meter(total, total, seconds, prefix=name, unit="batch", ncols=80)
        print(line, file=sys.stderr, flush=True)


def peak_resident_bytes() -> int:
    """Returns the peak resident memory of this process.

    Linux: from VmHWM, because ``ru_maxrss`` survives exec, so that a child reports its parent's peak.
    """
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
