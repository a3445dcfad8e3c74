"""The collate function: samples in, one batch of the same structure out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pinfeed.arguments import ARRAYS, Problem, instead
from pinfeed.augment.chance import Chance, SeededChance
from pinfeed.batches import LastSample, Packing, SampleBatch
from pinfeed.fields.field import ABSENT, Field, Leaf, Scene
from pinfeed.fields.following import Following, drops, is_of_boxes
from pinfeed.fields.placed import (
    WITHOUT_NONE,
    child_fields,
    mapping_fields,
    placed,
    rebuild_with_siblings,
    samples_hint,
)
from pinfeed.fields.stack import TAKE_ANY_LENGTH, Stack
from pinfeed.fields.unmoved import require_moved
from pinfeed.memory.outputs import Pin, is_pinning_wanted
from pinfeed.memory.trainer import accept_limit, limit_to_hand_over
from pinfeed.memory.worker import is_worker, worker_arena
from pinfeed.sources.dataset import Rows
from pinfeed.sources.source import ObjectColumn, Source
from pinfeed.structure import children, is_container, is_dataclass, is_namedtuple, parts, rebuild

_STACK = Stack()


class Collate:
    """A ``collate_fn`` for any DataLoader: one native pass per entry, into reused memory.

    Args:
        fields: A field for each entry, in the structure of a sample: one `Field` for samples that
            are an array, a dict for dict samples, a tuple for tuple samples, nested as deep.
            Entries without a field (left out of a dict, or None) get `Stack`. None: all of them.
            In a dict, `Field.of` makes an entry from another one, and `Field.optional` leaves it
            out of batches whose samples lack it.
        pin: Whether batches of this process lie in pinned memory, which devices copy from by
            themselves: a DataLoader's ``pin_memory=True`` has nothing to do then. ``"auto"``: if the
            process uses CUDA or XPU by the time that the batch is made; no device is initialized for
            it. Memory that can't be pinned is ordinary memory, with one warning.
        seed: With the epoch and each sample's index in the dataset, it determines what is random in
            a batch (`Image`'s ``augment``), whatever the workers, ranks, batch size or resumes. The
            dataset is an `ArrayDataset`, or wrapped in an `IndexedDataset`, or ``key``
            says what stands for the index. A sample that comes twice in an epoch is augmented the
            same way. None: each batch draws a number from torch's default generator.
        key: The key of the (dict) samples that holds each one's own integer. With ``seed``; it suits
            streams, and datasets whose indices change. Samples with the same integer are augmented
            the same way.

    The batch has the structure of the samples, with the types that ``default_collate`` gives
    (tuples become lists), and without fields the same contents. Samples that are `Rows` of an
    `ArrayDataset` are gathered natively; any other sequence of samples works too.

    A Collate pickles, and any number of workers and threads may call it at once. In a DataLoader
    worker it writes into memory that the trainer maps too (see `set_worker_memory_limit`), whatever ``pin``
    says; elsewhere into pinned memory of torch, or buffers of a pool. In each case the memory is
    used again when the last tensor or array that views it is gone, never before.

    Raises:
        TypeError: ``fields`` holds something that is no field; an entry's kind or dtype does not
            fit.
        ValueError: The batch is empty; samples differ in shape or structure, or from the fields; there
            is a seed, something is random, and the samples' indices are not known, or lack ``key``.
        RuntimeError: With ``pin=True``, when a batch is made: there is no accelerator.

    Example:
        >>> collate = pinfeed.Collate({"image": pinfeed.Image(scale=1)})
        >>> samples = [{"image": np.ones((2, 2, 3), np.uint8), "label": i} for i in range(4)]
        >>> batch = collate(samples)
        >>> batch["image"].shape, batch["label"]
        (torch.Size([4, 3, 2, 2]), tensor([0, 1, 2, 3]))
    """

    @instead("fields go into one tuple or dict, as a sample has them: Collate((Image(), None))")
    def __init__(
        self, fields: Any = None, *, pin: Pin = "auto", seed: int | None = None, key: Any = None
    ) -> None:
        if not isinstance(pin, bool) and pin != "auto":
            raise ValueError(f"Collate: pin must be True, False or 'auto', got {pin!r}")
        self.fields = fields
        self.pin = pin
        self._chance = SeededChance(seed, key)
        self._augments = self._is_random = False
        self._packs = self._pads = ""
        self._placed = placed(fields, "Collate: fields", self._note_field)
        self._roots: dict[bool, _Place] = {}

    @property
    def seed(self) -> int | None:
        """The seed of what is random."""
        return self._chance.seed

    @property
    def epoch(self) -> int:
        """The epoch of batches that don't tell theirs."""
        return self._chance.epoch

    def set_epoch(self, epoch: int) -> None:
        """Goes to another epoch, with other random draws: here and in all workers.

        The batches of pinfeed's samplers tell their epoch themselves. With other samplers call this
        before each epoch, also with persistent workers. Without a seed it has no effect.

        Raises:
            TypeError: ``epoch`` is no integer.
            ValueError: ``epoch`` is negative.
        """
        self._chance.set_epoch(epoch)

    def _note_field(self, field: Field, name: str) -> None:
        self._augments |= field.augments
        self._is_random |= field.is_random
        if field.packs:
            self._packs = name
        if field.pads:
            self._pads = f"{name}: {field!r}"
        if self._packs and self._pads:
            raise ValueError(
                f"{self._pads} makes a row of each document, and {self._packs} packs several into one; "
                "give this leaf a Pack too, with the same pad_value, or Jagged() where it is no sequence "
                "of the same tokens"
            )

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__ | {"_arena_limit": limit_to_hand_over()}
        del state["_roots"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        accept_limit(state.pop("_arena_limit", None))
        self.__dict__ |= state
        self._roots = {}

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Collates a batch.

        Args:
            samples: At least one sample. An array or a tensor counts as what is along its first axis.
        """
        worker_arena()  # what torch makes is sent through it too, and tensors that Keep leaves alone
        if type(samples) is not Rows and isinstance(samples, ARRAYS):
            # Of some __getitems__. A nested tensor has parts, but no length.
            is_nested = isinstance(samples, torch.Tensor) and samples.is_nested
            if is_nested or samples.ndim > 0:
                samples = list(samples.unbind() if is_nested else samples)
        # A copy of the list: all leaves see it as it was once, whatever another thread does to it.
        if type(samples) is list and (samples := samples.copy()):
            batch = _UNKNOWN
            if self._augments or self._is_random:
                batch = self._batch(samples, None, LastSample.epoch_of(samples))
            return self._place().collate(samples, batch)
        if not isinstance(samples, Sequence) or isinstance(samples, str | bytes):
            raise TypeError(
                f"Collate: expected a sequence of samples, got {type(samples).__name__}; "
                "a DataLoader with batch_size=None hands over single samples, and a dataset's __getitems__ "
                "has to return a list of samples"
            )
        if type(samples) is tuple and samples and getattr(samples[0], "ndim", 0) > 0:
            raise TypeError(
                f"Collate: expected a list of samples, got a tuple of {len(samples)} arrays, which could "
                "be samples or the columns of a batch; pass list(samples), and have a dataset's "
                "__getitems__ return a list of samples"
            )
        if len(samples) == 0:
            raise ValueError("Collate: expected at least one sample, got an empty batch")
        known = samples if isinstance(samples, SampleBatch) else None
        packing, epoch = (None, None) if known is None else (known.packing, known.epoch)
        try:
            batch = self._batch(samples, packing, epoch)
            if isinstance(samples, Rows):
                return self._place().gather(samples.sources, samples.indices, batch)
            return self._place().collate(list(samples), batch)
        except (TypeError, ValueError) as error:
            problem = Problem.of(error)
            indices: Any = ()
            if packing is not None:
                indices = packing.documents
                if problem.hint == TAKE_ANY_LENGTH:
                    problem.hint = f"where documents are packed, this leaf too needs Pack(seq_length={packing.seq_length})"
            elif known is not None and known.indices is not None:
                indices = known.indices
            if problem.sample is not None and problem.sample < len(indices):
                problem.index = int(indices[problem.sample])
            raise

    def _batch(self, samples: Sequence[Any], packing: Packing | None, epoch: int | None) -> _Batch:
        chance = None
        if self._is_random:
            chance = self._chance.of(samples, epoch)
        elif self._augments:  # by what is certain: no number of these is looked at
            chance = Chance(np.arange(len(samples)), key=0)
        return _Batch(chance, packing, epoch)

    def _place(self) -> _Place:
        """The root, for whole samples, with memory that is pinned or not, as it is wanted now."""
        pin = not is_worker() and is_pinning_wanted(self.pin)
        if pin not in self._roots:
            self._roots[pin] = _Place(self._placed, "", pin)
        return self._roots[pin]

    def __repr__(self) -> str:
        given = [] if self.fields is None else [repr(self.fields)]
        pin = [] if self.pin == "auto" else [f"pin={self.pin}"]
        seed = [] if self.seed is None else [f"seed={self.seed}"]
        key = [] if self._chance.leaf is None else [f"key={self._chance.leaf!r}"]
        return f"Collate({', '.join(given + pin + seed + key)})"


class _Batch(NamedTuple):
    """What a `Leaf` says of its batch."""

    chance: Chance | None
    packing: Packing | None = None
    epoch: int | None = None
    scene: Scene | None = None


_UNKNOWN = _Batch(None)


class _Place:
    """One place in the structure of samples, and how it is batched.

    What is found out about samples is kept for the next batch, whose samples mostly are alike: any
    number of threads may do that at once, for it is the same that they find.

    Args:
        fields: The field, or the fields of the parts, of this place; None leaves both to the samples.
        path: From the sample to this place, such as ``"['image']"``.
        pin: Whether batches are to be pinned, unless this is a worker.
    """

    def __init__(self, fields: Any, path: str, pin: bool) -> None:
        self._leaf = Leaf(f"Collate: leaf {path}" if path else "Collate", path, pin)
        self._fields = fields
        self._field = fields if isinstance(fields, Field) else None
        self._leaf_types: set[type] = set()
        self._structures: dict[type, _Structure] = {}

    def collate(self, samples: Sequence[Any], batch: _Batch) -> Any:
        """The batch of what stands at this place in each sample."""
        if self._field is not None:
            if self._field.is_optional and self._is_absent(samples):
                return ABSENT
            return self._by_field(self._field, samples, self._leaf_in(batch))
        first = samples[0]
        kind = type(first)
        known = self._structures.get(kind)
        if known is not None and known.fits(first):
            return known.collate(samples, batch)
        if kind not in self._leaf_types:
            if is_container(first):
                if not self._leaf.path:
                    require_moved(self._fields, samples)
                return self._new_structure(first).collate(samples, batch)
            self._require_leaf()
            self._leaf_types.add(kind)
        return self._by_field(_STACK, samples, self._leaf)

    def gather(self, sources: Any, indices: npt.NDArray[np.int64], batch: _Batch) -> Any:
        """The batch of rows of a dataset's arrays at this place."""
        kind = type(sources)
        if kind in self._leaf_types:
            return (self._field or _STACK).gather(sources, indices, self._leaf_in(batch))
        known = self._structures.get(kind)
        if known is not None and known.fits(sources):
            return known.gather(sources, indices, batch)
        if isinstance(sources, ObjectColumn):
            return self.collate([sources[index] for index in indices.tolist()], batch)
        if isinstance(sources, Source):
            if self._field is None:
                self._require_leaf()
            self._leaf_types.add(kind)
            return (self._field or _STACK).gather(sources, indices, self._leaf_in(batch))
        if self._field is not None:
            return self._by_field(self._field, list(Rows(sources, indices)), self._leaf_in(batch))
        if not self._leaf.path:
            require_moved(self._fields, Rows(sources, indices))
        return self._new_structure(sources).gather(sources, indices, batch)

    def _by_field(self, field: Field, samples: Sequence[Any], leaf: Leaf) -> Any:
        try:
            return field.collate(samples, leaf)
        except TypeError as error:
            if hint := samples_hint(field, samples, leaf):
                Problem.of(error).add_hint(hint)
            raise

    def follow(self, made: Any, batch: _Batch) -> Any:
        """Finishes a batch when the images that it follows are there."""
        assert self._field is not None
        return self._field.follow(made, self._leaf_in(batch))

    def _leaf_in(self, batch: _Batch) -> Leaf:
        leaf = self._leaf
        chance, packing, epoch, scene = batch
        if chance is None and packing is None and scene is None:
            if epoch != leaf.epoch:  # kept for the next batch, which mostly is of the same epoch
                self._leaf = leaf = leaf._replace(epoch=epoch)
            return leaf
        return Leaf(leaf.name, leaf.path, leaf.pin, *batch)

    def _is_absent(self, samples: Sequence[Any]) -> bool:
        """Whether all samples of an optional leaf are None."""
        present = [i for i, sample in enumerate(samples) if sample is not None]
        assert self._field is not None
        if present and len(present) < len(samples) and not self._field.takes_none:
            position = present[0] or next(i for i, sample in enumerate(samples) if sample is None)
            expected, got = ("None", "a leaf") if present[0] else ("a leaf", "None")
            hint = "an optional() leaf is there in all samples of a batch or in none"
            raise ValueError(
                Problem(self._leaf.name, f"{expected} as in sample 0", got, hint, sample=position)
            )
        return not present

    def _require_leaf(self) -> None:
        if self._fields is not None:
            raise ValueError(
                f"Collate: fields{self._leaf.path} is a {type(self._fields).__name__}, but samples have a "
                "single value there; fields must mirror the structure of samples"
            )

    def _new_structure(self, node: Any) -> _Structure:
        if isinstance(node, SampleBatch):
            raise TypeError(
                "Collate: expected samples, got batches of a PackedStream; give it to the DataLoader "
                "with batch_size=None"
            )
        structure = self._structures[type(node)] = _Structure(self._fields, node, self._leaf)
        return structure


class _Structure:
    """The container that samples have at one place, and the places in it."""

    def __init__(self, fields: Any, node: Any, leaf: Leaf) -> None:
        self._kind = type(node)
        self._keys = _keys(node)
        self._leaf = leaf
        path, pin = leaf.path, bool(leaf.pin)
        self._following: Following | None = None
        if isinstance(node, Mapping):
            leaves = mapping_fields(fields, node, f"Collate: fields{path}")
            given = fields if isinstance(fields, Mapping) else {}
            self._sources = [source for _, source, _ in leaves]
            fields = Following.fields({key: child for key, _, child in leaves}, given)
            if any(isinstance(field, Field) and field.follows for field in fields.values()):
                self._following = Following(fields, f"Collate: fields{path}", given)
            self._places = [_Place(fields[key], f"{path}[{key!r}]", pin) for key in fields]
            self._leaves = fields.keys()
            self._changes_keys = list(fields) != list(node) or any(
                isinstance(field, Field) and (field.names() or field.is_optional)
                for field in fields.values()
            )
        else:
            self._places = [
                _Place(child, path + step, pin)
                for child, (step, _) in zip(
                    child_fields(fields, node, f"Collate: fields{path}", "samples"),
                    children(node),
                    strict=True,
                )
            ]
            self._changes_keys = False

    def fits(self, node: Any) -> bool:
        """Whether a container of the same type has the same places."""
        return self._keys == _keys(node)

    def collate(self, samples: Sequence[Any], batch: _Batch) -> Any:
        return self._made(samples[0], _Place.collate, self._columns(samples), batch)

    def gather(self, sources: Any, indices: npt.NDArray[np.int64], batch: _Batch) -> Any:
        is_mapping = type(sources) is dict or isinstance(sources, Mapping)
        columns = [sources[key] for key in self._sources] if is_mapping else parts(sources)
        make = lambda place, column, batch: place.gather(column, indices, batch)
        return self._made(sources, make, columns, batch)

    def _made(
        self,
        node: Any,
        make: Callable[[_Place, Any, _Batch], Any],
        columns: Sequence[Any],
        batch: _Batch,
    ) -> Any:
        """A container like ``node`` of the batches that ``make`` makes of the column of each place."""
        if self._following is not None:
            values = self._followed(make, columns, batch)
        else:
            pairs = zip(self._places, columns, strict=True)
            values = [make(place, column, batch) for place, column in pairs]
        if self._changes_keys:
            name = lambda step: f"Collate: leaf {self._leaf.path}{step}"
            return rebuild_with_siblings(node, self._leaves, values, name, "samples")
        # default_collate makes lists of plain tuples, and code in the wild relies on it.
        if isinstance(node, tuple) and not is_namedtuple(node):
            return values
        return rebuild(node, values)

    def _followed(
        self, make: Callable[[_Place, Any, _Batch], Any], columns: Sequence[Any], batch: _Batch
    ) -> list[Any]:
        """The batch of each place, where some follow others."""
        following = self._following
        assert following is not None
        places = dict(zip(self._leaves, zip(self._places, columns, strict=True), strict=True))

        def made(key: Any, scene: Scene | None) -> Any:
            place, part = places[key]
            try:
                return make(place, part, batch._replace(scene=scene))
            except ValueError as error:
                problem = Problem.of(error)
                if not following.are_shown or problem.hint != TAKE_ANY_LENGTH:
                    raise
                if getattr(part[0], "ndim", 0) == 3:
                    problem.hint = "masks of objects take InstanceMasks()"
                elif is_of_boxes(key):
                    problem.hint = drops(key, following.labels)
                raise

        return following.batches(
            made,
            lambda key, made, scene: places[key][0].follow(made, batch._replace(scene=scene)),
        )

    def _columns(self, samples: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """For each place, what every sample has there."""
        if {*map(type, samples)} == {self._kind}:
            if self._kind is dict and {*map(len, samples)} == {len(self._keys)}:
                try:
                    return [[sample[key] for sample in samples] for key in self._sources]
                except KeyError:
                    pass  # which is told below
            elif issubclass(self._kind, tuple | list) and {*map(len, samples)} == {self._keys}:
                return list(zip(*samples, strict=True))
        return self._checked_columns(samples)

    def _checked_columns(self, samples: Sequence[Any]) -> Sequence[Sequence[Any]]:
        first: Any = samples[0]
        kind: Any = Mapping if isinstance(first, Mapping) else Sequence
        if is_dataclass(first):
            kind = self._kind
        for position, sample in enumerate(samples):
            if not isinstance(sample, kind) or isinstance(sample, str | bytes):
                hint = WITHOUT_NONE if sample is None else ""
                raise self._differs(
                    position, f"a {self._kind.__name__}", type(sample).__name__, hint
                )
            if kind is Mapping and sample.keys() != first.keys():
                missing = [key for key in first if key not in sample]
                hint = f"it has no {missing[0]!r}" if missing else ""
                raise self._differs(position, f"keys {list(first)}", str(list(sample)), hint)
            if kind is Sequence and len(sample) != len(first):
                is_number = isinstance((*first, *sample)[0], int | float | np.generic)
                hint = TAKE_ANY_LENGTH if is_number else "Keep() leaves lists as they are"
                raise self._differs(position, f"{len(first)} items", str(len(sample)), hint)
        if kind is Mapping:
            return [[sample[key] for sample in samples] for key in self._sources]
        if kind is Sequence:
            return list(zip(*samples, strict=True))
        return list(zip(*map(parts, samples), strict=True))

    def _differs(self, position: int, expected: str, got: str, hint: str = "") -> ValueError:
        expected = f"{expected} as in sample 0"
        return ValueError(Problem(self._leaf.name, expected, got, hint, sample=position))


def _keys(node: Any) -> Any:
    """What a container of the same type has in common with one that has the same places."""
    if type(node) is dict or isinstance(node, Mapping):
        return tuple(node)
    return None if is_dataclass(node) else len(node)
