"""Calls of every op of torch.ops.pinfeed, for any device."""

import torch

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
OPS = ["normalize_images", "permute", "pad_jagged", "unpad_to_jagged"]


def images(device="cpu", shape=(3, 5, 7, 3)):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).to(device)


def jagged(device="cpu", row=(2,), dtype=torch.float32):
    """Returns values and offsets: an empty sample, a long one, and unused rows at either end."""
    values = torch.arange(12 * torch.Size(row).numel()).view(12, *row).to(dtype)
    return values.to(device), torch.tensor([1, 3, 3, 10, 11], device=device)


def calls(device="cpu"):
    """Returns (name, op, args, kwargs): calls of each op that together use every option."""
    batch = images(device)
    wide = images(device, (2, 4, 3, 40))
    values, offsets = jagged(device)
    left = {"side": "left", "max_length": 3, "pad_value": -1.0}
    pads = [
        ("plain", (values, offsets, 7), {}),
        ("left", (values, offsets, 8), left),
        ("integers", (values.long(), offsets, 4), {"pad_value": -100.0}),
        ("gradients", (values.clone().requires_grad_(), offsets, 4), left),
        ("no length", (values, offsets, 0), {}),
    ]
    boxes = values.new_ones(4, 7, 2)
    groups = {
        "normalize_images": [
            ("plain", (batch,), {}),
            ("imagenet", (batch, MEAN, STD), {"dtype": torch.float16}),
            ("channels_last", (batch, [0.5]), {"channels_last": True, "dtype": torch.bfloat16}),
            ("NCHW", (batch.permute(0, 3, 1, 2), MEAN), {"input": "NCHW", "output": "NHWC"}),
            ("NHW", (batch[..., 0],), {"input": "NHW", "scale": 1.0}),
            ("bytes", (batch,), {"dtype": torch.uint8}),
            ("strided", (batch[:, 1:, ::2],), {}),
            ("40 channels", (wide, [c / 40 for c in range(40)]), {}),
            ("empty", (batch[:0],), {}),
        ],
        "permute": [
            ("NHWC", (batch,), {}),
            ("NCHW", (values.view(1, 2, 3, 4), "NCHW", "NHWC"), {}),
            ("ABC", (values.view(2, 3, 4).mT, "ABC", "CAB"), {}),
            ("bytes of 3 axes", (batch[0], "HWC", "CHW"), {}),
            ("gradients", (values.view(1, 2, 3, 4).clone().requires_grad_(),), {}),
        ],
        "pad_jagged": pads,
        "unpad_to_jagged": [
            ("plain", (boxes, offsets, 12), {}),
            ("left", (boxes[:, :3], offsets, 11), {"side": "left", "max_length": 2}),
            ("gradients", (boxes.clone().requires_grad_(), offsets, 12), {"side": "left"}),
            ("no total", (boxes[:, :0], offsets.new_zeros(5), 0), {}),
        ],
    }
    assert list(groups) == OPS
    for name, variants in groups.items():
        for variant, args, kwargs in variants:
            yield f"{name}, {variant}", getattr(torch.ops.pinfeed, name), args, kwargs


def tensors(result):
    return result if isinstance(result, tuple) else (result,)


def moved(arguments, device):
    """Returns the positional or keyword arguments, on another device."""

    def move(value):
        return value.to(device) if isinstance(value, torch.Tensor) else value

    if isinstance(arguments, dict):
        return {name: move(value) for name, value in arguments.items()}
    return tuple(map(move, arguments))
