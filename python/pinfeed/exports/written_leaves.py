"""The leaves of samples that are written to files."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from pinfeed.exports.array_writers import ArrayWriter, DenseWriter, RaggedWriter
from pinfeed.exports.to_numpy.outputs import file_name
from pinfeed.files.draft import Draft


class WrittenLeaves:
    """A writer for each leaf that the first sample or batch has: one, or one for each key of a dict.

    Args:
        draft: Where they write.
        is_file: Whether it is to be one .npy file.
        ragged: The keys whose samples differ in length.
        dtype: One, or one for each key.
    """

    def __init__(self, draft: Draft, is_file: bool, ragged: Collection[str], dtype: Any) -> None:
        self._draft, self._is_file = draft, is_file
        self._ragged, self._dtype = ragged, dtype
        self._writers: dict[Any, ArrayWriter] = {}
        self._is_dict = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return not self._writers

    def add_sample(self, sample: Any, number: int) -> int:
        """Writes a sample and returns its size in bytes."""
        where = f"sample {number}"
        leaves = self._leaves(sample, where)
        return sum(
            writer.add_sample(leaf, _where(key, where, self._is_dict))
            for (key, writer), leaf in zip(self._writers.items(), leaves, strict=True)
        )

    def add_batch(self, batch: Any, number: int) -> tuple[int, int]:
        """Writes a batch; returns the number of its samples, and its size in bytes."""
        where = f"batch {number}"
        leaves = self._leaves(batch, where)
        first_count, total = None, 0
        for (key, writer), leaf in zip(self._writers.items(), leaves, strict=True):
            count, size = writer.add_batch(leaf, _where(key, where, self._is_dict))
            total += size
            if first_count is None:
                first_count = count
            elif count != first_count:
                first_key = next(iter(self._writers))
                raise ValueError(
                    f"{_where(key, where, True)}: expected {first_count} samples, as "
                    f"[{first_key!r}] has, got {count}"
                )
        return first_count or 0, total

    def finish(self) -> None:
        """Brings all files on to the disk."""
        for writer in self._writers.values():
            writer.finish()

    def close(self) -> None:
        """Closes all files."""
        for writer in self._writers.values():
            writer.close()

    def open(self) -> Any:
        """What is in its place by now."""
        path = self._draft.path
        folder = os.path.dirname(path) if self._is_file else path
        opened = {key: writer.open(folder) for key, writer in self._writers.items()}
        return opened if self._is_dict else opened[None]

    def _leaves(self, item: Any, where: str) -> list[Any]:
        if not self._writers:
            self._begin(item)
        if isinstance(item, Mapping) != self._is_dict:
            expected = f"a dict of {list(self._writers)}" if self._is_dict else "no dict"
            raise ValueError(
                f"write_array: {where}: expected {expected} like the first, "
                f"got {type(item).__name__}"
            )
        if not self._is_dict:
            return [item]
        if item.keys() != self._writers.keys():
            raise ValueError(
                f"write_array: {where}: expected the keys {list(self._writers)} like the first, "
                f"got {list(item)}"
            )
        return [item[key] for key in self._writers]

    def _begin(self, first: Any) -> None:
        """Makes a writer for each leaf."""
        folder = self._draft.folder
        self._is_dict = isinstance(first, Mapping)
        if self._is_dict:
            self._begin_dict(list(first))
            return
        self._require_known((), "items are no dicts")
        if self._is_file:
            name = os.path.basename(self._draft.path).removesuffix(".npy")
            self._writers[None] = DenseWriter(folder, name, self._dtype)
        else:
            self._writers[None] = RaggedWriter(folder, "", self._dtype)

    def _begin_dict(self, keys: list[Any]) -> None:
        if not keys:
            raise ValueError("write_array: expected a dict with at least one key, got an empty one")
        if self._is_file:
            raise ValueError(
                f"write_array: a .npy file holds one array, but items are dicts of {keys}; "
                "give the path of a directory"
            )
        self._require_known(keys, f"the first item has the keys {keys}")
        taken: set[str] = set()
        for key in keys:
            name = file_name([f"[{key!r}]"])
            is_ragged = key in self._ragged
            written = name if is_ragged else f"{name}.npy"
            if written in taken:
                raise ValueError(
                    f"write_array: another key is already written to {written}; rename {key!r}"
                )
            taken.add(written)
            kind = RaggedWriter if is_ragged else DenseWriter
            dtype = self._dtype.get(key) if isinstance(self._dtype, Mapping) else self._dtype
            self._writers[key] = kind(self._draft.folder, name, dtype)

    def _require_known(self, keys: Collection[Any], found: str) -> None:
        """Raises ValueError if an option names a key that there isn't."""
        dtypes = self._dtype if isinstance(self._dtype, Mapping) else ()
        for option, named in (("ragged", self._ragged), ("dtype", dtypes)):
            for key in named:
                if key not in keys:
                    raise ValueError(f"write_array: {option} names {key!r}, but {found}")


def _where(key: Any, where: str, is_dict: bool) -> str:
    return f"write_array: leaf [{key!r}] of {where}" if is_dict else f"write_array: {where}"
