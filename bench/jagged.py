"""Sequences joined without padding, and what is padded taken apart again, beside `memcpy`."""

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.utils.rnn import unpad_sequence

import pinfeed
from bench.arrays import difference, memcpy_way
from bench.harness import Role, Way, Workload
from bench.sequences import SequenceBatch, tensor_lengths

Joined = tuple[torch.Tensor, torch.Tensor]


class JoinedBatch(SequenceBatch):
    """The sequences of a batch one after the other, and the buffer for them."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.joined = torch.from_numpy(np.concatenate(self.arrays))
        self.offsets = torch.tensor([0, *itertools.accumulate(self.sizes)])
        self.target = torch.zeros_like(self.joined)

    def joined_error(self, result: Joined) -> float:
        """Compare values and offsets with what they have to be."""
        values, offsets = result
        worst = max(difference(values, self.joined), difference(offsets, self.offsets))
        self.target.fill_(-1)  # so that the next way can't be right by what this one wrote
        return worst

    def views_error(self, result: list[torch.Tensor]) -> float:
        """Compare the views of a padded batch with the sequences."""
        pairs = zip(result, self.tensors, strict=True)
        return max(difference(view, tensor) for view, tensor in pairs)

    def limit_ways(self) -> list[Way]:
        """Copying the data once, by the C library and by torch."""
        target, source = self.target, self.joined
        return [
            memcpy_way(target, source),
            Way(
                "torch `copy_` of the joined data", lambda: lambda: target.copy_(source), Role.LIMIT
            ),
        ]


def join(name: str, batch: JoinedBatch) -> Workload:
    """A list of tensors, one after the other, with offsets."""
    tensors, arrays, target = batch.tensors, batch.arrays, batch.target

    def collate(sequences):
        def build():
            collate_fn = pinfeed.Collate(pinfeed.Jagged())
            return lambda: collate_fn(sequences)

        return build

    def cat():
        lengths = tensor_lengths(tensors)
        offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64)
        torch.cumsum(lengths, 0, out=offsets[1:])
        return torch.cat(tensors, out=target), offsets

    def concatenate():
        offsets = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        return np.concatenate(arrays, out=target.numpy()), offsets

    def nested():
        result = torch.nested.as_nested_tensor(tensors, layout=torch.jagged)
        return result.values(), result.offsets()

    ways = [
        *batch.limit_ways(),
        Way("**pinfeed** `Collate(Jagged())` of tensors", collate(tensors), Role.PINFEED),
        Way("**pinfeed** `Collate(Jagged())` of ndarrays", collate(arrays), Role.PINFEED),
        Way("torch `cat(out=)`", lambda: cat),
        Way("NumPy `concatenate(out=)` of ndarrays", lambda: concatenate),
        Way("torch.nested, jagged", lambda: nested),
    ]
    title = f"{batch.title()} → joined, with offsets, {torch.get_num_threads()} thread(s)"
    return Workload(name, title, ways, error=batch.joined_error)


def unpad(name: str, batch: JoinedBatch) -> Workload:
    """A padded batch and its lengths: the data joined, or a list of views."""
    padded, lengths, target = batch.padded, batch.lengths, batch.target

    def offsets() -> torch.Tensor:
        result = torch.zeros(len(lengths) + 1, dtype=torch.int64)
        torch.cumsum(lengths, 0, out=result[1:])
        return result

    def cat():
        rows = [row[:length] for row, length in zip(padded, lengths.tolist(), strict=True)]
        return torch.cat(rows, out=target), offsets()

    def mask():
        return padded[torch.arange(padded.shape[1]) < lengths[:, None]], offsets()

    def narrow():
        result = torch.nested.narrow(padded, 1, 0, lengths, layout=torch.jagged).contiguous()
        return result.values(), result.offsets()

    def views(run: Callable[[], list[torch.Tensor]], words: str, role: Role = Role.PEER) -> Way:
        return Way(f"{words} (views, no copy)", lambda: run, role, error=batch.views_error)

    ways = [
        *batch.limit_ways(),
        Way(
            "**pinfeed** `JaggedBatch.from_padded`",
            lambda: lambda: pinfeed.JaggedBatch.from_padded(padded, lengths),
            Role.PINFEED,
        ),
        Way("torch `cat(out=)` of slices", lambda: cat),
        Way("torch `padded[mask]`", lambda: mask),
        Way("torch.nested `narrow`, contiguous", lambda: narrow),
        views(lambda: pinfeed.unpad(padded, lengths), "**pinfeed** `unpad`", Role.PINFEED),
        views(lambda: unpad_sequence(padded, lengths, batch_first=True), "torch `unpad_sequence`"),
    ]
    title = f"{batch.title()}, padded → without padding, {torch.get_num_threads()} thread(s)"
    return Workload(name, title, ways, error=batch.joined_error)


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return every workload here by name: its number of threads and what makes it."""
    sizes = {"tokens": (256, 511), "frames": (64, 1499, (80,), np.float32)}
    return {
        f"{job.__name__}-{kind}": (
            1,
            lambda name, job=job, size=size: job(name, JoinedBatch(*size)),
        )
        for job in (join, unpad)
        for kind, size in sizes.items()
    }
