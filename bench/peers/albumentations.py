"""albumentations' Normalize, image by image, and torch's `default_collate`."""

import os

import torch
from torch.utils.data import default_collate

from bench.harness import Way
from bench.image_ways import MEAN, STD, ImageBatch


def ways(batch: ImageBatch) -> list[Way]:
    """NHWC to float32; there is no `out=`."""

    def build():
        os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # or importing it asks the network
        import albumentations
        import cv2

        cv2.setNumThreads(torch.get_num_threads())
        transform = albumentations.Normalize(MEAN, STD)
        order = tuple("HWC".index(axis) for axis in batch.output[1:])

        def convert(image):
            return torch.from_numpy(transform(image=image)["image"].transpose(order))

        return lambda: default_collate([convert(image) for image in batch.images])

    return [Way("albumentations per image + `default_collate`", build, tolerance=4e-6)]
