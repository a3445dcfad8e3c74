"""`DeviceLoader`: prefetches batches of any loader, and copies them to the device."""

from __future__ import annotations

import contextlib
import functools
import operator
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from pinfeed.arguments import Problem, checked_integer, with_hints, workers_of
from pinfeed.collation.checked_fields import batch_plan, require_same_padding
from pinfeed.collation.collate import Collate
from pinfeed.loaders.prefetcher import Prefetcher, register_exit
from pinfeed.loaders.stats import LoopStats, LoopTimes
from pinfeed.loaders.transfer import OneStreamTransfer, StreamTransfer, Transfer
from pinfeed.memory.staging import Accelerator, has_streams
from pinfeed.ranks import ranks_now
from pinfeed.samplers.epoch_sampler import EpochSampler

# Per-loop state, which is neither pickled nor copied.
_OF_LOOPS = frozenset(("_plan", "_prefetcher", "_is_begun"))

_LATER_ONE = (
    "a later one began, and both share the loader's iterator (a generator, or persistent workers); "
    "finish or drop one first"
)

# torch's samplers that don't shard over ranks.
_OF_ALL_SAMPLES = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class DeviceLoader:
    """Prefetches batches in a background thread and copies them to the device.

    Args:
        loader: Any iterable of batches: a DataLoader, a StatefulDataLoader, a list, a generator.
        device: Target device. None: the current accelerator when a loop begins, or the CPU if there is
            none.
        fields: Fields to apply on the device, nested like a batch, such as an `Image` for uint8 images or
            a `Pad` for a `JaggedBatch`. Entries without a field are unchanged. If pinfeed has no kernels
            for the device, fields are applied on the CPU, before the copy.
        prefetch: Maximum number of batches to prefetch; at least 1.

    A batch is ready on your current stream when you receive it, and has the loader's nesting. Tensors are
    copied through reused pinned memory; on the CPU they aren't copied. Other objects with a ``.to``, such
    as a PackedSequence, are moved by it when you receive the batch. Everything else is unchanged.

    **Loops.** Each loop has its own thread, which ends with the loop and drops prefetched batches. Run a
    loop in the thread that began it. If two loops share the loader's iterator (a generator, persistent
    workers), the second ends the first, and continuing the first raises RuntimeError. A loop over an
    exhausted generator raises RuntimeError too.

    **The loader** runs in the background thread. Only ``iter(loader)`` and its first batch run in yours. It
    must not write to a batch that it has returned. Without workers, the dataset runs in the background too:
    if it draws from a global generator, its draws mix with yours in no fixed order. The thread uses the grad
    mode, autocast settings, default device and context variables that are set when you request the first
    batch.

    **Errors** of the loader are raised in your loop, with a note that names the batch. ``next()`` then
    continues after the failed batch, if the loader can.

    **State.** ``state_dict()`` and ``load_state_dict(state)`` exist if the loader has them, or has a
    ``batch_sampler`` of pinfeed. The state is the position after the last batch that you received. Load it
    before a loop, which then yields the remaining batches. A list with the states of all ranks resumes
    with other rank and worker counts, if the sampler or stream supports it. Between the start of a loop
    and its first batch, ``state_dict()`` raises RuntimeError. So don't save in a signal handler: set a
    flag there, and save after the batch.

    ``len()`` and all other attributes, such as ``.sampler``, are the loader's. Set them on ``.loader``.

    CUDA is tested on one GPU and on simulated devices. On ``"mps"``, which has a single stream, batches
    are copied with ``.to``.

    Raises:
        TypeError: If ``loader`` is not an iterable of batches, ``prefetch`` not an integer, ``device`` not
            a device, or a field can't be applied to batches.
        ValueError: If ``prefetch`` is less than 1, or the fields normalize images that the loader's
            `Collate` has padded as bytes, which changes the padding. When a loop begins: if the device
            does not exist.
        RuntimeError: In a loop that another loop ended, or over an exhausted generator.

    Example:
        >>> dataset = pinfeed.ArrayDataset((np.zeros((8, 4, 4, 3), np.uint8), np.arange(8)))
        >>> loader = torch.utils.data.DataLoader(
        ...     dataset, batch_size=4, collate_fn=pinfeed.Collate()
        ... )
        >>> batches = pinfeed.DeviceLoader(
        ...     loader, device="cpu", fields=(pinfeed.Image(), None)
        ... )
        >>> for images, labels in batches:
        ...     print(images.shape, labels)
        torch.Size([4, 3, 4, 4]) tensor([0, 1, 2, 3])
        torch.Size([4, 3, 4, 4]) tensor([4, 5, 6, 7])
        >>> batches.stats().batches
        2
    """

    _prefetcher: Prefetcher | None
    _is_begun: bool  # whether a loop has begun

    @with_hints()
    def __init__(
        self,
        loader: Iterable[Any],
        device: torch.device | str | int | None = None,
        fields: Any = None,
        prefetch: int = 2,
    ) -> None:
        is_dataset = isinstance(loader, Dataset) and not isinstance(loader, Iterable)
        if is_dataset or not (isinstance(loader, Iterable) or hasattr(loader, "__getitem__")):
            hint = (
                "pass DataLoader(dataset, batch_size, collate_fn=Collate())" if is_dataset else ""
            )
            got = f"{type(loader).__name__}{', a dataset of samples' if is_dataset else ''}"
            text = f"DeviceLoader: loader must be an iterable of batches, got {got}"
            raise TypeError(Problem("", text, hint=hint))
        self.loader = loader
        self.device = None if device is None else _checked_device(device)
        self.fields = fields
        self.prefetch = checked_integer(prefetch, "DeviceLoader: prefetch", 1)
        self._begin_anew()
        collate = getattr(loader, "collate_fn", None)
        if isinstance(collate, Collate):
            require_same_padding(self._plan, collate.fields)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type] # or its TypeError

    def __iter__(self) -> DeviceIterator:
        return DeviceIterator(functools.partial(self._begin, _available(self.device)))

    def _begin(self, device: torch.device) -> Prefetcher:
        """Begins a loop, when its first batch is requested."""
        if not self._is_begun:
            _warn_if_not_split(self.loader)
        self._is_begun = True
        last = self._prefetcher
        # A loader with persistent workers takes them away from a running iteration.
        if last is not None and getattr(self.loader, "persistent_workers", False):
            last.supersede(_LATER_ONE)
        elif last is not None and last.is_closed:
            last.close(None)
        # In this thread, as worker processes and signal handlers require.
        source = iter(self.loader)
        if last is not None and last.source is source:
            last.supersede(_LATER_ONE)
        register_exit()  # again, to run before exit handlers that torch may just have registered
        take_state = getattr(self.loader, "state_dict", None)
        # Before the thread begins: the frame of a generator that others have exhausted is None.
        is_used_up = getattr(source, "gi_frame", source) is None
        self._prefetcher = Prefetcher(source, take_state, self._transfer(device), self.prefetch)
        had_batches = last is not None and (last.is_continued or last.times.stats().batches > 0)
        self._prefetcher.is_continued = source is self.loader and (had_batches or is_used_up)
        return self._prefetcher

    def __getattr__(self, name: str) -> Any:
        if name == "loader" or name.startswith("__"):  # not set yet, during unpickling
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        methods = {"state_dict": self._state_dict, "load_state_dict": self._load_state_dict}
        if name in methods and self._counted is not None:
            return methods[name]
        if name in methods and not hasattr(self.loader, name):
            raise AttributeError(
                f"DeviceLoader: the {type(self.loader).__name__} has no {name}; use a StatefulDataLoader of "
                "torchdata, or a batch_sampler of pinfeed's, such as ShuffleSampler(dataset, batch_size)"
            )
        if name == "set_epoch" and not hasattr(self.loader, name):
            # Frameworks look for it here: a Trainer calls it before each epoch, also when it resumes.
            for of in ("batch_sampler", "batch_sampler.sampler", "sampler"):
                with contextlib.suppress(AttributeError):
                    return operator.attrgetter(f"{of}.{name}")(self.loader)
            raise AttributeError(
                f"DeviceLoader: neither the {type(self.loader).__name__} nor its samplers have set_epoch; "
                "streams count epochs themselves"
            )
        attribute = getattr(self.loader, name)
        return methods.get(name, attribute)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OF_LOOPS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._plan = batch_plan(self.fields)
        self._prefetcher = None
        self._is_begun = False

    def __repr__(self) -> str:
        return (
            f"DeviceLoader({self.loader!r}, device={self.device}, fields={self.fields!r}, "
            f"prefetch={self.prefetch})"
        )

    def stats(self) -> LoopStats:
        """Returns counts and times of the running or last loop, which show its slowest stage.

        Returns:
            A NamedTuple: the numbers ``batches`` and ``bytes``; the seconds ``waiting_for_loader``,
            ``waiting_for_copy``, ``waiting_for_consumer`` (their sum is the loop's duration) and
            ``waited`` (by your loop); and ``bottleneck``. ``print`` shows one line.

        Example:
            >>> import time
            >>> batches = pinfeed.DeviceLoader([torch.zeros(4)] * 3, device="cpu")
            >>> for batch in batches:
            ...     time.sleep(0.05)  # a training step
            >>> batches.stats().bottleneck
            'consumer'
        """
        return (LoopTimes() if self._prefetcher is None else self._prefetcher.times).stats()

    # __getattr__ returns the state methods only if there is a state, so that hasattr() is correct.

    @property
    def _counted(self) -> EpochSampler | None:
        """The sampler with a state, if the loader itself has none."""
        sampler = getattr(self.loader, "batch_sampler", None)
        if isinstance(sampler, EpochSampler) and not hasattr(self.loader, "state_dict"):
            return sampler
        return None

    def _state_dict(self, ahead: int = 0) -> Any:
        """Returns the state before the last ``ahead`` batches."""
        prefetcher, sampler = self._prefetcher, self._counted
        if sampler is not None:
            if prefetcher is None or (prefetcher.is_closed and sampler.is_set):
                return sampler.state_dict()
            return sampler.state_after(prefetcher.position - ahead)
        if prefetcher is not None and len(prefetcher.states) > max(ahead, 1):
            state = prefetcher.states[-1 - ahead]
            assert state is not None
            if state.error is not None:
                raise RuntimeError(
                    "DeviceLoader: the loader's state_dict() failed after the last batch: "
                    f"{type(state.error).__name__}: {state.error}"
                ) from state.error
            return state.value
        if prefetcher is not None and prefetcher.is_ahead:
            raise RuntimeError(
                "DeviceLoader: the state is unknown until the first batch of a loop has arrived; in a "
                "signal handler set a flag, and save after the batch"
            )
        return self.loader.state_dict()  # type: ignore[attr-defined]

    def _load_state_dict(self, state: Any) -> None:
        prefetcher = self._prefetcher
        if prefetcher is not None and (prefetcher.is_closed or self._counted is None):
            # Its thread uses the loader, and calls its state_dict.
            prefetcher.supersede("a state was loaded; begin a new loop after load_state_dict")
        stateful: Any = self.loader if self._counted is None else self._counted
        sampler, dataset = (
            getattr(self.loader, name, None) for name in ("batch_sampler", "dataset")
        )
        moving = sampler if isinstance(sampler, EpochSampler) else dataset
        choose = getattr(dataset, "state_of_this_rank", None)  # of a stream
        if self._counted is None and (moving is sampler or choose is not None):
            workers = getattr(self.loader, "num_workers", 0)
            if not isinstance(state, list) and workers_of(state) not in (None, workers):
                state = [state]
            if isinstance(state, list) and choose is not None:
                state = choose(state, workers)
            if isinstance(state, list):
                stateful.load_state_dict({})  # resets a StatefulDataLoader
                stateful = moving
        stateful.load_state_dict(state)
        self._prefetcher = None  # batches of a running loop don't count any more

    def _transfer(self, device: torch.device) -> Transfer:
        if device.type == "cpu":
            return Transfer(self._plan)
        if not has_streams(device):
            return OneStreamTransfer(self._plan, device)
        return StreamTransfer(self._plan, Accelerator(device))


