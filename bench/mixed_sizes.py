"""Images of different sizes, normalized and padded into one batch."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

import pinfeed
from bench.harness import Role, Way, Workload
from bench.image_ways import MEAN, STD, fill_ways, largest_difference, normalize_table
from bench.peers import torchvision

TOLERANCE = 2e-6


class MixedImages:
    """Random uint8 images, and the canvas that holds the largest height and width of them.

    Args:
        count: Images in the batch.
        smallest: Least height and width.
        largest: Height and width of the first; no other is larger.
    """

    def __init__(self, count: int, smallest: int, largest: int) -> None:
        random = np.random.default_rng(0)
        sizes = random.integers(smallest, largest + 1, (count, 2))
        sizes[0] = largest
        self.smallest = smallest
        self.images = [
            random.integers(0, 256, (*size, len(MEAN)), dtype=np.uint8) for size in sizes.tolist()
        ]
        self.out = torch.zeros(count, len(MEAN), largest, largest)
        self._expected: torch.Tensor | None = None

    def places(self, canvas) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """Each image with its part of a canvas, in the order of its axes."""
        for image, whole in zip(self.images, canvas, strict=True):
            height, width, _ = image.shape
            yield image, whole[:, :height, :width]

    def error(self, result: torch.Tensor) -> float:
        """Return the largest absolute difference from the reference."""
        if self._expected is None:
            self._expected = torch.zeros_like(self.out)
            table, channels = normalize_table().numpy(), np.arange(len(MEAN))
            for image, place in self.places(self._expected):
                place.copy_(torch.from_numpy(table[image, channels]).permute(2, 0, 1))
        worst = largest_difference(torch.as_tensor(result), self._expected)
        self.out.fill_(-1)  # so that the next way can't be right by what this one wrote
        return worst


def _pinfeed_way(batch: MixedImages) -> Way:
    def build():
        collate = pinfeed.Collate(pinfeed.Image(MEAN, STD, pad_value=0.0))
        return lambda: collate(batch.images)

    return Way("**pinfeed** `Collate(Image(pad_value=0))`", build, Role.PINFEED)


def _by_hand_ways(batch: MixedImages) -> list[Way]:
    def torch_way():
        mean = torch.tensor(MEAN).view(-1, 1, 1) * 255
        std = torch.tensor(STD).view(-1, 1, 1) * 255

        def run():
            batch.out.zero_()
            for image, place in batch.places(batch.out):
                place.copy_(torch.from_numpy(image).permute(2, 0, 1)).sub_(mean).div_(std)
            return batch.out

        return run

    def numpy_way():
        out = batch.out.numpy()
        std = np.asarray(STD, np.float32).reshape(-1, 1, 1)
        scale, bias = 1 / (255 * std), -np.asarray(MEAN, np.float32).reshape(-1, 1, 1) / std

        def run():
            out.fill(0)
            for image, place in batch.places(out):
                np.multiply(image.transpose(2, 0, 1), scale, out=place)
                np.add(place, bias, out=place)
            return out

        return run

    return [
        Way("torch, best by hand into a zeroed `out`", torch_way, tolerance=TOLERANCE),
        Way("NumPy, best by hand into a zeroed `out`", numpy_way, tolerance=TOLERANCE),
    ]


def mixed_sizes(name: str) -> Workload:
    """Photographs as a detector sees them."""
    batch = MixedImages(32, 100, 500)
    ways = [
        *fill_ways(batch.out),
        _pinfeed_way(batch),
        *_by_hand_ways(batch),
        *torchvision.canvas_ways(batch),
    ]
    count, _, largest, _ = batch.out.shape
    title = (
        f"{count} uint8 images of {batch.smallest}–{largest} x {batch.smallest}–{largest} x "
        f"{len(MEAN)} → float32 NCHW, normalized and padded, {torch.get_num_threads()} thread(s)"
    )
    return Workload(name, title, ways, error=batch.error, images=count)


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return the workload here by name: its number of threads and what makes it."""
    return {"images-mixed-sizes": (1, mixed_sizes)}
