"""Sequences of different lengths, padded: ndarrays, tensors, lists of int, and frames of floats."""

import itertools
import struct
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

import pinfeed
from bench.arrays import difference
from bench.harness import Role, Way, Workload
from bench.image_ways import fill_ways
from bench.peers import transformers


class SequenceBatch:
    """Random sequences in every kind that a way may take, and what padding makes of them.

    Args:
        count: Sequences in the batch.
        longest: Length of the first; the others have from 1 to as many items.
        item: Shape of one item of a sequence.
        dtype: NumPy's.
    """

    def __init__(
        self, count: int, longest: int, item: tuple[int, ...] = (), dtype: type = np.int64
    ) -> None:
        random = np.random.default_rng(0)
        self.sizes = [longest, *random.integers(1, longest + 1, count - 1).tolist()]
        self.arrays = [
            random.integers(0, 50_000, (size, *item)).astype(dtype, copy=False)
            for size in self.sizes
        ]
        self.tensors = [torch.from_numpy(array) for array in self.arrays]
        self.lengths = torch.tensor(self.sizes)
        self.out = torch.zeros((count, longest, *item), dtype=self.tensors[0].dtype)

    @cached_property
    def lists(self) -> list[list[int]]:
        """The sequences as tokenizers give them."""
        return [array.tolist() for array in self.arrays]

    @cached_property
    def padded(self) -> torch.Tensor:
        """What padding with 0 has to give."""
        padded = torch.zeros_like(self.out)
        for row, tensor in zip(padded, self.tensors, strict=True):
            row[: len(tensor)] = tensor
        return padded

    def error(self, result) -> float:
        """Compare padded values and lengths with what they have to be."""
        values, lengths = result[:2]
        worst = max(difference(values, self.padded), difference(lengths, self.lengths))
        self.out.fill_(-1)  # so that the next way can't be right by what this one wrote
        return worst

    def title(self) -> str:
        """Number, dtype and shape of the sequences."""
        longest, *item = self.out.shape[1:]
        shape = f"(1–{longest}, {', '.join(map(str, item))})" if item else f"of 1–{longest}"
        return f"{len(self.sizes)} {str(self.out.dtype).removeprefix('torch.')} sequences {shape}"


def tensor_lengths(sequences) -> torch.Tensor:
    """Return the lengths as one writes it in torch."""
    return torch.tensor([len(sequence) for sequence in sequences])


def array_lengths(sequences) -> np.ndarray:
    """Return the lengths as one writes it in NumPy."""
    return np.array([len(sequence) for sequence in sequences])


def _pinfeed_ways(sequences: list, out) -> list[Way]:
    def collate():
        collate_fn = pinfeed.Collate(pinfeed.Pad())
        return lambda: collate_fn(sequences)

    return [
        Way("**pinfeed** `pad`, pooled", lambda: lambda: pinfeed.pad(sequences), Role.PINFEED),
        Way(
            "**pinfeed** `pad(out=)`", lambda: lambda: pinfeed.pad(sequences, out=out), Role.PINFEED
        ),
        Way("**pinfeed** `Collate(Pad())`", collate, Role.PINFEED),
    ]


def _array_ways(batch: SequenceBatch) -> list[Way]:
    """Padding ndarrays."""
    arrays, out = batch.arrays, batch.out

    def from_numpy():
        tensors = [torch.from_numpy(array) for array in arrays]
        return pad_sequence(tensors, batch_first=True), tensor_lengths(arrays)

    def loop():
        array_out = out.numpy()
        array_out.fill(0)
        for row, array in zip(array_out, arrays, strict=True):
            row[: len(array)] = array
        return array_out, array_lengths(arrays)

    def mask():
        lengths, array_out = array_lengths(arrays), out.numpy()
        array_out.fill(0)
        array_out[np.arange(array_out.shape[1]) < lengths[:, None]] = np.concatenate(arrays)
        return array_out, lengths

    return [
        Way("torch `from_numpy` + `pad_sequence`", lambda: from_numpy),
        Way("NumPy, a loop over rows of `out`", lambda: loop),
        Way("NumPy `concatenate` + mask into `out`", lambda: mask),
    ]


def _tensor_ways(batch: SequenceBatch) -> list[Way]:
    """Padding tensors."""
    tensors, out = batch.tensors, batch.out

    def stock():
        return pad_sequence(tensors, batch_first=True), tensor_lengths(tensors)

    def loop():
        out.zero_()
        for row, tensor in zip(out, tensors, strict=True):
            row[: len(tensor)] = tensor
        return out, tensor_lengths(tensors)

    def nested():
        joined = torch.nested.as_nested_tensor(tensors, layout=torch.jagged)
        return joined.to_padded_tensor(0), joined.offsets().diff()

    return [
        Way("torch `pad_sequence`", lambda: stock),
        Way("torch, a loop over rows of `out`", lambda: loop),
        Way("torch.nested `to_padded_tensor`", lambda: nested),
    ]


