"""Training: one run of the CNN on one feed, with the time of each step split in two."""

import hashlib
import sys
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from pinfeed.demo.feeds import evaluation_loader, training_loader
from pinfeed.demo.model import make_model
from pinfeed.demo.patches import PatchFiles
from pinfeed.demo.progress import Progress

SEED = 0
#: Low, so that the last-bit differences between the feeds don't grow into different models.
LEARNING_RATE = 0.01


@dataclass(frozen=True)
class Settings:
    """What both runs share."""

    training: PatchFiles
    held_out: PatchFiles
    epochs: int
    threads: int


@dataclass
class Run:
    """What one run measured; the lists have one entry per epoch.

    Attributes:
        feed: Name of the feed.
        images: Training patches per epoch.
        data_seconds: Time spent waiting for batches.
        compute_seconds: Time spent in forward, backward and optimizer step.
        losses: Mean training loss.
        order: Digest of the labels of every training batch, in the order they came.
        training_accuracy: Share of the training patches that the trained model gets right.
        held_out_accuracy: The same share of the held-out patches.
        peak_bytes: Most memory that the process ever had resident.
    """

    feed: str
    images: int
    data_seconds: list[float] = field(default_factory=list)
    compute_seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    order: str = ""
    training_accuracy: float = 0.0
    held_out_accuracy: float = 0.0
    peak_bytes: int = 0


def train(feed: str, settings: Settings) -> Run:
    """Trains and evaluates one model; run it in a process of its own, for ``peak_bytes``."""
    torch.set_num_threads(settings.threads)
    model = make_model(SEED)
    loader = training_loader(feed, settings.training, SEED)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=LEARNING_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=LEARNING_RATE, total_steps=settings.epochs * len(loader)
    )
    run = Run(feed, images=len(loader.dataset))  # type: ignore[arg-type]
    order = hashlib.sha256()
    for epoch in range(settings.epochs):
        name = f"{feed:>7}  epoch {epoch + 1:>2}/{settings.epochs}"
        with Progress(name, total=len(loader), unit="batch") as bar:
            _train_epoch(model, loader, optimizer, schedule, run, order, bar)
    run.order = order.hexdigest()
    run.training_accuracy = _accuracy(model, evaluation_loader(feed, settings.training))
    run.held_out_accuracy = _accuracy(model, evaluation_loader(feed, settings.held_out))
    run.peak_bytes = peak_resident_bytes()
    return run


def _train_epoch(
    model: nn.Module,
    loader: DataLoader[dict[str, Tensor]],
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    run: Run,
    order: "hashlib._Hash",
    bar: Progress,
) -> None:
    """Trains for one epoch and appends what it took to ``run``."""
    model.train()
    data_seconds = compute_seconds = loss_sum = 0.0
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
        bar.advance(f"loss {loss.item():.3f}, waiting for data {waiting:.0%}")
        # The clock of the next step starts here, so that bar and digest are in neither time.
        start = time.perf_counter()
    run.data_seconds.append(data_seconds)
    run.compute_seconds.append(compute_seconds)
    run.losses.append(loss_sum / run.images)


@torch.no_grad()
def _accuracy(model: nn.Module, loader: DataLoader[dict[str, Tensor]]) -> float:
    model.eval()
    right = total = 0
    for batch in loader:
        right += int((model(batch["image"]).argmax(dim=1) == batch["label"]).sum())
        total += len(batch["label"])
    return right / total


def peak_resident_bytes() -> int:
    """Reads the most memory that this process ever had resident.

    On Linux from VmHWM: ``ru_maxrss`` there survives exec, so a child would report its parent.
    """
    if sys.platform == "linux":
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        raise RuntimeError("/proc/self/status has no line VmHWM")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
