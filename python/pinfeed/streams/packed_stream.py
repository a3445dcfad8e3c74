"""`PackedStream`: documents of a stream, packed into rows window by window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from torch.utils.data import IterableDataset
from typing_extensions import override

from pinfeed.arguments import Problem, checked_integer, require_state, with_hints
from pinfeed.batches import SampleList
from pinfeed.samplers.pack import PackSampler
from pinfeed.streams.resharding import matching_state
from pinfeed.streams.stream_dataset import StreamDataset

_NEEDED = {"stream", "windows", "consumed"}  # keys of a PackedStream's state


class PackedStream(IterableDataset[Any]):
    """Iterable dataset that packs a stream's documents into rows of ``seq_length`` tokens.

    A `PackSampler` needs the lengths of all documents, which a stream doesn't have. So each worker
    reads a ``window`` of documents, plans their rows, yields these batches, and continues with the next
    window.

    Pass it to a DataLoader with ``batch_size=None`` and a `Collate` with `Pack`.

    If the stream has ``uneven="repeat"`` or ``"drop"``, all ranks plan the same windows and divide the
    rows of each step, so all get the same number of batches. If the last rows of a window are too few
    for all ranks, they are repeated or dropped. With ``"keep"``, each rank packs its own documents, and
    ranks differ in the number of batches.

    Args:
        stream: A `StreamDataset`.
        seq_length: Tokens per row.
        batch_size: Rows per batch. The last batch of a window may end with empty rows.
        window: Number of documents planned together, over all ranks unless the stream has
            ``uneven="keep"``. Larger windows waste less: the last step of a window is half empty on
            average.
        key: Key of the tokens in a sample. None: the sample is its tokens.
        strategy: ``"best_fit"``, ``"first_fit"`` or ``"wrapped"``, as in `PackSampler`. ``"wrapped"``
            cuts documents longer than a row; with other strategies they raise ValueError.
        max_documents: Maximum number of documents per row.
        documents_multiple_of: Each document is padded to a multiple of this number of tokens.
        shuffle: Whether to shuffle documents and rows within a window.
        seed: Non-negative integer, the same on all ranks.

    A torchdata ``StatefulDataLoader`` resumes within a window, and reads the window again. Unless the stream
    has ``uneven="keep"``, the state of any rank works for all ranks, and for any number of ranks. Empty
    documents are in no batch.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or, when a window is planned, a document is longer
            than a row.

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

    @with_hints(rows="pass batch_size")
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
                "PackedStream: stream must be a StreamDataset, which shards documents over ranks and "
                f"workers, got {type(stream).__name__}; wrap it: StreamDataset(stream)"
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
        self._planned([1], 0)  # raises if an argument is out of range
        # Position and stream of the last pass.
        self._position: tuple[_Position, StreamDataset] | None = None
        self._loaded = (0, 0)  # where the next pass begins: windows, and consumed rows of the next

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass, as `StreamDataset.set_epoch` does."""
        if epoch != self.stream.epoch:
            self._loaded = (0, 0)
        self.stream.set_epoch(epoch)

    def __iter__(self) -> Iterator[SampleList]:
        self.stream.require_single_sharding()
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
        """Returns the position of the last pass, and the settings that it depends on.

        Returns:
            The ``stream``'s state at the beginning of the window, the number of ``windows`` before it,
            the number of its rows that were ``consumed``, and the settings.
        """
        if self._position is not None:
            return vars(self._position[0]) | self._identity()
        return vars(_Position(self._documents().state_dict(), *self._loaded)) | self._identity()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a saved position: the next pass yields the remaining batches.

        Args:
            state: Result of this worker's `state_dict`.

        Raises:
            TypeError: If ``state`` is not a dict, or a value has the wrong type.
            ValueError: If the state is incomplete, or from a stream with other settings.
        """
        if isinstance(state, list | tuple):
            raise TypeError(
                "PackedStream: state must be the state of this worker, got a list; load the list into a "
                "DeviceLoader with the number of workers that saved it"
                f"{', and the number of ranks' if self.stream.uneven == 'keep' else ''}"
            )
        identity = self._identity()
        del identity["batch_size"]  # may differ, because rows are distributed one by one
        require_state(state, _NEEDED, identity, "PackedStream", "stream")
        windows, consumed = (
            checked_integer(state[key], f"PackedStream: state[{key!r}]", 0)
            for key in ("windows", "consumed")
        )
        self._documents().load_worker_state(state["stream"])
        self._loaded = windows, consumed
        self._position = None

    def state_of_this_rank(self, states: list[Any], workers: int) -> Any:
        """Selects the loader's state for this rank and number of workers."""
        return matching_state(
            states, workers, self._documents().rank_identity, _NEEDED, "PackedStream"
        )

    def _documents(self) -> StreamDataset:
        """The stream that windows are read from."""
        return self.stream if self.stream.uneven == "keep" else self.stream.of_all_ranks()

    def _identity(self) -> dict[str, Any]:
        return {"window": self.window, "uneven": self.stream.uneven, **self._settings}

    def _length(self, sample: Any) -> int:
        if self.key is None and isinstance(sample, Mapping):
            got = f"None for samples with the keys {list(sample)}"
            problem = Problem("PackedStream: key", "the key of the tokens", got, "pass key=...")
            raise TypeError(problem)
        try:
            length = len(sample if self.key is None else sample[self.key])
        except (TypeError, LookupError) as error:
            where = "" if self.key is None else f" under the key {self.key!r}"
            found = [*sample] if isinstance(sample, Mapping) else type(sample).__name__
            problem = Problem("PackedStream", f"a document's tokens{where}", f"{found}: {error}")
            raise TypeError(problem) from error
        seq_length = self._settings["seq_length"]
        if length > seq_length and self._settings["strategy"] != "wrapped":
            expected = f"documents of at most seq_length={seq_length} tokens"
            hint = (
                "cut or drop long documents in the source of the stream, or pass strategy='wrapped'"
            )
            raise ValueError(Problem("PackedStream", expected, f"one of {length}", hint))
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
    """Plans one window, which may have fewer rows than ranks."""

    MIN_ROWS = 0

    @property
    @override
    def _name(self) -> str:
        return "PackedStream"


class _WholeStepsSampler(_WindowSampler):
    """Drops the rows of a last step with too few for all ranks."""

    @override
    def batches(self, epoch: int, start: int = 0) -> int:
        steps, rest = divmod(self.units(epoch) - start, self.step)
        return steps + (rest >= self.world_size)


@dataclass
class _Position:
    """The position of a pass; see `PackedStream.state_dict`."""

    stream: dict[str, Any]
    windows: int
    consumed: int
