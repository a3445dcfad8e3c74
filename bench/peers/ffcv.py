"""FFCV's technique: a table of 256 entries per channel, looked up by code that numba compiles."""

import numpy as np
import torch

from bench.epoch import Epoch
from bench.harness import Way
from bench.image_ways import ImageBatch, normalize_table


def _numba():
    """The module, and its decorator with the threads that torch has."""
    import numba

    threads = torch.get_num_threads()
    # Its OpenMP layer would share torch's library, and each would tear down the other's threads:
    # compiled graphs then took 300 times as long.
    numba.config.THREADING_LAYER = "workqueue"
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    return numba, numba.njit(parallel=threads > 1, boundscheck=False)


def _look_up():
    numba, compiled = _numba()

    # FFCV compiles for three channels as well; written out, the channels need no inner loop.
    @compiled
    def look_up(images, table, out):
        for sample in numba.prange(images.shape[0]):
            for row in range(images.shape[1]):
                for column in range(images.shape[2]):
                    out[sample, row, column, 0] = table[0, images[sample, row, column, 0]]
                    out[sample, row, column, 1] = table[1, images[sample, row, column, 1]]
                    out[sample, row, column, 2] = table[2, images[sample, row, column, 2]]

    return look_up, np.ascontiguousarray(normalize_table().numpy().T)


def ways(batch: ImageBatch) -> list[Way]:
    """NHWC to NHWC, which torch calls NCHW in `channels_last` order."""

    def build():
        look_up, table = _look_up()
        out = np.zeros(batch.images.shape, np.float32)
        result = torch.from_numpy(out)
        if batch.output == "NCHW":
            result = result.permute(0, 3, 1, 2)

        def run():
            look_up(batch.images, table, out)
            return result

        return run

    return [Way("FFCV's technique (numba table, NHWC out)", build)]


def cropped_epoch(epoch: Epoch, padding: int):
    """Build shuffled epochs of images that are flipped, padded and cropped at random.

    Each operation is a compiled pass over a batch, from one buffer that is kept into the next, and
    written as FFCV's are: slices of one sample assigned to those of another.
    """
    numba, compiled = _numba()
    look_up, table = _look_up()
    random, size = np.random, epoch.images.shape[1]  # numba compiles NumPy's old functions

    @compiled
    def flip(images, out):
        for i in numba.prange(len(out)):
            if random.rand() < 0.5:
                out[i] = images[i, :, ::-1]
            else:
                out[i] = images[i]

    @compiled
    def translate(images, padded, out):
        for i in numba.prange(len(out)):
            padded[i] = 0
            padded[i, padding : padding + size, padding : padding + size] = images[i]
            top, left = random.randint(0, 2 * padding + 1), random.randint(0, 2 * padding + 1)
            out[i] = padded[i, top : top + size, left : left + size]

    shape = epoch.batch_size, size, size, 3
    gathered, flipped, cropped = np.empty((3, *shape), np.uint8)
    padded = np.empty((shape[0], size + 2 * padding, size + 2 * padding, 3), np.uint8)
    floats = np.empty(shape, np.float32)

    def batches():
        for indices in torch.randperm(epoch.count).split(epoch.batch_size):
            count = len(indices)
            np.take(epoch.images, indices.numpy(), 0, out=gathered[:count])
            flip(gathered[:count], flipped[:count])
            translate(flipped[:count], padded, cropped[:count])
            look_up(cropped[:count], table, floats[:count])
            yield torch.from_numpy(floats[:count]).permute(0, 3, 1, 2), epoch.tensors[1][indices]

    return batches