class DeviceIterator(Iterator[Any]):
    """One loop over a `DeviceLoader`; begins with its first batch, and closes when it is dropped.

    It begins late because frameworks create iterators without using them, and iterating over a loader
    with workers begins an epoch.
    """

    def __init__(self, begin: Callable[[], Prefetcher]) -> None:
        self._begin: Callable[[], Prefetcher] | None = begin
        self._prefetcher: Prefetcher | None = None

    def __next__(self) -> Any:
        if self._begin is not None:
            prefetcher = self._begin()
            self._close = weakref.finalize(self, prefetcher.close)
            self._close.atexit = False  # the prefetcher has its own exit handler
            # Last, so that after an interrupt before this line the loop has not begun.
            self._prefetcher, self._begin = prefetcher, None
        if self._prefetcher is None:  # closed before it began
            raise StopIteration
        return self._prefetcher.take()

    def close(self) -> None:
        """Ends the loop, as ``break`` does."""
        self._begin = None
        if self._prefetcher is not None:
            self._close()


def _checked_device(device: Any) -> torch.device:
    expected = "DeviceLoader: device must be a torch.device, or a string or an index that torch.device accepts"
    try:
        return torch.device(device)
    except TypeError as error:
        raise TypeError(f"{expected}, got {device!r}; pass fields by name: fields=...") from error
    except RuntimeError as error:
        raise ValueError(f"{expected}, got {device!r}: {str(error).splitlines()[0]}") from error


