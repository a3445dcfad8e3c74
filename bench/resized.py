"""Photographs cropped at random, resized, flipped and normalized."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pinfeed
from bench.harness import Role, Way, Workload
from bench.image_ways import MEAN, ROUNDING, STD, largest_difference
from bench.peers.torchvision import transforms
from pinfeed import augment

SIZE = (224, 224)
VIEW = augment.Compose([augment.RandomResizedCrop(SIZE), augment.RandomHorizontalFlip()])
# Of uint8 images before they are normalized: what a difference of one becomes.
ONE = 1 / 255 / min(STD)


def photographs(count: int) -> np.ndarray:
    """Smooth ones, so that ways which interpolate differently come to similar pixels."""
    random = np.random.default_rng(0)
    coarse = torch.from_numpy(random.integers(0, 256, (count, 3, 6, 8), dtype=np.uint8))
    sizes: dict[str, Any] = {"size": (375, 500), "mode": "bicubic", "antialias": True}
    return torch.nn.functional.interpolate(coarse, **sizes).permute(0, 2, 3, 1).contiguous().numpy()


class Crops:
    """One batch, and which windows of its images are seen: the same for all ways."""

    def __init__(self, count: int = 64) -> None:
        self.images = photographs(count)
        self.rows = pinfeed.ArrayDataset(self.images).__getitems__(np.arange(count))
        collate = pinfeed.Collate(pinfeed.Image(MEAN, STD, augment=VIEW, windows=True), seed=0)
        windows = collate(self.rows)[1]
        self.windows = windows.long().tolist()
        self.out = torch.empty(count, len(MEAN), *SIZE)

    def expected(self) -> torch.Tensor:
        """By torch's own interpolation."""
        tensors = torch.from_numpy(self.images).permute(0, 3, 1, 2)
        batch = []
        for image, (top, left, height, width, _, flipped) in zip(
            tensors, self.windows, strict=True
        ):
            window = image[None, :, top : top + height, left : left + width]
            view = torch.nn.functional.interpolate(window, SIZE, mode="bilinear", antialias=True)
            batch.append(view.flip(3) if flipped else view)
        return pinfeed.normalize(torch.cat(batch), MEAN, STD, input="NCHW")

    def error(self, result: torch.Tensor) -> float:
        """The largest difference from what torch's interpolation gives."""
        return largest_difference(result.float(), self.expected())

    def pinfeed(self, dtype: torch.dtype = torch.float32, **options: Any) -> Callable[[], Any]:
        """In one pass."""
        image = pinfeed.Image(MEAN, STD, dtype=dtype, augment=VIEW, **options)
        collate = pinfeed.Collate(image, seed=0)
        return lambda: collate(self.rows)

    def floats(self, *, by_torch: bool) -> Callable[[], Any]:
        """Of images that are float32."""
        images = self.images.astype(np.float32) / 255
        if not by_torch:
            rows = pinfeed.ArrayDataset(images).__getitems__(np.arange(len(images)))
            collate = pinfeed.Collate(pinfeed.Image(MEAN, STD, augment=VIEW), seed=0)
            return lambda: collate(rows)
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
        planes = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()

        def crop(
            image: Any, top: int, left: int, height: int, width: int, _: int, flipped: int
        ) -> Any:
            window = image[None, :, top : top + height, left : left + width]
            view = torch.nn.functional.interpolate(window, SIZE, mode="bilinear", antialias=True)
            return (view.flip(3) if flipped else view).sub_(mean).div_(std)

        return lambda: self.each(crop, torch.cat, planes)

    def each(
        self, crop: Callable[..., Any], finish: Callable[[list[Any]], Any], images: Any = None
    ) -> Any:
        """One window after the other."""
        windows = zip(self.images if images is None else images, self.windows, strict=True)
        return finish([crop(image, *window) for image, window in windows])

    def torchvision(self) -> Callable[[], Any]:
        """Its fastest form: uint8 until the end, in channels_last."""
        v2 = transforms()
        to_float = v2.ToDtype(torch.float32, scale=True)
        normalize = v2.Normalize(MEAN, STD, inplace=True)

        def crop(image: Any, top: int, left: int, height: int, width: int, _: int, flipped: int):
            pixels = torch.from_numpy(image).permute(2, 0, 1)
            view = v2.functional.resized_crop(
                pixels, top, left, height, width, SIZE, antialias=True
            )
            view = v2.functional.horizontal_flip(view) if flipped else view
            return normalize(to_float(view))

        return lambda: self.each(crop, torch.stack)

    def opencv(self) -> Callable[[], Any]:
        """Its fastest form, which takes four pixels for each and isn't antialiased."""
        import cv2

        cv2.setNumThreads(torch.get_num_threads())
        collate = pinfeed.Collate(pinfeed.Image(MEAN, STD))

        def crop(image: Any, top: int, left: int, height: int, width: int, _: int, flipped: int):
            view = cv2.resize(image[top : top + height, left : left + width], SIZE)
            return view[:, ::-1] if flipped else view

        return lambda: self.each(crop, collate)

    def pillow(self) -> Callable[[], Any]:
        """Images of Pillow are resized, and collated by pinfeed."""
        from PIL import Image

        collate = pinfeed.Collate(pinfeed.Image(MEAN, STD))
        images = [Image.fromarray(image) for image in self.images]

        def crop(image: Any, top: int, left: int, height: int, width: int, _: int, flipped: int):
            box = (left, top, left + width, top + height)
            view = image.crop(box).resize(SIZE, Image.Resampling.BILINEAR)
            return view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flipped else view

        return lambda: self.each(crop, collate, images)


