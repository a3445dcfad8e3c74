"""One run of `pinfeed.to_numpy` or `pinfeed.write_array`: batches in, columns out."""

from __future__ import annotations

import contextlib
import copy
from typing import Any, NamedTuple

import torch

from pinfeed.exports.loader import PlannedLength
from pinfeed.exports.to_numpy.column import Column, Options, Parts
from pinfeed.exports.to_numpy.layout import Layout
from pinfeed.exports.to_numpy.storage import require_memory
from pinfeed.memory.staging import Accelerator, StagingBuffer, StagingBuffers, has_streams


class _Fetched(NamedTuple):
    """Leaves of a batch that are on their way from a device."""

    leaves: dict[int, Parts]  # on the host, by the number of the column
    buffers: list[StagingBuffer]  # to wait for before they are read
    start: int  # samples that come before
    wanted: int  # samples of the batch
    batch: int  # its number


class Drain:
    """Takes batch by batch, and keeps none but one that is being fetched from a device.

    Args:
        options: How columns are made.
        pad: A number, or numbers in the structure of a batch.
        out: Arrays to write into, in the structure of a batch.
        limit: The most samples to take.
        plan: What the loader says about its length.

    Attributes:
        samples: How many were taken.
        expected: How many there are going to be, as far as is known.
    """

    def __init__(
        self,
        options: Options,
        pad: Any = None,
        out: Any = None,
        limit: int | None = None,
        plan: PlannedLength | None = None,
    ) -> None:
        self._options = options
        self._pad, self._out = pad, out
        self._limit = limit
        self._plan = plan
        self._staging: dict[torch.device, StagingBuffers] = {}
        self._pending: _Fetched | None = None
        self._layout: Layout | None = None
        self._batches = 0
        self._written = 0
        self.samples = 0
        self.expected: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more batches are wanted."""
        return self.samples == self._limit

    def add(self, batch: Any) -> tuple[int, int]:
        """Takes a batch, of which nothing is written unless all of it can be.

        Returns:
            How many samples were taken, and how many bytes the batch has.
        """
        number = self._batches
        layout = self._layout or self._begin(batch)
        columns = layout.columns
        for column in columns:
            column.batch = number
        leaves = layout.leaves(batch, number)
        parts = [column.parts(leaf) for column, leaf in zip(columns, leaves, strict=True)]
        count = _count(columns, parts)
        wanted = count if self._limit is None else min(count, self._limit - self.samples)
        for column, leaf in zip(columns, parts, strict=True):
            column.check(leaf, self.samples + wanted)
        if number == 0:
            self._allocate(columns, count)
        start, self.samples = self.samples, self.samples + wanted
        self._batches += 1
        remote, buffers = self._fetch(parts)
        self._flush()
        # What is in memory is written at once: a loader may use its memory again.
        local = {i: leaf for i, leaf in enumerate(parts) if i not in remote}
        self._write(columns, _Fetched(local, [], start, wanted, number))
        if remote:
            self._pending = _Fetched(remote, buffers, start, wanted, number)
        else:
            self._written = self.samples
        return wanted, sum(getattr(part, "nbytes", 0) for leaf in parts for part in leaf)

    def finish(self) -> Any:
        """The structure of all that was taken, and its files in their place."""
        self._flush()
        if self._layout is None:
            raise ValueError(
                f"{self._options.function}: loader yielded no batch, and nothing else says what "
                "arrays there are"
            )
        for column in self._layout.columns:
            column.finish(self._written)
        if self._options.files is not None:
            self._options.files.commit()
        return self._layout.rebuild([column.result() for column in self._layout.columns])

    def partial(self) -> Any:
        """The structure of all that was written before something failed, None if nothing was."""
        with contextlib.suppress(Exception):  # a device may be what failed
            self._flush()
        if self._layout is None or self._written == 0:
            return None
        return self._layout.rebuild(
            [column.partial(self._written) for column in self._layout.columns]
        )

    def _begin(self, batch: Any) -> Layout:
        first = None if self._plan is None else self._plan.first
        self._layout = Layout(batch, first, self._pad, self._out, self._options)
        return self._layout

    def _allocate(self, columns: list[Column], first: int) -> None:
        """Makes room for all samples, if their number is known."""
        # A collate function that leaves out samples, or makes more of them, makes the plan void.
        if self._plan is None or self._plan.first != first:
            return
        self.expected = self._plan.samples
        if self._limit is not None:
            self.expected = min(self.expected, self._limit)
        if self._options.files is None:
            size = sum(column.size(self.expected) for column in columns)
            require_memory(size, f"the result of {self.expected:,} samples needs")
        for column in columns:
            column.allocate(self.expected)

    def _fetch(self, parts: list[Parts]) -> tuple[dict[int, Parts], list[StagingBuffer]]:
        """Starts to copy the leaves that lie on devices, which may be overwritten afterwards."""
        leaves = {
            i: [part if is_remote(part) else copy.deepcopy(part) for part in leaf]
            for i, leaf in enumerate(parts)
            if any(map(is_remote, leaf))
        }
        by_device: dict[torch.device, list[tuple[list[Any], int]]] = {}
        for leaf in leaves.values():
            for k, part in enumerate(leaf):
                if is_remote(part):
                    by_device.setdefault(part.device, []).append((leaf, k))
        buffers = []
        for device, places in by_device.items():
            tensors = [leaf[k] for leaf, k in places]
            if has_streams(device):
                if device not in self._staging:
                    self._staging[device] = StagingBuffers(Accelerator(device))
                tensors, buffer = self._staging[device].fetch(tensors)
                buffers.append(buffer)
            for (leaf, k), tensor in zip(places, tensors, strict=True):
                leaf[k] = tensor.cpu()
        return {i: tuple(leaf) for i, leaf in leaves.items()}, buffers

    def _flush(self) -> None:
        """Writes the leaves that are being fetched."""
        if self._pending is None or self._layout is None:
            return
        fetched, self._pending = self._pending, None
        for buffer in fetched.buffers:
            buffer.wait()
        self._write(self._layout.columns, fetched)
        self._written = fetched.start + fetched.wanted

    def _write(self, columns: list[Column], fetched: _Fetched) -> None:
        for i, leaf in fetched.leaves.items():
            columns[i].batch = fetched.batch
            columns[i].write(fetched.start, fetched.wanted, leaf)


def is_remote(part: Any) -> bool:
    """Whether a part of a leaf has to be fetched from a device."""
    return isinstance(part, torch.Tensor) and part.device.type != "cpu"


def _count(columns: list[Column], parts: list[Parts]) -> int:
    """How many samples a batch has."""
    counts = [column.count(leaf) for column, leaf in zip(columns, parts, strict=True)]
    for column, count in zip(columns, counts, strict=True):
        if count != counts[0]:
            raise ValueError(
                f"{column.where}: expected {counts[0]} samples, as "
                f"{columns[0].path or 'the batch'} has, got {count}; "
                "the first axis of every leaf counts samples"
            )
    return counts[0]
