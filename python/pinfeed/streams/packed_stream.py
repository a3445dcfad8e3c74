"""Documents of a stream, packed into rows window by window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset
from typing_extensions import override

from pinfeed.arguments import checked_integer, instead, require_state
from pinfeed.batches import SampleList
from pinfeed.samplers.pack import PackSampler, Strategy
from pinfeed.streams.moved import PLACE
from pinfeed.streams.stream_dataset import StreamDataset


class PackedStream(IterableDataset[Any]):
    """Batches of a stream's documents, packed into rows of ``seq_length`` tokens.

    A `PackSampler` chooses documents by their index, of a dataset that knows how many it has. A
    stream doesn't. So each worker reads ``window`` documents ahead, plans their rows, yields these
    batches, and goes on with the next window.

    Give it to a DataLoader with ``batch_size=None``, and `Collate` with `Pack`. Ranks and workers get
    what the stream deals out to them; their numbers of batches differ. Threads share one as they share
    a `StreamDataset`.

    Args:
        stream: A `StreamDataset`.
        seq_length: The length of a row, in tokens.
        batch_size: Rows in a batch. The last batch of a window may have empty rows, at its end.
        window: How many documents are planned together. More leave less room: the last batch of a
            window is half empty on average.
        key: The key of a sample's tokens. None: the sample is its tokens.
        strategy: As in `PackSampler`, like the arguments below. ``"wrapped"`` cuts documents that are
            longer than a row; for other strategies they are an error.
        max_documents: The most documents in a row.
        documents_multiple_of: The room of a document is a multiple of this.
        shuffle: False keeps documents of equal length, and rows, in order.
        seed: Not negative.

    In a torchdata ``StatefulDataLoader`` it goes on in the middle of a window, which is read again.
    Empty documents come into no batch.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument is out of range. When a window is planned: a document is longer than
            a row.

    Example:
        >>> stream = pinfeed.StreamDataset([[1, 2, 3], [4, 5], [6], [7, 8]])
        >>> packed = pinfeed.PackedStream(stream, seq_length=4, batch_size=2, shuffle=False)
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
        strategy: Strategy = "best_fit",
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
        self._position: _Position | None = None  # of the pass that began last
        self._loaded = (0, 0)  # at which window the next pass begins, and at which of its batches

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass, as `StreamDataset.set_epoch`."""
        if epoch != self.stream.epoch:
            self._loaded = (0, 0)
        self.stream.set_epoch(epoch)

    def __iter__(self) -> Iterator[SampleList]:
        documents = iter(self.stream)
        self._position = _Position(self.stream.state_dict(), *self._loaded)
        self._loaded = (0, 0)
        return self._batches(documents, self._position)

    def _batches(self, documents: Iterator[Any], position: _Position) -> Iterator[SampleList]:
        epoch = position.stream["epoch"]
        while samples := list(islice(documents, self.window)):
            lengths = [self._length(sample) for sample in samples]
            if any(lengths):
                planned = iter(self._planned(lengths, (epoch << 32) + position.windows))
                for batch in islice(planned, position.yielded, None):
                    position.yielded += 1
                    chosen = [samples[i] for i in batch]
                    yield SampleList(chosen, None, None, epoch, batch.packing)
            position.windows += 1
            position.yielded = 0
            position.stream = self.stream.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """How far the pass that began last has come, and the settings that it depends on.

        Returns:
            The ``stream``'s state at the beginning of the window, how many ``windows`` were read
            before it, how many of its batches were ``yielded``, and the settings.
        """
        position = self._position or _Position(self.stream.state_dict(), *self._loaded)
        return vars(position) | self._identity()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes back to where `state_dict` was called: the next pass yields the batches left.

        Raises:
            TypeError: ``state`` is no dict, or a value is of the wrong kind.
            ValueError: The state is of a stream with other settings, or it isn't complete.
        """
        needed = ("stream", "windows", "yielded")
        require_state(state, needed, self._identity(), "PackedStream", "stream")
        windows, yielded = (
            checked_integer(state[key], f"PackedStream: {key} of the state", 0)
            for key in ("windows", "yielded")
        )
        place = {key: value for key, value in self.stream.state_dict().items() if key in PLACE}
        require_state(state["stream"], (), place, "PackedStream", "stream")
        self.stream.load_state_dict(state["stream"])
        self._loaded = windows, yielded
        self._position = None

    def _identity(self) -> dict[str, Any]:
        return {"window": self.window, **self._settings}

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
        planner = _WindowSampler(lengths, **self._settings, rank=0, world_size=1)
        planner.set_epoch(number)
        return planner

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_position": None}

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self._identity().items())
        return f"PackedStream({self.stream!r}, {settings}, key={self.key!r})"


class _WindowSampler(PackSampler):
    """Plans one window."""

    @property
    @override
    def _name(self) -> str:
        return "PackedStream"


@dataclass
class _Position:
    """How far a pass is; as in `PackedStream.state_dict`."""

    stream: dict[str, Any]
    windows: int
    yielded: int
