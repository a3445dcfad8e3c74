"""Moving without arithmetic: `permute` and `gather` beside `memcpy`."""

import ctypes

import numpy as np
import torch

import pinfeed
from bench.harness import Role, Way, Workload


def memcpy_way(target: torch.Tensor, source: torch.Tensor) -> Way:
    """Return the physical limit of moving bytes."""
    size = target.numel() * target.element_size()
    copy = ctypes.memmove
    return Way(
        "physical limit: `memcpy` of as many bytes",
        lambda: lambda: copy(target.data_ptr(), source.data_ptr(), size),
        Role.LIMIT,
    )


def difference(result, expected: torch.Tensor) -> float:
    """Return 0, or infinity: where nothing is computed, a result is right or wrong."""
    result = torch.as_tensor(result)
    if result.dtype != expected.dtype or not torch.equal(result, expected):
        return float("inf")
    return 0.0


def permute(name: str, source: str, target: str) -> Workload:
    """A batch of float32 images from one layout into the other."""
    sizes = {"N": 64, "H": 224, "W": 224, "C": 3}
    shape = tuple(sizes[axis] for axis in source)
    images = np.random.default_rng(0).random(shape, np.float32)
    tensor = torch.from_numpy(images)
    order = tuple(source.index(axis) for axis in target)
    out = torch.zeros(tuple(sizes[axis] for axis in target))
    out_array = out.numpy()
    expected = tensor.permute(order).contiguous()

    def pinfeed_permute():
        return lambda: pinfeed.permute(tensor, source, target, out=out)

    def copyto():
        np.copyto(out_array, images.transpose(order))
        return out_array

    ways = [
        memcpy_way(out, tensor),
        Way("**pinfeed** `permute(out=)`", pinfeed_permute, Role.PINFEED),
        Way("torch `out.copy_(x.permute(…))`", lambda: lambda: out.copy_(tensor.permute(order))),
        Way(
            "torch `x.permute(…).contiguous()`", lambda: lambda: tensor.permute(order).contiguous()
        ),
        Way("NumPy `copyto(out, x.transpose(…))`", lambda: copyto),
        Way(
            "NumPy `ascontiguousarray(x.transpose(…))`",
            lambda: lambda: np.ascontiguousarray(images.transpose(order)),
        ),
    ]
    size = "x".join(map(str, shape))
    title = f"{size} float32 {source} → {target}, {torch.get_num_threads()} thread(s)"
    return Workload(name, title, ways, lambda result: difference(result, expected), images=64)


def gather(name: str, rows: int, columns: int, dtype: type, count: int) -> Workload:
    """Random rows of a matrix; other rows for each sample, so that they come from memory."""
    random = np.random.default_rng(0)
    array = random.integers(0, 256, (rows, columns), np.uint8).astype(dtype, copy=False)
    tensor = torch.from_numpy(array)
    out = torch.zeros((count, columns), dtype=tensor.dtype)
    out_array = out.numpy()
    row_bytes = array.strides[0]
    indices = np.zeros(count, np.int64)
    index_tensor = torch.from_numpy(indices)

    def choose() -> None:
        indices[:] = random.integers(0, rows, count)

    def memcpy():
        # As cold as the rows are: from the first chosen row on.
        size = out_array.nbytes
        last = rows - count

        def run():
            source = array.ctypes.data + min(int(indices[0]), last) * array.strides[0]
            ctypes.memmove(out.data_ptr(), source, size)

        return run

    def pinfeed_gather():
        return lambda: pinfeed.gather(tensor, index_tensor, out=out)

    def pinfeed_cast():
        dataset = pinfeed.ArrayDataset(array)
        collate = pinfeed.Collate(pinfeed.Stack(torch.float64))
        return lambda: collate(dataset.__getitems__(indices))

    def torch_cast():
        return lambda: tensor[index_tensor].double()

    def cast_difference(result):
        return difference(result, tensor[index_tensor].double())

    ways = [
        Way("physical limit: `memcpy` of as many bytes", memcpy, Role.LIMIT),
        Way("**pinfeed** `gather(out=)`", pinfeed_gather, Role.PINFEED),
        Way(
            'NumPy `take(mode="clip", out=)`',
            lambda: lambda: np.take(array, indices, axis=0, mode="clip", out=out_array),
        ),
        Way("NumPy `array[indices]`", lambda: lambda: array[indices]),
        Way(
            "torch `index_select(out=)`",
            lambda: lambda: torch.index_select(tensor, 0, index_tensor, out=out),
        ),
        Way("torch `tensor[indices]`", lambda: lambda: tensor[index_tensor]),
    ]
    if row_bytes < 1024:  # a table's, which is read as another type
        ways += [
            Way(
                "**pinfeed** `Collate(Stack(float64))`",
                pinfeed_cast,
                Role.PINFEED,
                error=cast_difference,
            ),
            Way("torch `tensor[indices].double()`", torch_cast, error=cast_difference),
        ]
    size = f"{row_bytes:,} bytes"
    title = f"{count:,} random rows of {size} out of {rows:,}, {torch.get_num_threads()} thread(s)"
    return Workload(
        name,
        title,
        ways,
        error=lambda result: difference(result, tensor[index_tensor]),
        prepare=choose,
        repeat=False,
    )


def workloads():
    """Return every workload here by name: its number of threads and what makes it."""
    return {
        "permute-NHWC-NCHW": (1, lambda name: permute(name, "NHWC", "NCHW")),
        "permute-NCHW-NHWC": (1, lambda name: permute(name, "NCHW", "NHWC")),
        "gather-64B": (1, lambda name: gather(name, 2_000_000, 16, np.float32, 4096)),
        "gather-512B": (1, lambda name: gather(name, 1_000_000, 128, np.float32, 2048)),
        "gather-3KB": (1, lambda name: gather(name, 50_000, 3072, np.uint8, 256)),
        "gather-150KB": (1, lambda name: gather(name, 5_000, 150_528, np.uint8, 256)),
    }
