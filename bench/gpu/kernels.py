"""Kernels beside a copy within the device that moves as many bytes, and beside torch.compile."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import pinfeed
from bench.gpu.timing import Scale, host_seconds, medians

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def results(scale: Scale) -> Iterator[dict[str, Any]]:
    """One record for each kernel."""
    for dtype in (torch.float32, torch.bfloat16):
        for layout in ("NCHW", "NHWC"):
            yield _normalize(scale, dtype, layout)
    yield _pad(scale)
    yield _launch(scale)


def _copy_of(size: int, device: torch.device) -> Any:
    """A copy within the device that reads and writes ``size`` bytes together."""
    source = torch.zeros(size // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _torch_normalize(images: torch.Tensor, dtype: torch.dtype, layout: str) -> torch.Tensor:
    scale = torch.tensor([1 / 255 / std for std in STD], device=images.device)
    bias = torch.tensor([-m / s for m, s in zip(MEAN, STD, strict=True)], device=images.device)
    result = torch.addcmul(bias, images.float(), scale).to(dtype)
    return result.permute(0, 3, 1, 2).contiguous() if layout == "NCHW" else result


def _normalize(scale: Scale, dtype: torch.dtype, layout: str) -> dict[str, Any]:
    count, side = scale.pick(1024, 4), scale.pick(224, 32)
    images = torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8).to(scale.device)
    expected = pinfeed.normalize(images[:4].cpu(), MEAN, STD, output=layout, dtype=dtype)
    out = torch.empty((count, *expected.shape[1:]), dtype=dtype, device=scale.device)

    def ours() -> torch.Tensor:
        return pinfeed.normalize(images, MEAN, STD, output=layout, dtype=dtype, out=out)

    compiled = torch.compile(_torch_normalize, mode="max-autotune-no-cudagraphs")

    def peers() -> torch.Tensor:
        return compiled(images, dtype, layout)

    assert torch.equal(ours()[:4].cpu(), expected)
    error = (peers()[:4].cpu().float() - expected.float()).abs().max()
    assert error <= (0.02 if dtype == torch.bfloat16 else 1e-5), error
    size = images.nbytes + out.nbytes
    ways = {"pinfeed": ours, "torch.compile": peers, "copy": _copy_of(size, scale.device)}
    return _record(
        f"normalize {tuple(images.shape)} → {str(dtype)[6:]} {layout}",
        medians(ways, scale),
        size,
        0.85,
    )


def _pad(scale: Scale) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 513, scale.pick(65536, 64))
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))
    values = torch.from_numpy(rng.integers(0, 50_000, int(offsets[-1])))
    here = pinfeed.JaggedBatch(values, offsets)
    there = pinfeed.JaggedBatch(values.to(scale.device), offsets.to(scale.device))
    length = int(lengths.max())
    expected = pinfeed.pad(here, lengths=False)
    out = torch.empty(expected.shape, dtype=expected.dtype, device=scale.device)

    def ours() -> torch.Tensor:
        torch.ops.pinfeed.pad_jagged.out(there.values, there.offsets, length, out=out)
        return out

    @torch.compile(mode="max-autotune-no-cudagraphs")
    def padded(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        place = torch.arange(length, device=values.device)
        indices = offsets[:-1, None] + place
        inside = indices < offsets[1:, None]
        return torch.where(inside, values[torch.where(inside, indices, 0)], 0)

    def peers() -> torch.Tensor:
        return padded(there.values, there.offsets)

    assert torch.equal(ours().cpu(), expected)
    assert torch.equal(peers().cpu(), expected)
    size = values.nbytes + out.nbytes
    ways = {"pinfeed": ours, "torch.compile": peers, "copy": _copy_of(size, scale.device)}
    return _record(
        f"pad {len(lengths):,} int64 sequences of 1–512", medians(ways, scale), size, 0.8
    )


def _record(name: str, seconds: dict[str, float], size: int, target: float) -> dict[str, Any]:
    share = seconds["copy"] / seconds["pinfeed"]
    ratio = seconds["torch.compile"] / seconds["pinfeed"]
    return {
        "name": name,
        "values": {
            "µs": seconds["pinfeed"] * 1e6,
            "GB/s": size / seconds["pinfeed"] / 1e9,
            "of a copy": share,
            "torch.compile takes": ratio,
        },
        "targets": {f"≥ {target} of a copy": share >= target, "≥ torch.compile": ratio >= 1},
    }


def _launch(scale: Scale) -> dict[str, Any]:
    images = torch.zeros(1, 8, 8, 3, dtype=torch.uint8, device=scale.device)
    mean, std = list(MEAN), list(STD)
    out = torch.empty(1, 3, 8, 8, device=scale.device)
    ways = {
        "op": lambda: torch.ops.pinfeed.normalize_images(images, mean, std),
        "function": lambda: pinfeed.normalize(images, MEAN, STD, out=out),
        "torch's copy_": lambda: out.copy_(out),
    }
    seconds = medians(ways, scale, host_seconds, calls=200)
    return {
        "name": "host time of a launch",
        "values": {f"{name}, µs": value * 1e6 for name, value in seconds.items()},
        "targets": {"op ≤ 15 µs": seconds["op"] <= 15e-6},
    }
