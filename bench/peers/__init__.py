"""One adapter per library that a user would pick instead, each in its best form."""

from bench.peers import albumentations, compiled, dali, ffcv, opencv, torchvision, transformers

__all__ = ["albumentations", "compiled", "dali", "ffcv", "opencv", "torchvision", "transformers"]