def images_resized(name: str) -> Workload:
    """The recipe of ImageNet."""
    crops = Crops()
    height, width = (
        sum(window[i] for window in crops.windows) / len(crops.windows) for i in (2, 3)
    )
    rounding = ROUNDING[torch.float32]
    ways = [
        Way("fill the output", lambda: lambda: crops.out.fill_(0.5), Role.LIMIT),
        Way("**pinfeed**", crops.pinfeed, Role.PINFEED),
        Way(
            "**pinfeed** to bfloat16",
            lambda: crops.pinfeed(torch.bfloat16),
            Role.PINFEED,
            tolerance=ROUNDING[torch.bfloat16],
        ),
        Way(
            "**pinfeed**, not rounded to bytes",
            lambda: crops.pinfeed(resize_dtype=torch.float32),
            Role.PINFEED,
            tolerance=1.1 * ONE,
        ),
        Way(
            "**pinfeed**, float32 photographs",
            lambda: crops.floats(by_torch=False),
            Role.PINFEED,
            tolerance=1.1 * ONE,
        ),
        Way(
            "float32 photographs: `interpolate`, `sub_`, `div_`",
            lambda: crops.floats(by_torch=True),
            tolerance=1.1 * ONE,
        ),
        Way("torchvision v2, channels_last", crops.torchvision, tolerance=rounding),
        Way("`cv2.resize`, not antialiased, + **pinfeed**", crops.opencv, tolerance=40 * ONE),
        Way("Pillow + **pinfeed**", crops.pillow, tolerance=2 * ONE),
    ]
    title = (
        f"{len(crops.images)} photographs of 500x375, crops of {width:.0f}x{height:.0f} on average "
        f"resized to {SIZE[1]}x{SIZE[0]}, flipped at random, {torch.get_num_threads()} thread(s)"
    )
    return Workload(name, title, ways, error=crops.error, images=len(crops.images))


def threads(name: str) -> Workload:
    """One thread against two, in the same rounds."""
    crops = Crops()

    def way(count: int) -> Way:
        text = f"**pinfeed**, {count} thread{'s' if count > 1 else ''}"
        return Way(
            text,
            crops.pinfeed,
            Role.PINFEED,
            prepare=lambda: pinfeed.set_num_threads(count),
        )

    title = "Random resized crops: threads"
    return Workload(name, title, [way(1), way(2)], error=crops.error, images=len(crops.images))


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return the workloads here by name: their number of threads and what makes them."""
    return {"images-resized": (1, images_resized), "threads-resized": (1, threads)}
