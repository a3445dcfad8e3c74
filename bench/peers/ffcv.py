"""FFCV's technique: a table of 256 entries per channel, looked up by code that numba compiles."""

import numpy as np
import torch

from pinfeed.bench.harness import Way
from pinfeed.bench.images import ImageBatch, normalize_table


def _compile():
    import numba

    threads = torch.get_num_threads()
    # Its OpenMP layer would share torch's library, and each would tear down the other's threads:
    # compiled graphs then took 300 times as long.
    numba.config.THREADING_LAYER = "workqueue"

    # FFCV compiles for three channels as well; written out, the channels need no inner loop.
    @numba.njit(parallel=threads > 1, boundscheck=False)
    def look_up(images, table, out):
        for sample in numba.prange(images.shape[0]):
            for row in range(images.shape[1]):
                for column in range(images.shape[2]):
                    out[sample, row, column, 0] = table[0, images[sample, row, column, 0]]
                    out[sample, row, column, 1] = table[1, images[sample, row, column, 1]]
                    out[sample, row, column, 2] = table[2, images[sample, row, column, 2]]

    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    return look_up


def ways(batch: ImageBatch) -> list[Way]:
    """NHWC to NHWC, which torch calls NCHW in `channels_last` order."""

    def build():
        look_up = _compile()
        table = np.ascontiguousarray(normalize_table().numpy().T)
        out = np.zeros(batch.images.shape, np.float32)
        result = torch.from_numpy(out)
        if batch.output == "NCHW":
            result = result.permute(0, 3, 1, 2)

        def run():
            look_up(batch.images, table, out)
            return result

        return run

    return [Way("FFCV's technique (numba table, NHWC out)", build)]
