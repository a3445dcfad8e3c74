"""Model: the small CNN that both runs train."""

import torch
from torch import nn

from pinfeed.demo.patches import COLUMNS

CLASSES = 2 * COLUMNS


def make_model(seed: int) -> nn.Sequential:
    """Makes the CNN, float32 (N, 3, 64, 64) to logits (N, 8), with weights that follow the seed.

    SiLU rather than ReLU: the two feeds round differently in the last bit, and a smooth network
    doesn't blow such a difference up during training.
    """
    torch.manual_seed(seed)
    return nn.Sequential(
        *_block(3, 16, kernel_size=5, stride=4),
        *_block(16, 32, kernel_size=3, stride=2),
        *_block(32, 64, kernel_size=3, stride=2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, CLASSES),
    )


def _block(inputs: int, outputs: int, kernel_size: int, stride: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(
        inputs, outputs, kernel_size, stride, padding=kernel_size // 2, bias=False
    )
    return convolution, nn.BatchNorm2d(outputs), nn.SiLU()
