"""Images in other libraries: transforms, and normalization in each library's best form."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from bench.data import MEAN, STD, normalize_table, normalized
from bench.harness import Alternative, Run, built, other

ONE_STD = 0.226  # for all channels
ORDER = (0, 3, 1, 2)


def constants() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns mean and std of bytes, which broadcast over the channels of (N, 3, H, W)."""
    return torch.tensor(MEAN).view(1, 3, 1, 1) * 255, torch.tensor(STD).view(1, 3, 1, 1) * 255


def normalizing(images: np.ndarray, out: torch.Tensor) -> list[Alternative]:
    """Normalizes uint8 images (N, H, W, 3), into a float32 output (N, 3, H, W) where a library can.

    They round at other steps than pinfeed, some of them twice.
    """
    (mean, std), tensor = constants(), torch.from_numpy(images)
    planes, array, columns = tensor.permute(ORDER), out.numpy(), images.transpose(ORDER)
    scale, bias = (1 / std).numpy(), (-mean / std).numpy()

    def torch_compiled() -> Run:
        @torch.compile(dynamic=False)
        def normalize(images: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            return out.copy_((images.permute(ORDER).float() - mean) / std)

        return lambda: normalize(tensor, out)

    def torchvision() -> Run:
        transform = to_normalized()
        return lambda: default_collate([transform(image) for image in images])

    def albumentations() -> Run:
        os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # or its import accesses the network
        from albumentations import Normalize

        transform = Normalize(MEAN, STD)

        def one(image: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(transform(image=image)["image"].transpose(2, 0, 1))

        return lambda: default_collate([*map(one, images)])

    def opencv() -> Run:
        import cv2

        cv2.setNumThreads(torch.get_num_threads())
        samples, size = list(images), (images.shape[2], images.shape[1])
        mean, scale = tuple(255 * value for value in MEAN), 1 / (255 * ONE_STD)
        return lambda: cv2.dnn.blobFromImages(samples, scale, size, mean)

    one_std = {"expected": normalized(images, std=(ONE_STD,) * 3)}
    return [
        other(
            "torch, best by hand (`copy_`, `sub_`, `div_` into `out`)",
            lambda: out.copy_(planes).sub_(mean).div_(std),
        ),
        other(
            "torch, as usually written",
            lambda: planes.float().sub_(mean).div_(std).contiguous(),
        ),
        other(
            "NumPy, best by hand (`multiply`, `add` into `out`)",
            lambda: np.add(np.multiply(columns, scale, out=array), bias, out=array),
        ),
        other("`torch.compile` into `out`", built(torch_compiled)),
        other("torchvision v2 per sample + `default_collate`", built(torchvision)),
        other("albumentations per image + `default_collate`", built(albumentations)),
        other("FFCV's technique (numba table, NHWC out)", built(ffcv, images)),
        other("OpenCV `dnn.blobFromImages` (one std for all)", built(opencv), **one_std),
    ]


def ffcv(images: np.ndarray) -> Run:
    """A table lookup of bytes; NHWC to NHWC, which torch calls NCHW in `channels_last` order."""
    import numba

    table = np.ascontiguousarray(normalize_table().numpy().T)
    out = np.zeros(images.shape, np.float32)
    result = torch.from_numpy(out).permute(ORDER)

    # FFCV compiles for three channels too; unrolled, the channels need no inner loop.
    @numba.njit(boundscheck=False)
    def look_up(images, table, out):
        for sample in range(images.shape[0]):
            for row in range(images.shape[1]):
                for column in range(images.shape[2]):
                    out[sample, row, column, 0] = table[0, images[sample, row, column, 0]]
                    out[sample, row, column, 1] = table[1, images[sample, row, column, 1]]
                    out[sample, row, column, 2] = table[2, images[sample, row, column, 2]]

    def run() -> torch.Tensor:
        look_up(images, table, out)
        return result

    return run


def v2() -> Any:
    """Imports `torchvision.transforms.v2`, even if its compiled operators don't match torch."""
    try:
        from torchvision.transforms import v2
    except RuntimeError:
        # A wheel built for another torch fails to import at the fake kernels of its operators. The
        # transforms need only the schemas of these operators.
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", schema)
        from torchvision.transforms import v2
    return v2


def to_normalized(*before: Any) -> Any:
    """torchvision's transform of one image, after others."""
    steps = [v2().ToDtype(torch.float32, scale=True), v2().Normalize(MEAN, STD)]
    return v2().Compose([v2().ToImage(), *before, *steps])


def finishing(*after: Any) -> Any:
    """torchvision's last transforms of a uint8 image, in place, before others."""
    normalize = v2().Normalize(MEAN, STD, inplace=True)
    return v2().Compose([v2().ToDtype(torch.float32, scale=True), normalize, *after])


def padded_images(images: Sequence[torch.Tensor], shape: tuple[int, ...]) -> torch.Tensor:
    """Copies images (3, H, W) into zeros."""
    canvas = torch.zeros(shape)
    for image, slot in zip(images, canvas, strict=True):
        slot[:, : image.shape[1], : image.shape[2]] = image
    return canvas
