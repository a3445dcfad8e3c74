"""The collate function, which turns samples into a batch of the same structure."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from pinfeed import runtime
from pinfeed.arguments import ARRAYS, Problem, with_hints
from pinfeed.augment.random_state import BatchRandomState, CollateRandomState
from pinfeed.batches import LastSample, Packing, SampleBatch
from pinfeed.collation.checked_fields import checked_fields
from pinfeed.collation.plan import Entry
from pinfeed.fields.field import Field, FieldContext
from pinfeed.memory.main_process import accept_limit, limit_for_pickling
from pinfeed.memory.outputs import is_pinning_wanted
from pinfeed.memory.worker import worker_memory
from pinfeed.sources.dataset import Rows

# The context of a batch whose epoch is unknown.
_UNKNOWN = FieldContext("Collate")


class Collate:
    """A ``collate_fn`` for any DataLoader: one native pass per entry, into reused memory.

    Args:
        fields: Fields, nested like a sample: one `Field` if samples are arrays, a dict of fields
            for dicts, a tuple for tuples, nested to any depth. Entries without a field (left out of a
            dict, or None) get `Stack`. None stacks all entries. In a dict, `Field.from_key` reads another
            key, and `Field.allow_missing` skips an entry that all samples lack.
        pin_memory: Whether to allocate batches in pinned memory, which makes DataLoader's
            ``pin_memory=True`` unnecessary. ``"auto"`` pins as soon as the process uses CUDA or XPU, and
            never initializes a device. If memory can't be pinned, it warns once and uses ordinary memory.
        seed: Seed for augmentation. Together with the epoch and each sample's index it determines every
            random draw, independent of workers, ranks, batch size and resuming. The dataset must be an
            `ArrayDataset` or an `IndexedDataset`, unless ``id_key`` is set. A sample drawn twice in an
            epoch gets the same augmentation both times, unless a `samplers.WeightedSampler` drew it.
            None: each batch draws from torch's default generator.
        id_key: With ``seed``: key of an integer in dict samples that identifies the sample, instead of its
            index, for streams and for datasets whose indices change. Samples with equal integers get the
            same augmentation.

    The batch has the structure of the samples, with the types of ``default_collate`` (tuples become
    lists). Without fields, it equals the batch of ``default_collate``. `Rows` of an `ArrayDataset` are
    gathered natively; any other sequence of samples works too.

    A Collate is picklable; any number of workers and threads can call it at once. In DataLoader
    workers it writes into memory shared with the main process (see `set_worker_memory_limit`) and
    ignores ``pin_memory``; elsewhere into torch's pinned memory or pooled buffers. Memory is reused
    only after the last tensor or array viewing it is gone.

    Raises:
        TypeError: If ``fields`` contains something other than fields, or an entry has the wrong type or
            dtype.
        ValueError: If the batch is empty, samples differ in shape or structure, or fields and samples
            differ in structure; or, with a seed, if the index or ``id_key`` of an augmented sample is
            missing.
        RuntimeError: When samples are collated with ``pin_memory=True``: if torch finds no accelerator.

    Example:
        >>> collate = pinfeed.Collate({"image": pinfeed.Image(scale=1)})
        >>> samples = [{"image": np.ones((2, 2, 3), np.uint8), "label": i} for i in range(4)]
        >>> batch = collate(samples)
        >>> batch["image"].shape, batch["label"]
        (torch.Size([4, 3, 2, 2]), tensor([0, 1, 2, 3]))
    """

    @with_hints(
        "fields go into one tuple or dict, as a sample has them: Collate((Image(), None))",
        pin="pass pin_memory",
        batch_size="pass it to the DataLoader",
        shuffle="pass it to the DataLoader",
        device="pinfeed.DeviceLoader(loader, device) copies batches to a device",
        transform="Collate(Image(augment=...)) transforms images",
    )
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
        self._random_state = CollateRandomState(seed, id_key)
        self._augments = self._is_random = False
        self._packs = self._pads = ""
        self._fields = checked_fields(fields, "Collate: fields", self._note_field)
        self._plans: dict[bool, Entry] = {}

    @property
    def seed(self) -> int | None:
        """The seed for augmentation."""
        return self._random_state.seed

    @property
    def epoch(self) -> int:
        """The epoch used for batches that don't carry one."""
        return self._random_state.epoch

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, which changes the random draws in this process and in all workers.

        Batches of pinfeed's samplers carry their epoch. With other samplers, call this before each epoch,
        even with persistent workers. Without a seed it has no effect.

        Raises:
            TypeError: If ``epoch`` is not an integer.
            ValueError: If ``epoch`` is negative.
        """
        self._random_state.set_epoch(epoch)

    def _note_field(self, field: Field, name: str) -> None:
        self._augments |= field.augments or field.is_random
        self._is_random |= field.is_random
        if field.packs:
            self._packs = name
        if field.pads:
            self._pads = f"{name}: {field!r}"
        if self._packs and self._pads:
            raise ValueError(
                f"{self._pads} makes a row of each document, but "
                f"{self._packs.removeprefix('Collate: ')} packs several into one; "
                "give this entry a Pack with the same pad_value, or Jagged() if it doesn't have one value "
                "per token"
            )

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__ | {"_worker_memory_limit": limit_for_pickling()}
        del state["_plans"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        accept_limit(state.pop("_worker_memory_limit", None))
        self.__dict__ |= state
        self._plans = {}

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Returns the batch of a list of samples.

        Args:
            samples: Non-empty sequence of samples; an array or a tensor has one per index of axis 0.
        """
        # Worker memory also transfers tensors that torch or Keep puts into the batch.
        if not runtime.is_main and (memory := worker_memory()) is not None:
            memory.begin()
        if type(samples) is list and samples:
            samples = samples[:]  # so concurrent modification can't affect later fields
            context = _UNKNOWN
            if self._augments:
                context = self._context(samples, None, LastSample.epoch_of(samples))
            return self._plan().collate(samples, context)
        batch: Any = samples
        if type(batch) is not Rows and not isinstance(batch, SampleBatch):
            batch = self._as_list(samples)
            if batch:
                return self(batch)
        if len(batch.indices if type(batch) is Rows else batch) == 0:
            raise ValueError(Problem("Collate", "at least one sample", "an empty batch"))
        packing, epoch, indices = batch.packing, batch.epoch, batch.indices
        try:
            context = _of_epoch(epoch)
            if self._augments or packing is not None:
                context = self._context(batch, packing, epoch)
            if type(batch) is Rows:
                return self._plan().gather(batch.sources, batch.indices, context)
            return self._plan().collate(list(batch), context)
        except (TypeError, ValueError) as error:
            if problem := Problem.of(error):
                if packing is not None:
                    indices = packing.documents
                    needed = f"Pack(seq_length={packing.seq_length})"
                    problem.explain_difference(
                        f"documents are packed, so this entry needs {needed} too"
                    )
                sample = problem.sample
                if indices is not None and sample is not None and sample < len(indices):
                    problem.index = int(indices[sample])
            raise

    def _as_list(self, samples: Any) -> list[Any]:
        """Returns samples as a list; raises TypeError if they can be the columns of a batch, or no sequence."""
        if isinstance(samples, ARRAYS):
            # Some __getitems__ return arrays. Nested tensors have no length.
            if isinstance(samples, torch.Tensor) and samples.is_nested:
                samples = samples.unbind()
            elif samples.ndim > 0:
                return list(samples)
        elif type(samples) is tuple and samples and getattr(samples[0], "ndim", 0) > 0:
            got = f"a tuple of {len(samples)} arrays, which could be samples or the columns of a batch"
            hint = "pass list(samples), and have a dataset's __getitems__ return a list of samples"
            raise TypeError(Problem("Collate", "a list of samples", got, hint))
        if not isinstance(samples, Sequence) or isinstance(samples, str | bytes):
            hint = "set the DataLoader's batch_size, and have a dataset's __getitems__ return a list of samples"
            got = type(samples).__name__
            raise TypeError(Problem("Collate", "a sequence of samples", got, hint))
        return list(samples)

    def _context(
        self, samples: Sequence[Any], packing: Packing | None, epoch: int | None
    ) -> FieldContext:
        random_state = None
        if self._is_random:
            random_state = self._random_state.of(samples, epoch)
        elif self._augments:  # transforms without random draws don't read the numbers
            random_state = BatchRandomState(np.arange(len(samples)), key=0)
        return FieldContext("Collate", "", False, random_state, packing, epoch)

    def _plan(self) -> Entry:
        """Returns the plan for whole samples, with pinned memory if it is wanted now."""
        pin = (runtime.is_main or not runtime.is_worker_process()) and is_pinning_wanted(
            self.pin_memory
        )
        if (plan := self._plans.get(pin)) is None:
            plan = self._plans[pin] = Entry("Collate", self._fields, "", pin)
        return plan

    def __repr__(self) -> str:
        fields = [] if self.fields is None else [repr(self.fields)]
        pin = [] if self.pin_memory == "auto" else [f"pin_memory={self.pin_memory}"]
        seed = [] if self.seed is None else [f"seed={self.seed}"]
        key = [] if self._random_state.entry is None else [f"id_key={self._random_state.entry!r}"]
        return f"Collate({', '.join(fields + pin + seed + key)})"


@functools.lru_cache(maxsize=8)
def _of_epoch(epoch: int | None) -> FieldContext:
    """Returns the context of a batch without random draws and packing; creating it takes longer."""
    return FieldContext("Collate", epoch=epoch)
