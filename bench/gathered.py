"""The batch a shuffled epoch asks for: 256 images out of 20,000, by random index."""

import numpy as np
import torch

import pinfeed
from bench.harness import Role, Way, Workload
from bench.image_ways import MEAN, STD, ImageBatch, fill_ways
from bench.peers.torchvision import transforms

ROWS = 20_000


class GatheredBatch(ImageBatch):
    """A batch whose images are chosen anew before each sample, so that they come from memory."""

    def __init__(self, count: int, height: int, width: int, rows: int = ROWS) -> None:
        super().__init__(count, height, width)
        self._random = np.random.default_rng(1)
        self.array = self._random.integers(0, 256, (rows, height, width, len(MEAN)), dtype=np.uint8)
        self.array_tensor = torch.from_numpy(self.array)
        self.choose()

    def choose(self) -> None:
        """Draw the indices of the next batch."""
        self.indices = self._random.integers(0, len(self.array), self.count)
        self.list = self.indices.tolist()
        self.index_tensor = torch.from_numpy(self.indices)
        self._expected = None

    def error(self, result) -> float:
        """Return the largest absolute difference from the reference for the chosen images."""
        self.images[:] = self.array[self.indices]
        if isinstance(result, tuple):
            (result,) = result
        return super().error(result)


def _pinfeed_ways(batch: GatheredBatch) -> list[Way]:
    def collate():
        dataset = pinfeed.ArrayDataset(batch.array)
        collate_fn = pinfeed.Collate(pinfeed.Image(MEAN, STD))
        return lambda: collate_fn(dataset.__getitems__(batch.list))

    def functions():
        rows = torch.zeros_like(batch.tensor)

        def run():
            pinfeed.gather(batch.array_tensor, batch.index_tensor, out=rows)
            return pinfeed.normalize(rows, MEAN, STD, out=batch.out)

        return run

    return [
        Way("**pinfeed** `ArrayDataset`, `Collate(Image)`", collate, Role.PINFEED),
        Way("**pinfeed** `gather`, then `normalize`", functions, Role.PINFEED),
    ]


def _torch_ways(batch: GatheredBatch) -> list[Way]:
    def by_hand():
        mean = batch.per_channel(MEAN, torch.float32) * 255
        std = batch.per_channel(STD, torch.float32) * 255
        rows = torch.zeros_like(batch.tensor)

        def run():
            torch.index_select(batch.array_tensor, 0, batch.index_tensor, out=rows)
            return batch.out.copy_(rows.permute(batch.order)).sub_(mean).div_(std)

        return run

    def per_sample():
        v2 = transforms()
        transform = v2.Compose(
            [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
        )
        collate = torch.utils.data.default_collate
        return lambda: collate([transform(batch.array[index]) for index in batch.list])

    return [
        Way("torch, best by hand (`index_select`, `copy_`, …)", by_hand, tolerance=2e-6),
        Way("torchvision v2 per sample + `default_collate`", per_sample, tolerance=2e-6),
    ]


def gathered(name: str) -> Workload:
    """Random rows of a 3 GB array."""
    batch = GatheredBatch(256, 224, 224)
    title = (
        f"{batch.count} of {ROWS:,} images of 224x224x3 by random index → float32 NCHW, "
        f"normalized, {torch.get_num_threads()} thread(s)"
    )
    ways = [*fill_ways(batch.out), *_pinfeed_ways(batch), *_torch_ways(batch)]
    return Workload(
        name, title, ways, error=batch.error, prepare=batch.choose, repeat=False, images=batch.count
    )
