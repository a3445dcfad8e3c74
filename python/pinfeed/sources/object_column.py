"""Samples that no array holds: strings, or images of different sizes."""

from __future__ import annotations

from typing import Any

from pinfeed.sources.source import Source


class ObjectColumn(Source):
    """Objects as they are, one for each sample; `Collate` takes them like samples of any dataset.

    Args:
        objects: They are not looked at.
    """

    __slots__ = ("objects",)

    def __init__(self, objects: list[Any]) -> None:
        self.objects = objects

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, index: int) -> Any:
        return self.objects[index]

    @property
    def dtype(self) -> Any:
        """None: the objects need not have one."""
        return None

    def check(self) -> None:
        """See `Source.check`; no file is involved."""

    @property
    def reads_files(self) -> bool:
        """See `Source.reads_files`."""
        return False

    def prefetch(self, indices: Any, name: str) -> None:
        """See `Source.prefetch`; no file is involved."""

    def describe(self) -> str:
        """See `Source.describe`."""
        return "objects"