def _warn_if_not_split(loader: Any) -> None:
    """Warns about a DataLoader that gives every rank all samples.

    accelerate and Lightning shard the DataLoaders that they prepare, and other batch samplers
    (`ShuffleSampler`) shard by themselves.
    """
    if not issubclass(type(loader), DataLoader) or isinstance(loader.dataset, IterableDataset):
        return
    sampler = loader.sampler
    batch_sampler: Any = loader.batch_sampler
    if isinstance(batch_sampler, BatchSampler) and type(batch_sampler).__name__ == "BatchSampler":
        sampler = batch_sampler.sampler  # torch's, or torchdata's of the same name
    elif batch_sampler is not None:
        return
    is_of_all = isinstance(sampler, _OF_ALL_SAMPLES) or type(sampler).__name__ == "RandomSampler"
    rank, world_size = ranks_now("DeviceLoader") if is_of_all else (0, 1)
    if world_size > 1:
        warnings.warn(
            f"DeviceLoader: this is rank {rank} of {world_size}, and every rank gets all samples: the "
            f"DataLoader's {type(sampler).__name__} does not shard over ranks. Pass the DataLoader "
            "batch_sampler=pinfeed.samplers.ShuffleSampler(dataset, batch_size), or use "
            "pinfeed.from_numpy; under accelerate, DeviceLoader(accelerator.prepare(loader))",
            stacklevel=4,
        )


def _available(device: torch.device | None) -> torch.device:
    """Resolves the device and its index, without initializing it if possible."""
    if device is not None and device.type == "cpu":
        return device
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        if accelerator is None:
            return torch.device("cpu")
        device = accelerator
    count = 0 if accelerator is None else torch.accelerator.device_count()
    if accelerator is None or device.type != accelerator.type or (device.index or 0) >= count:
        available = f"{count} of type {accelerator.type!r}" if accelerator else "no accelerator"
        raise ValueError(
            f"DeviceLoader: device {str(device)!r} is not available; torch finds {available}"
            f"{_why_unusable(device) if accelerator is None else ''}; "
            "leave device out to use what is available, or pass 'cpu'"
        )
    if device.index is None:
        return torch.device(device.type, torch.accelerator.current_device_index())
    return device


def _why_unusable(device: torch.device) -> str:
    """Returns torch's own reason: no driver, an old driver, or a build without CUDA."""
    try:
        torch.empty(0, device=device)
    except Exception as error:  # noqa: BLE001, of any kind
        return f" ({str(error).strip().splitlines()[0].partition('. ')[0]})"
    return ""
