"""Loaders of numbered batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

BATCHES = 6


class Loader:
    """Yields numbered batches, and counts how often it was asked to begin."""

    def __init__(self, batches: int = BATCHES) -> None:
        self.batches = batches
        self.begun = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.begun += 1
        return (torch.full((2,), number) for number in range(self.batches))


def numbers(elements: list[Any]) -> list[int]:
    return [int(element[0]) for element in elements]


class Squares:
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, number: int) -> int:
        return number**2
