"""OpenCV's `dnn.blobFromImages`, and its form that knows a scale per channel."""

import torch

from bench.harness import Way
from bench.image_ways import MEAN, ImageBatch, largest_difference, normalize_table

ONE_STD = 0.226
TOLERANCE = 4e-6


def ways(batch: ImageBatch) -> list[Way]:
    """NHWC to float32 NCHW; there is no `out=`."""
    mean = tuple(255 * value for value in MEAN)
    size = (batch.width, batch.height)

    def one_scale():
        import cv2

        cv2.setNumThreads(torch.get_num_threads())
        images = list(batch.images)
        scale = 1 / (255 * ONE_STD)
        return lambda: cv2.dnn.blobFromImages(images, scale, size, mean)

    def one_scale_error(result) -> float:
        expected = batch.expected(normalize_table(std=(ONE_STD,) * len(MEAN)))
        return largest_difference(torch.from_numpy(result), expected)

    name = "OpenCV `dnn.blobFromImages` (one std for all channels)"
    return [Way(name, one_scale, tolerance=TOLERANCE, error=one_scale_error)]
