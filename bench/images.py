"""Workloads that normalize one batch of images: layouts, dtypes, instruction sets, sizes."""

from collections.abc import Callable

import torch

import pinfeed
from bench import peers
from bench.harness import Role, Way, Workload
from bench.image_ways import (
    MEAN,
    ImageBatch,
    core_ways,
    fill_ways,
    image_workload,
    pinfeed_ways,
)

SIZES = {  # name: images, height, width
    "1x1-1": (1, 1, 1),
    "1x1-256": (256, 1, 1),
    "7x5-1": (1, 7, 5),
    "7x5-256": (256, 7, 5),
    "32x32-1": (1, 32, 32),
    "32x32-256": (256, 32, 32),
    "224x224-1": (1, 224, 224),
    "1080x1920-4": (4, 1080, 1920),
}


def _peer_ways(batch: ImageBatch) -> list[Way]:
    """Return the peers that know this combination of layouts and dtype."""
    names = ["numpy_forms", "compiled"]
    if batch.output == "NCHW":
        names.append("torchvision")
    if batch.input == "NHWC" and batch.dtype == torch.float32:
        names += ["opencv"] if batch.output == "NCHW" else []
        names += ["albumentations", "ffcv", "dali"]
    return [way for name in names for way in getattr(peers, name).ways(batch)]


def _title(batch: ImageBatch) -> str:
    shape = f"{batch.count}x{batch.height}x{batch.width}x{len(MEAN)}"
    dtype = str(batch.dtype).removeprefix("torch.")
    threads = torch.get_num_threads()
    return f"{shape} uint8 {batch.input} → {dtype} {batch.output}, normalized, {threads} thread(s)"


def normalize(name: str, *sizes: int, **keywords) -> Workload:
    """All ways of normalizing one batch."""
    batch = ImageBatch(*sizes, **keywords)
    return image_workload(name, _title(batch), batch, core_ways(batch) + _peer_ways(batch))


def _forced(way: Way, isa: str) -> Way:
    """Let a way run on one instruction set alone."""

    def build():
        run = way.build()

        def forced():
            with pinfeed.use_isa(isa):
                return run()

        return forced

    return Way(f"{way.name}, {isa} alone", build, Role.PINFEED, way.tolerance)


def sixteen_bits(name: str, dtype: torch.dtype) -> Workload:
    """A 16-bit output: by the best instruction set and by AVX2 alone."""
    batch = ImageBatch(256, 224, 224, dtype=dtype)
    ways = core_ways(batch)
    place = max(i for i, way in enumerate(ways) if way.role is Role.PINFEED)
    ways.insert(place + 1, _forced(pinfeed_ways(batch)[0], "avx2"))
    return image_workload(name, _title(batch), batch, ways + _peer_ways(batch))


def threads(name: str, *sizes: int) -> Workload:
    """One thread against two, in the same rounds."""
    batch = ImageBatch(*sizes)

    def with_threads(way: Way, count: int) -> Way:
        def set_threads() -> None:
            torch.set_num_threads(count)
            if way.role is Role.PINFEED:
                pinfeed.set_num_threads(count)

        name = f"{way.name}, {count} thread{'s' if count > 1 else ''}"
        return Way(name, way.build, way.role, way.tolerance, prepare=set_threads)

    ways = [
        with_threads(way, count)
        for way in (fill_ways(batch.out)[0], pinfeed_ways(batch)[0])
        for count in (1, 2)
    ]
    title = f"{'x'.join(map(str, sizes))}x{len(MEAN)} uint8 NHWC → float32 NCHW: threads"
    return image_workload(name, title, batch, ways)


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return every workload here by name: its number of threads and what makes it."""
    photographs = (256, 224, 224)
    table: dict[str, tuple[int, Callable[[str], Workload]]] = {
        "images": (1, lambda name: normalize(name, *photographs)),
        "images-2-threads": (2, lambda name: normalize(name, *photographs)),
        "images-float16": (1, lambda name: sixteen_bits(name, torch.float16)),
        "images-bfloat16": (1, lambda name: sixteen_bits(name, torch.bfloat16)),
        "images-NHWC-NHWC": (1, lambda name: normalize(name, *photographs, output="NHWC")),
        "images-NCHW-NCHW": (1, lambda name: normalize(name, *photographs, input="NCHW")),
    }
    for size, shape in SIZES.items():
        table[f"size-{size}"] = (1, lambda name, shape=shape: normalize(name, *shape))
    for size in ("32x32-1", "32x32-256"):
        table[f"threads-{size}"] = (1, lambda name, shape=SIZES[size]: threads(name, *shape))
    table["threads-224x224-256"] = (1, lambda name: threads(name, *photographs))
    return table