def _list_ways(batch: SequenceBatch) -> list[Way]:
    """Padding lists of int: every conversion that NumPy has, and what is built on torch."""
    lists = batch.lists
    out = batch.out.numpy()

    def flat() -> Iterator[int]:
        return itertools.chain.from_iterable(lists)

    def by_rows(convert: Callable[[list[int]], object]):
        def run():
            out.fill(0)
            for row, numbers in zip(out, lists, strict=True):
                row[: len(numbers)] = convert(numbers)
            return out, array_lengths(lists)

        return lambda: run

    def mask():
        lengths = array_lengths(lists)
        out.fill(0)
        where = np.arange(out.shape[1]) < lengths[:, None]
        out[where] = np.fromiter(flat(), np.int64, lengths.sum())
        return out, lengths

    def slices():
        lengths = array_lengths(lists)
        out.fill(0)
        numbers = np.fromiter(flat(), np.int64, lengths.sum())
        ends = np.cumsum(lengths).tolist()
        for row, start, end in zip(out, [0, *ends], ends, strict=False):
            row[: end - start] = numbers[start:end]
        return out, lengths

    def packed():
        out.fill(0)
        for i, numbers in enumerate(lists):
            struct.pack_into(f"{len(numbers)}q", out, i * out.strides[0], *numbers)
        return out, array_lengths(lists)

    def tensors():
        rows = [torch.tensor(numbers) for numbers in lists]
        return pad_sequence(rows, batch_first=True), tensor_lengths(lists)

    return [
        Way("NumPy, `out[i, :n] = list`", by_rows(lambda numbers: numbers)),
        Way("NumPy, `np.array` of each list into `out`", by_rows(np.array)),
        Way("NumPy `fromiter` + mask into `out`", lambda: mask),
        Way("NumPy `fromiter`, slices into `out`", lambda: slices),
        Way("NumPy's `out` as a buffer for `struct.pack_into`", lambda: packed),
        Way("torch `tensor` of each list + `pad_sequence`", lambda: tensors),
        *transformers.ways(batch),
    ]


def _workload(
    name: str,
    batch: SequenceBatch,
    kind: str,
    ways: list[Way],
    result: str = "padded, with lengths",
) -> Workload:
    title = f"{batch.title()}, {kind} → {result}, {torch.get_num_threads()} thread(s)"
    return Workload(name, title, [*fill_ways(batch.out), *ways], error=batch.error)


def _tokens() -> SequenceBatch:
    return SequenceBatch(256, 511)


def ndarrays(name: str) -> Workload:
    """Tokens as ndarrays."""
    batch = _tokens()
    ways = [*_pinfeed_ways(batch.arrays, batch.out.numpy()), *_array_ways(batch)]
    return _workload(name, batch, "a list of ndarrays", ways)


def tensors(name: str) -> Workload:
    """Tokens as tensors."""
    batch = _tokens()
    ways = [*_pinfeed_ways(batch.tensors, batch.out), *_tensor_ways(batch)]
    return _workload(name, batch, "a list of tensors", ways)


def lists(name: str) -> Workload:
    """Tokens as lists."""
    batch = _tokens()
    ways = [*_pinfeed_ways(batch.lists, batch.out), *_list_ways(batch)]
    return _workload(name, batch, "lists of int", ways)


def frames(name: str) -> Workload:
    """Audio features: long sequences of rows."""
    batch = SequenceBatch(64, 1499, (80,), np.float32)
    ways = [*_pinfeed_ways(batch.tensors, batch.out), *_tensor_ways(batch), *_array_ways(batch)]
    return _workload(name, batch, "a list of tensors", ways)


def variants(name: str) -> Workload:
    """What else padding can do, each beside torch's own way to it."""
    batch = _tokens()
    sequences, padded = batch.tensors, batch.padded
    where = torch.arange(padded.shape[1]) < batch.lengths[:, None]
    flipped = torch.zeros_like(padded)
    for row, tensor in zip(flipped, sequences, strict=True):
        row[len(row) - len(tensor) :] = tensor

    def pair(words: str, own: Callable, stock: Callable, *expected: torch.Tensor) -> list[Way]:
        def error(result) -> float:
            *parts, lengths = result
            pairs = zip([*parts, lengths], [*expected, batch.lengths], strict=True)
            return max(difference(part, wanted) for part, wanted in pairs)

        return [
            Way(f"**pinfeed** `pad`, {words}", lambda: own, Role.PINFEED, error=error),
            Way(f"torch `pad_sequence`, {words}", lambda: stock, error=error),
        ]

    def own(**keywords):
        return lambda: pinfeed.pad(sequences, **keywords)[:2]

    def own_mask():
        values, lengths, mask = pinfeed.pad(sequences, mask=True)
        return values, mask, lengths

    def stock_mask():
        values, lengths = pad_sequence(sequences, batch_first=True), tensor_lengths(sequences)
        return values, torch.arange(values.shape[1]) < lengths[:, None], lengths

    def stock(then: Callable = lambda values: values, **keywords):
        return lambda: (then(pad_sequence(sequences, **keywords)), tensor_lengths(sequences))

    ways = [
        *pair("as it is", own(), stock(batch_first=True), padded),
        *pair(
            "on the left",
            own(side="left"),
            stock(batch_first=True, padding_side="left"),
            flipped,
        ),
        *pair("time-major", own(time_major=True), stock(), padded.T),
        *pair(
            "cast to int32",
            own(dtype=torch.int32),
            stock(lambda values: values.to(torch.int32), batch_first=True),
            padded.to(torch.int32),
        ),
        *pair("with a mask", own_mask, stock_mask, padded, where),
    ]
    return _workload(name, batch, "a list of tensors", ways, "padded in five forms")


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return every workload here by name: its number of threads and what makes it."""
    return {
        "pad-ndarrays": (1, ndarrays),
        "pad-tensors": (1, tensors),
        "pad-lists": (1, lists),
        "pad-frames": (1, frames),
        "pad-variants": (1, variants),
    }
