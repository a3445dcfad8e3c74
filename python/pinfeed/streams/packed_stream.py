"""Documents of a stream, packed into rows window by window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from torch.utils.data import IterableDataset
from typing_extensions import override

from pinfeed.arguments import checked_integer, instead, require_state
from pinfeed.batches import SampleList
from pinfeed.samplers.pack import PackSampler
from pinfeed.streams.moved import own_state
from pinfeed.streams.stream_dataset import StreamDataset

_NEEDED = {"stream", "windows", "consumed"}  # in what is a state of a PackedStream


class PackedStream(IterableDataset[Any]):
    """Batches of a stream's documents, packed into rows of ``seq_length`` tokens.

    A `PackSampler` chooses documents by their index, of a dataset that knows how many it has. A
    stream doesn't. So each worker reads ``window`` documents ahead, plans their rows, yields these
    batches, and goes on with the next window.

    Give it to a DataLoader with ``batch_size=None``, and `Collate` with `Pack`. Threads share one as they
    share a `StreamDataset`.

    If the stream has ``uneven="repeat"`` or ``"drop"``, all ranks plan the same windows and each takes its
    rows of a step, so all ranks get the same number of batches. If the last rows of a window are too few
    for all ranks, they are repeated or dropped. With ``"keep"``, each rank packs its own documents, and the
    numbers of batches differ.

    Args:
        stream: A `StreamDataset`.
        seq_length: The length of a row, in tokens.
        batch_size: Rows in a batch. The last batch of a window may have empty rows, at its end.
        window: Number of documents that are planned together, over all ranks unless the stream has
            ``uneven="keep"``. More documents waste less: the last step of a window is half empty on average.
        key: The key of a sample's tokens. None: the sample is its tokens.
        strategy: As in `PackSampler`, like the arguments below. ``"wrapped"`` cuts documents that are
            longer than a row; for other strategies they are an error.
        max_documents: The most documents in a row.
        documents_multiple_of: The room of a document is a multiple of this.
        shuffle: False keeps documents of equal length, and rows, in order.
        seed: Not negative.

    In a torchdata ``StatefulDataLoader`` it resumes in the middle of a window, which is read again. Unless
    the stream has ``uneven="keep"``, the state of any rank suits all ranks, and any number of ranks. Empty documents come into no
    batch.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument is out of range. When a window is planned: a document is longer than
            a row.

    Example:
        >>> stream = pinfeed.StreamDataset([[1, 2, 3], [4, 5], [6], [7, 8]])
        >>> packed = pinfeed.packing.PackedStream(
        ...     stream, seq_length=4, batch_size=2, shuffle=False
        ... )
        >>> loader = torch.utils.data.DataLoader(
        ...     packed,
        ...     batch_size=None,
        ...     collate_fn=pinfeed.Collate(pinfeed.Pack(seq_length=4)),
        ... )
        >>> next(iter(loader))
        tensor([[1, 2, 3, 6],
                [4, 5, 7, 8]])
    """

    @instead(rows="it is batch_size")
    def __init__(
        self,
        stream: StreamDataset,
        *,
        seq_length: int,
        batch_size: int = 1,
        window: int = 10_000,
        key: Any = None,
        strategy: Literal["best_fit", "first_fit", "wrapped"] = "best_fit",
        max_documents: int | None = None,
        documents_multiple_of: int = 1,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        if not isinstance(stream, StreamDataset):
            raise TypeError(
                "PackedStream: stream must be a StreamDataset, which deals out documents to ranks and "
                f"workers, got {type(stream).__name__}; make one of it: StreamDataset(stream)"
            )
        self.stream = stream
        self.window = checked_integer(window, "PackedStream: window", 1)
        self.key = key
        self._settings: dict[str, Any] = {
            "batch_size": batch_size,
            "seq_length": seq_length,
            "strategy": strategy,
            "max_documents": max_documents,
            "documents_multiple_of": documents_multiple_of,
            "shuffle": shuffle,
            "seed": seed,
        }
        self._planned([1], 0)  # raises for what is out of range
        # Of the pass that began last: how far it is, and what it reads.
        self._position: tuple[_Position, StreamDataset] | None = None
        self._loaded = (
            0,
            0,
        )  # at which window the next pass begins, and how many of its rows are done

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass, as `StreamDataset.set_epoch`."""
        if epoch != self.stream.epoch:
            self._loaded = (0, 0)
        self.stream.set_epoch(epoch)

    def __iter__(self) -> Iterator[SampleList]:
        self.stream.require_dealt_out_once()
        stream = self._documents()
        documents = iter(stream)
        position = _Position(stream.state_dict(), *self._loaded)
        self._position = position, stream
        self._loaded = (0, 0)
        return self._batches(documents, stream, position)

    def _batches(
        self, documents: Iterator[Any], stream: StreamDataset, position: _Position
    ) -> Iterator[SampleList]:
        epoch = position.stream["epoch"]
        while samples := list(islice(documents, self.window)):
            lengths = [self._length(sample) for sample in samples]
            if any(lengths):
                number, start = (epoch << 32) + position.windows, position.consumed
                planner = self._planned(lengths, number)
                for batch in planner.batches_from(number, start):
                    position.consumed += planner.step
                    chosen = [samples[i] for i in batch]
                    yield SampleList(chosen, None, None, epoch, batch.packing)
            position.windows += 1
            position.consumed = 0
            position.stream = stream.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """How far the pass that began last has come, and the settings that it depends on.

        Returns:
            The ``stream``'s state at the beginning of the window, how many ``windows`` were read
            before it, how many of its rows were ``consumed``, and the settings.
        """
        if self._position is not None:
            return vars(self._position[0]) | self._identity()
        return vars(_Position(self._documents().state_dict(), *self._loaded)) | self._identity()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes back to where `state_dict` was called: the next pass yields the batches left.

        Raises:
            TypeError: ``state`` is no dict, or a value is of the wrong kind.
            ValueError: The state is of a stream with other settings, or it isn't complete.
        """
        if isinstance(state, list | tuple):
            raise TypeError(
                "PackedStream: state must be that of this worker, got a list; load the list into a "
                "DeviceLoader with as many workers as saved it"
                f"{', and as many ranks' if self.stream.uneven == 'keep' else ''}"
            )
        identity = self._identity()
        del identity["batch_size"]  # rows are dealt out one by one
        require_state(state, _NEEDED, identity, "PackedStream", "stream")
        windows, consumed = (
            checked_integer(state[key], f"PackedStream: {key} of the state", 0)
            for key in ("windows", "consumed")
        )
        self._documents().load_own_state(state["stream"])
        self._loaded = windows, consumed
        self._position = None

    def state_of_this_rank(self, states: list[Any], workers: int) -> Any:
        """The loader's state, of those of all ranks, that this rank with so many workers goes on from."""
        return own_state(states, workers, self._documents().place, _NEEDED, "PackedStream")

    def _documents(self) -> StreamDataset:
        """What windows are read from."""
        return self.stream if self.stream.uneven == "keep" else self.stream.of_all_ranks()

    def _identity(self) -> dict[str, Any]:
        return {"window": self.window, "uneven": self.stream.uneven, **self._settings}

    def _length(self, sample: Any) -> int:
        if self.key is None and isinstance(sample, Mapping):
            raise TypeError(
                f"PackedStream: samples are dicts with {list(sample)}; say under which key the tokens "
                "are: key=..."
            )
        try:
            length = len(sample if self.key is None else sample[self.key])
        except (TypeError, LookupError) as error:
            place = "" if self.key is None else f" under the key {self.key!r}"
            raise TypeError(
                f"PackedStream: expected a document's tokens{place}, got "
                f"{[*sample] if isinstance(sample, Mapping) else type(sample).__name__}: {error}"
            ) from error
        if length > self._settings["seq_length"] and self._settings["strategy"] != "wrapped":
            raise ValueError(
                f"PackedStream: documents must have at most seq_length="
                f"{self._settings['seq_length']} tokens, got one of {length}; cut it or leave it out "
                "in the source of the stream, or take strategy='wrapped'"
            )
        return length

    def _planned(self, lengths: list[int], number: int) -> PackSampler:
        rank, world_size = (0, 1) if self.stream.uneven == "keep" else self.stream.ranks()
        kind = _WindowSampler if self.stream.uneven != "drop" else _WholeStepsSampler
        planner = kind(lengths, **self._settings, rank=rank, world_size=world_size)
        planner.set_epoch(number)
        return planner

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_position": None}

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self._identity().items())
        return f"PackedStream({self.stream!r}, {settings}, key={self.key!r})"


class _WindowSampler(PackSampler):
    """Plans one window, which may have fewer rows than there are ranks."""

    FEWEST_ROWS = 0

    @property
    @override
    def _name(self) -> str:
        return "PackedStream"


class _WholeStepsSampler(_WindowSampler):
    """Leaves out the rows of a last step that has too few for all ranks."""

    @override
    def batches(self, epoch: int, start: int = 0) -> int:
        steps, rest = divmod(self.units(epoch) - start, self.step)
        return steps + (rest >= self.world_size)


@dataclass
class _Position:
    """How far a pass is; as in `PackedStream.state_dict`."""

    stream: dict[str, Any]
    windows: int
    consumed: int
