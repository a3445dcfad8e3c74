"""`python -m bench.gpu`: kernels, launches, epochs and training on a GPU, with torch and NumPy alone.

Without a GPU, `--quick` runs small workloads on the CPU to check that they run.
"""

import itertools
import sys
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pinfeed
from bench.command import main
from bench.data import MEAN, STD, difference, random_bytes, zero_if
from bench.harness import built, compare, other, ours, reference, workload
from bench.targets import at_least, at_most

HAS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if HAS_GPU else "cpu")
SIDE = 224 if HAS_GPU else 32
synchronize = torch.cuda.synchronize if HAS_GPU else None
compiled = partial(torch.compile, mode="max-autotune-no-cudagraphs")


def copying(name, size):
    """A copy within the device that reads and writes the same number of bytes."""
    source = torch.zeros(size // 2, dtype=torch.uint8, device=DEVICE)
    return reference(f"copy the bytes of {name}", partial(torch.empty_like(source).copy_, source))


KINDS = [(dtype, layout) for dtype in ("float32", "bfloat16") for layout in ("NCHW", "NHWC")]


@workload(
    *(at_most(1 / 0.85, f"{d} {x}", f"copy the bytes of {d} {x}") for d, x in KINDS),
    *(at_least(1, f"`torch.compile`, {d} {x}", f"{d} {x}") for d, x in KINDS),
)
def images():
    """1024 images of 224×224, normalized."""
    host = torch.from_numpy(random_bytes(1024 if HAS_GPU else 4, SIDE, SIDE, 3))
    images, alternatives = host.to(DEVICE), []
    scale = torch.tensor([1 / 255 / std for std in STD], device=DEVICE)
    bias = torch.tensor([-m / s for m, s in zip(MEAN, STD, strict=True)], device=DEVICE)

    @compiled
    def by_torch(images, dtype, layout):
        values = torch.addcmul(bias, images.float(), scale).to(dtype)
        return values.permute(0, 3, 1, 2).contiguous() if layout == "NCHW" else values

    def add(name, layout):
        dtype = getattr(torch, name)
        expected = pinfeed.functional.normalize(host[:4], MEAN, STD, output=layout, dtype=dtype)
        run = partial(pinfeed.functional.normalize, images, MEAN, STD, output=layout, dtype=dtype)
        check = {"expected": lambda result: difference(result[:4].cpu(), expected)}
        rounded = {"tolerance": 1e-5 if name == "float32" else 0.02}
        kind, peer = f"{name} {layout}", partial(by_torch, images, dtype, layout)
        alternatives.append(copying(kind, images.nbytes + images.numel() * dtype.itemsize))
        alternatives.append(ours(kind, run, **check))
        alternatives.append(other(f"`torch.compile`, {kind}", peer, **check, **rounded))

    for kind in KINDS:
        add(*kind)
    return compare(*alternatives, wait=synchronize)


@workload(at_most(1 / 0.8), at_least(1))
def pad():
    """65,536 int64 sequences of 1–512, padded."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 513, 65_536 if HAS_GPU else 64)
    offsets = torch.from_numpy(np.append(0, np.cumsum(lengths)))
    values, length = torch.from_numpy(rng.integers(0, 50_000, int(offsets[-1]))), int(lengths.max())
    expected = pinfeed.functional.pad(pinfeed.JaggedBatch(values, offsets), lengths=False)
    there, begins = values.to(DEVICE), offsets.to(DEVICE)

    @compiled
    def by_torch(values, offsets):
        indices = offsets[:-1, None] + torch.arange(length, device=values.device)
        inside = indices < offsets[1:, None]
        return torch.where(inside, values[torch.where(inside, indices, 0)], 0)

    return compare(
        copying("it", values.nbytes + expected.nbytes),
        ours(
            "`torch.ops.pinfeed.pad_jagged`",
            partial(torch.ops.pinfeed.pad_jagged, there, begins, length),
        ),
        other("`torch.compile`", partial(by_torch, there, begins)),
        expected=lambda result: difference(result.cpu(), expected),
        wait=synchronize,
    )


@workload(at_most(15, unit="µs"))
def launch():
    """Returns the host time of a launch, which does not wait for the device."""
    images = torch.zeros(1, 8, 8, 3, dtype=torch.uint8, device=DEVICE)
    mean, std = [*MEAN], [*STD]
    function = partial(pinfeed.functional.normalize, images, MEAN, STD)
    expected = function()
    out = expected.clone()
    return compare(
        ours("op", lambda: torch.ops.pinfeed.normalize_images(images, mean, std)),
        ours("function", function),
        other("torch's `copy_`", lambda: out.copy_(out)),
        expected=lambda result: difference(result, expected),
    )


@workload(at_most(1 / 0.9), at_least(5, "DataLoader(TensorDataset)"))
def epoch():
    """A batch of 512 from 20 GB of images in memory, shuffled, normalized on the device."""
    size, count = (512, 133_000) if HAS_GPU else (8, 400)
    images, labels = np.empty((count, SIDE, SIDE, 3), np.uint8), np.arange(count)
    block = random_bytes(100, SIDE, SIDE, 3)
    for start in range(0, count, len(block)):
        images[start : start + len(block)] = block
    # Each image encodes its index, so that mixed-up batches are detected.
    numbers = np.arange(count, dtype="<u4").view(np.uint8).reshape(-1, 4)
    images.reshape(count, -1)[:, :4] = numbers
    tensors = torch.from_numpy(images), torch.from_numpy(labels)
    mean, std = (torch.tensor(values, device=DEVICE).view(1, 3, 1, 1) for values in (MEAN, STD))
    pinned = torch.zeros(size * block[0].nbytes, dtype=torch.uint8, pin_memory=HAS_GPU)
    target, image = torch.empty_like(pinned, device=DEVICE), {"dtype": torch.bfloat16}

    def loader(dataset, **options):
        return DataLoader(dataset, size, shuffle=True, drop_last=True, **options)

    def by_pinfeed():
        field = pinfeed.Image(MEAN, STD, channels_last=True, **image)
        rows = loader(pinfeed.ArrayDataset((images, labels)), collate_fn=pinfeed.Collate())
        return partial(iter, pinfeed.DeviceLoader(rows, DEVICE, fields=(field, None)))

    def by_torch():
        for x, y in loader(TensorDataset(*tensors), pin_memory=HAS_GPU):
            there = x.to(DEVICE, non_blocking=True).permute(0, 3, 1, 2).float()
            there = there.div_(255).sub_(mean).div_(std)
            there = there.to(memory_format=torch.channels_last, **image)
            yield there, y.to(DEVICE, non_blocking=True)

    def some(run, units):
        """Returns this many batches of an epoch."""
        return {"run": lambda: itertools.islice(run(), units), "units": units}

    def error(batches):
        there, chosen = next(batches)
        expected = pinfeed.functional.normalize(
            images[chosen.cpu().numpy()], MEAN, STD, output="NHWC"
        )
        return difference(there.permute(0, 2, 3, 1).float().cpu(), torch.from_numpy(expected))

    most, few = (250, 25) if HAS_GPU else (40, 10)
    copies = partial(map, lambda _: target.copy_(pinned, non_blocking=True), range(most))
    return compare(
        reference("one pinned buffer, again and again", **some(copies, most)),
        ours("`DeviceLoader(fields=)`", **some(built(by_pinfeed), most), tolerance=0.02),
        other("DataLoader(TensorDataset), pinned", **some(by_torch, few)),
        expected=error,
        tolerance=0.02,
        wait=synchronize,
    )


@workload(at_most(1.02))
def training():
    """A training step with 256 images of 224×224: does it wait for its batch?"""
    batch, steps, width, depth = (256, 40, 256, 12) if HAS_GPU else (4, 4, 16, 2)
    images = random_bytes(batch * steps, SIDE, SIDE, 3)
    labels = np.random.default_rng(0).integers(0, 1000, len(images))
    layers = [nn.Conv2d(3, width, 7, 4, 3), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))
    model.to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    dataset, collate = pinfeed.ArrayDataset((images, labels)), pinfeed.Collate()
    loader = DataLoader(dataset, batch, shuffle=True, collate_fn=collate)
    image = pinfeed.Image(MEAN, STD, channels_last=True, dtype=torch.bfloat16)
    batches = pinfeed.DeviceLoader(loader, DEVICE, fields=(image, None))
    fixed = next(iter(batches))

    def train(source):
        for x, y in source:
            optimizer.zero_grad()
            with torch.autocast(DEVICE.type, torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if HAS_GPU:
                synchronize()  # or the next batch would be requested long before it is needed
        return loss.isfinite()

    return compare(
        reference("on one batch", lambda: train([fixed] * steps), units=steps),
        ours("fed by `DeviceLoader`", lambda: train(batches), units=steps),
        expected=zero_if,
        wait=synchronize,
    )


if __name__ == "__main__":
    if not HAS_GPU and not {"--quick", "--list"} & {*sys.argv}:
        sys.exit("this needs a GPU, and torch finds none; --quick only tries it out")
    sys.exit(main("bench.gpu"))
