"""The collate function: samples in, one batch of the same structure out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from pinfeed.arguments import ARRAYS, Problem, instead
from pinfeed.augment.chance import Chance, SeededChance
from pinfeed.batches import LastSample, Packing, SampleBatch
from pinfeed.collation.placed import placed
from pinfeed.collation.plan import UNKNOWN, Context, Entry
from pinfeed.fields.field import Field
from pinfeed.fields.stack import TAKE_ANY_LENGTH
from pinfeed.memory.main_process import accept_limit, limit_to_hand_over
from pinfeed.memory.outputs import is_pinning_wanted
from pinfeed.memory.worker import is_worker, worker_memory
from pinfeed.sources.dataset import Rows


class Collate:
    """A ``collate_fn`` for any DataLoader: one native pass per entry, into reused memory.

    Args:
        fields: A field for each entry, in the structure of a sample: one `Field` for samples that
            are an array, a dict for dict samples, a tuple for tuple samples, nested as deep.
            Entries without a field (left out of a dict, or None) get `Stack`. None: all of them.
            In a dict, `Field.from_key` makes an entry from another one, and `Field.allow_missing` leaves it
            out of batches whose samples lack it.
        pin_memory: Whether batches of this process lie in pinned memory, which devices copy from by
            themselves: a DataLoader's ``pin_memory=True`` has nothing to do then. ``"auto"``: if the
            process uses CUDA or XPU by the time that the batch is made; no device is initialized for
            it. Memory that can't be pinned is ordinary memory, with one warning.
        seed: With the epoch and each sample's index in the dataset, it determines what is random in
            a batch (`Image`'s ``augment``), whatever the workers, ranks, batch size or resumes. The
            dataset is an `ArrayDataset`, or wrapped in an `IndexedDataset`, or ``id_key``
            says what stands for the index. A sample that comes twice in an epoch is augmented the
            same way. None: each batch draws a number from torch's default generator.
        id_key: The key of the (dict) samples that holds each one's own integer. With ``seed``; it suits
            streams, and datasets whose indices change. Samples with the same integer are augmented
            the same way.

    The batch has the structure of the samples, with the types that ``default_collate`` gives
    (tuples become lists), and without fields the same contents. Samples that are `Rows` of an
    `ArrayDataset` are gathered natively; any other sequence of samples works too.

    A Collate pickles, and any number of workers and threads may call it at once. In a DataLoader
    worker it writes into memory that the main process maps too (see `set_worker_memory_limit`), whatever ``pin_memory``
    says; elsewhere into pinned memory of torch, or buffers of a pool. In each case the memory is
    used again when the last tensor or array that views it is gone, never before.

    Raises:
        TypeError: ``fields`` holds something that is no field; an entry's kind or dtype does not
            fit.
        ValueError: The batch is empty; samples differ in shape or structure, or from the fields; there
            is a seed, something is random, and the samples' indices are not known, or lack ``id_key``.
        RuntimeError: With ``pin_memory=True``, when a batch is made: there is no accelerator.

    Example:
        >>> collate = pinfeed.Collate({"image": pinfeed.Image(scale=1)})
        >>> samples = [{"image": np.ones((2, 2, 3), np.uint8), "label": i} for i in range(4)]
        >>> batch = collate(samples)
        >>> batch["image"].shape, batch["label"]
        (torch.Size([4, 3, 2, 2]), tensor([0, 1, 2, 3]))
    """

    @instead("fields go into one tuple or dict, as a sample has them: Collate((Image(), None))")
    def __init__(
        self,
        fields: Any = None,
        *,
        pin_memory: bool | Literal["auto"] = "auto",
        seed: int | None = None,
        id_key: Any = None,
    ) -> None:
        if not isinstance(pin_memory, bool) and pin_memory != "auto":
            raise ValueError(
                f"Collate: pin_memory must be True, False or 'auto', got {pin_memory!r}"
            )
        self.fields = fields
        self.pin_memory = pin_memory
        self._chance = SeededChance(seed, id_key)
        self._augments = self._is_random = False
        self._packs = self._pads = ""
        self._fields = placed(fields, "Collate: fields", self._note_field)
        self._plans: dict[bool, Entry] = {}

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
                "give this entry a Pack too, with the same pad_value, or Jagged() where it is no sequence "
                "of the same tokens"
            )

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__ | {"_worker_memory_limit": limit_to_hand_over()}
        del state["_plans"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        accept_limit(state.pop("_worker_memory_limit", None))
        self.__dict__ |= state
        self._plans = {}

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Collates a batch.

        Args:
            samples: At least one sample. An array or a tensor counts as what is along its first axis.
        """
        worker_memory()  # what torch makes is sent through it too, and tensors that Keep leaves alone
        known: Any = samples if type(samples) is Rows else None
        if known is None:
            if isinstance(samples, ARRAYS):
                # Of some __getitems__. A nested tensor has parts, but no length.
                is_nested = isinstance(samples, torch.Tensor) and samples.is_nested
                if is_nested or samples.ndim > 0:
                    samples = list(samples.unbind() if is_nested else samples)
            # A copy of the list: all entries see it as it was once, whatever another thread does to it.
            if type(samples) is list and (samples := samples.copy()):
                context = UNKNOWN
                if self._augments or self._is_random:
                    context = self._context(samples, None, LastSample.epoch_of(samples))
                return self._plan().collate(samples, context)
            self._require_samples(samples)
            known = samples if isinstance(samples, SampleBatch) else None
        if len(known.indices if type(samples) is Rows else samples) == 0:
            raise ValueError(Problem("Collate", "at least one sample", "an empty batch"))
        packing, epoch = (None, None) if known is None else (known.packing, known.epoch)
        try:
            context = self._context(samples, packing, epoch)
            if isinstance(samples, Rows):
                return self._plan().gather(samples.sources, samples.indices, context)
            return self._plan().collate(list(samples), context)
        except (TypeError, ValueError) as error:
            problem = Problem.of(error)
            if problem is None:
                raise
            indices: Any = ()
            if packing is not None:
                indices = packing.documents
                if problem.hint == TAKE_ANY_LENGTH:
                    problem.hint = f"where documents are packed, this entry too needs Pack(seq_length={packing.seq_length})"
            elif known is not None and known.indices is not None:
                indices = known.indices
            if problem.sample is not None and problem.sample < len(indices):
                problem.index = int(indices[problem.sample])
            raise

    def _require_samples(self, samples: Any) -> None:
        """Raises TypeError for what is no sequence of samples, or may be none."""
        if not isinstance(samples, Sequence) or isinstance(samples, str | bytes):
            hint = (
                "a DataLoader with batch_size=None hands over single samples, and a dataset's __getitems__ "
                "has to return a list of samples"
            )
            raise TypeError(
                Problem("Collate", "a sequence of samples", type(samples).__name__, hint)
            )
        if type(samples) is tuple and samples and getattr(samples[0], "ndim", 0) > 0:
            got = f"a tuple of {len(samples)} arrays, which could be samples or the columns of a batch"
            hint = "pass list(samples), and have a dataset's __getitems__ return a list of samples"
            raise TypeError(Problem("Collate", "a list of samples", got, hint))

    def _context(
        self, samples: Sequence[Any], packing: Packing | None, epoch: int | None
    ) -> Context:
        chance = None
        if self._is_random:
            chance = self._chance.of(samples, epoch)
        elif self._augments:  # by what is certain: no number of these is looked at
            chance = Chance(np.arange(len(samples)), key=0)
        return chance, packing, epoch, False, None

    def _plan(self) -> Entry:
        """The plan for whole samples, with memory that is pinned or not, as it is wanted now."""
        pin = not is_worker() and is_pinning_wanted(self.pin_memory)
        if pin not in self._plans:
            self._plans[pin] = Entry("Collate", self._fields, "", pin)
        return self._plans[pin]

    def __repr__(self) -> str:
        given = [] if self.fields is None else [repr(self.fields)]
        pin = [] if self.pin_memory == "auto" else [f"pin_memory={self.pin_memory}"]
        seed = [] if self.seed is None else [f"seed={self.seed}"]
        key = [] if self._chance.entry is None else [f"id_key={self._chance.entry!r}"]
        return f"Collate({', '.join(given + pin + seed + key)})"
