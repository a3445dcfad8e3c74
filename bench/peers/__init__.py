"""One adapter per library that a user would pick instead, each in its best form."""

from bench.peers import (
    albumentations,
    compiled,
    dali,
    ffcv,
    numpy_forms,
    opencv,
    torch_epoch,
    torchvision,
    transformers,
)

__all__ = [
    "albumentations",
    "compiled",
    "dali",
    "ffcv",
    "numpy_forms",
    "opencv",
    "torch_epoch",
    "torchvision",
    "transformers",
]
