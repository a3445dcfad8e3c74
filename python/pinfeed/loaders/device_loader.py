"""Batches of any loader, ahead of time and on the device."""

from __future__ import annotations

import functools
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

from pinfeed.arguments import checked_integer, instead, workers_of
from pinfeed.collation.collate import Collate
from pinfeed.collation.placed import batch_plan, require_same_padding
from pinfeed.loaders.feed import Feed, register_exit
from pinfeed.loaders.stats import FeedStats, FeedTimes
from pinfeed.loaders.transfer import OneStreamTransfer, StreamTransfer, Transfer
from pinfeed.memory.staging import Accelerator, has_streams
from pinfeed.ranks import ranks_now
from pinfeed.samplers.epoch_sampler import EpochSampler

# What belongs to the loops over one object, and to no copy of it.
_OF_LOOPS = frozenset(("_plan", "_feed", "_is_begun"))

_LATER_ONE = (
    "a later one began, since the loader has one iterator for all (a generator, or persistent workers); "
    "finish or drop one first"
)

# Samplers of torch's that know nothing of ranks.
_OF_ALL_SAMPLES = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class DeviceLoader:
    """Runs a loader ahead of the training loop, and copies its batches to the device meanwhile.

    Args:
        loader: Any iterable of batches: a DataLoader, a StatefulDataLoader, a list, a generator.
        device: Where batches go. None: the accelerator that ``torch.accelerator`` finds when a loop
            begins, at its current index; without one the CPU.
        fields: What to make of entries of the batch on the device, in the structure of the batch:
            an `Image` for uint8 images, which are copied as bytes; a `Pad` for a `JaggedBatch`, to
            pad there; a `Stack` that casts. Entries without a field stay as they are. A device
            without pinfeed's kernels (anything but CUDA, or a pinfeed built without them) gets
            batches whose fields were applied on the CPU.
        prefetch: Maximum number of batches made ahead of the one in use; at least 1.

    A loop begins when its first batch is asked for, and starts a background thread. It takes
    batches from the loader and puts them on the device, through pinned memory that it reuses, on a
    stream of its own. A batch that you get is ready on your current stream. Small tensors of a
    batch share one copy, and one piece of memory. On the CPU nothing is copied: batches are the
    loader's, fetched ahead.

    - Batches keep their structure: dicts, tuples, NamedTuples, dataclasses, custom containers.
      Tensors move; objects with a ``.to`` (a PackedSequence, a graph) are asked to, when you take the
      batch; all else stays.
    - An error in the loader is raised as it is, with a note that says for which batch. ``next`` then
      goes on behind it, if the loader does.
    - Leaving a loop in any way ends the thread and drops what was fetched ahead: a generator has
      lost these batches. A loop over a generator that an earlier loop has used up raises RuntimeError.
    - ``len()`` and all attributes that you read are the loader's: ``.sampler``, ``.dataset``,
      ``.set_epoch``. Set attributes on ``.loader``.
    - Where the loader has a ``state_dict``, or its ``batch_sampler`` is one of pinfeed's, there is one
      here too, and a ``load_state_dict``. It is the state after the last batch that you got, whatever
      was fetched ahead by threads or workers. Load it before a loop begins, which then yields the
      batches that were left. An earlier loop over a loader with a state of its own, such as a
      ``StatefulDataLoader``, raises RuntimeError if it goes on. A list of the states of all ranks goes on
      with other ranks and workers, where the sampler or the stream does. A loader's own state that failed
      is an error when it is asked for, and while a loop's first batch is made, it isn't known: in a signal
      handler set a flag, and save after the batch.
    - A loop waits for the thread of the one before to leave the loader. Where the loader has one
      iterator for all (a generator, persistent workers), a second loop ends the first, which raises
      a RuntimeError when it goes on. Other loops run side by side, each with a thread of its own in
      the loader.
    - A loop belongs to the thread that began it. Threads may have a loop each, over a loader that
      allows several; ``stats()`` may be asked for from any.
    - An interrupt ends the loop: Ctrl-C, or whatever a signal handler raises.

    The loader runs in another thread, but for its ``iter`` and the first batch. It must not write
    again into a batch that it has handed out. Random numbers that it draws from a global generator
    (those of a dataset, without workers) mix with yours in no certain order; what a sampler draws
    at the start is in order. It sees your context variables, grad and inference mode, autocast and
    torch's default device, as they are when you ask for the first batch.

    It runs on CUDA devices, and is tested on one and on simulated devices that delay each copy as
    long as allowed. A device of type "mps", which has one stream, is served by plain ``.to`` in
    the thread.

    Raises:
        TypeError: ``loader`` is no iterable of batches, ``prefetch`` no integer, ``device`` no
            device; the fields hold one that takes no whole batches.
        ValueError: ``prefetch`` is less than 1; the fields normalize images that the loader's
            `Collate` pads as bytes, which changes the padding. When a loop begins: there is no
            such device.

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

    _feed: Feed | None
    _is_begun: bool  # whether a loop has begun

    @instead()
    def __init__(
        self,
        loader: Iterable[Any],
        device: torch.device | str | int | None = None,
        fields: Any = None,
        prefetch: int = 2,
    ) -> None:
        if not (isinstance(loader, Iterable) or hasattr(loader, "__getitem__")):
            raise TypeError(
                f"DeviceLoader: loader must be an iterable of batches, got {type(loader).__name__}"
            )
        if isinstance(loader, Dataset) and not isinstance(loader, Iterable):
            raise TypeError(
                f"DeviceLoader: loader must be an iterable of batches, got {type(loader).__name__}, a "
                "dataset of samples; give DataLoader(dataset, batch_size, collate_fn=Collate())"
            )
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

    def _begin(self, device: torch.device) -> Feed:
        """A loop begins: its first batch is asked for."""
        if not self._is_begun:
            _warn_if_not_split(self.loader)
        self._is_begun = True
        last = self._feed
        # Such a loader takes its workers away from an iteration that is under way.
        if last is not None and getattr(self.loader, "persistent_workers", False):
            last.supersede(_LATER_ONE)
        elif last is not None and last.is_closed:
            last.close(None)
        # In this thread, because worker processes and signal handlers want it so.
        source = iter(self.loader)
        if last is not None and last.source is source:
            last.supersede(_LATER_ONE)
        register_exit()  # again, so that it comes before what torch may just have registered
        take_state = getattr(self.loader, "state_dict", None)
        self._feed = Feed(source, take_state, self._transfer(device), self.prefetch)
        had_batches = last is not None and (last.goes_on or last.times.stats().batches > 0)
        self._feed.goes_on = source is self.loader and had_batches
        return self._feed

    def __getattr__(self, name: str) -> Any:
        if name == "loader" or name.startswith("__"):  # not there yet, while it is unpickled
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        own = {"state_dict": self._state_dict, "load_state_dict": self._load_state_dict}
        if name in own and self._counted is not None:
            return own[name]
        if name in own and not hasattr(self.loader, name):
            raise AttributeError(
                f"DeviceLoader: the {type(self.loader).__name__} has no {name}; take a StatefulDataLoader of "
                "torchdata, or a batch_sampler of pinfeed's, such as ShuffleSampler(dataset, batch_size)"
            )
        attribute = getattr(self.loader, name)
        return own.get(name, attribute)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OF_LOOPS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._plan = batch_plan(self.fields)
        self._feed = None
        self._is_begun = False

    def __repr__(self) -> str:
        return (
            f"DeviceLoader({self.loader!r}, device={self.device}, fields={self.fields!r}, "
            f"prefetch={self.prefetch})"
        )

    def stats(self) -> FeedStats:
        """What the iteration that began last has done so far, and what it waited for.

        Example:
            >>> import time
            >>> batches = pinfeed.DeviceLoader([torch.zeros(4)] * 3, device="cpu")
            >>> for batch in batches:
            ...     time.sleep(0.05)  # a training step
            >>> batches.stats().bottleneck
            'consumer'
        """
        return (FeedTimes() if self._feed is None else self._feed.times).stats()

    @property
    def is_in_loop(self) -> bool:
        """Whether the loop that began last is under way."""
        return self._feed is not None and not self._feed.is_closed

    # Found by __getattr__ if there is a state, so that hasattr() tells whether there is.

    @property
    def _counted(self) -> EpochSampler | None:
        """The sampler that has a state, where the loader itself has none."""
        sampler = getattr(self.loader, "batch_sampler", None)
        if isinstance(sampler, EpochSampler) and not hasattr(self.loader, "state_dict"):
            return sampler
        return None

    def _state_dict(self, ahead: int = 0) -> Any:
        """The state before the last batches, if so many were fetched ``ahead``."""
        feed, sampler = self._feed, self._counted
        if sampler is not None:
            if feed is None or (feed.is_closed and sampler.is_set):
                return sampler.state_dict()
            return sampler.state_after(feed.taken - ahead)
        if feed is not None and len(feed.states) > max(ahead, 1):
            state = feed.states[-1 - ahead]
            assert state is not None
            if state.error is not None:
                raise RuntimeError(
                    "DeviceLoader: the loader's state_dict() failed after the last batch: "
                    f"{type(state.error).__name__}: {state.error}"
                ) from state.error
            return state.value
        if feed is not None and feed.is_ahead:
            raise RuntimeError(
                "DeviceLoader: the loader is making the first batch of a loop, or those after it, and "
                "no state is known until you have that batch; in a signal handler set a flag, and save "
                "after the batch"
            )
        return self.loader.state_dict()  # type: ignore[attr-defined]

    def _load_state_dict(self, state: Any) -> None:
        feed = self._feed
        if feed is not None and (feed.is_closed or self._counted is None):
            # Its thread uses the loader, and asks it for states.
            feed.supersede("a state was loaded; begin a new loop after load_state_dict")
        stateful: Any = self.loader if self._counted is None else self._counted
        sampler, dataset = (
            getattr(self.loader, name, None) for name in ("batch_sampler", "dataset")
        )
        moving = sampler if isinstance(sampler, EpochSampler) else dataset
        choose = getattr(dataset, "state_of_this_rank", None)  # a stream has it
        if self._counted is None and (moving is sampler or choose is not None):
            workers = getattr(self.loader, "num_workers", 0)
            if not isinstance(state, list) and workers_of(state) not in (None, workers):
                state = [state]
            if isinstance(state, list) and choose is not None:
                state = choose(state, workers)
            if isinstance(state, list):
                stateful.load_state_dict({})  # a StatefulDataLoader forgets what it has begun
                stateful = moving
        stateful.load_state_dict(state)
        self._feed = None  # what an iteration under way still gets is of no interest

    def _transfer(self, device: torch.device) -> Transfer:
        if device.type == "cpu":
            return Transfer(self._plan)
        if not has_streams(device):
            return OneStreamTransfer(self._plan, device)
        return StreamTransfer(self._plan, Accelerator(device))


class DeviceIterator(Iterator[Any]):
    """One loop over a `DeviceLoader`, which begins with its first batch; closed when it is dropped.

    Frameworks take iterators that they ask for nothing, and to iterate over a loader with workers
    already begins an epoch.
    """

    def __init__(self, begin: Callable[[], Feed]) -> None:
        self._begin: Callable[[], Feed] | None = begin
        self._feed: Feed | None = None

    def __next__(self) -> Any:
        if self._begin is not None:
            feed = self._begin()
            self._close = weakref.finalize(self, feed.close)
            self._close.atexit = False  # the feed sees to that itself
            # Last: after an interrupt until here the loop has not begun.
            self._feed, self._begin = feed, None
        if self._feed is None:  # closed before it began
            raise StopIteration
        return self._feed.take()

    def close(self) -> None:
        """Ends the loop, as ``break`` does when nothing else holds the iterator."""
        self._begin = None
        if self._feed is not None:
            self._close()


def _checked_device(device: Any) -> torch.device:
    expected = "DeviceLoader: device must be a torch.device, or a string or an index that torch.device takes"
    try:
        return torch.device(device)
    except TypeError as error:
        raise TypeError(f"{expected}, got {device!r}; give fields by name: fields=...") from error
    except RuntimeError as error:
        raise ValueError(f"{expected}, got {device!r}: {str(error).splitlines()[0]}") from error


def _warn_if_not_split(loader: Any) -> None:
    """Warns of a DataLoader that gives every rank all samples.

    What accelerate and Lightning make of a DataLoader is split by them, and batch samplers of other
    kinds (`ShuffleSampler`) split by themselves.
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
            f"DataLoader's {type(sampler).__name__} knows nothing of ranks. Pass the DataLoader "
            "batch_sampler=pinfeed.samplers.ShuffleSampler(dataset, batch_size), or take pinfeed.from_numpy, which "
            "splits its rows; under accelerate, DeviceLoader(accelerator.prepare(loader))",
            stacklevel=4,
        )


def _available(device: torch.device | None) -> torch.device:
    """The device that is meant now, with its index; not initialized yet where that can be helped."""
    if device is not None and device.type == "cpu":
        return device
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        if accelerator is None:
            return torch.device("cpu")
        device = accelerator
    count = 0 if accelerator is None else torch.accelerator.device_count()
    if accelerator is None or device.type != accelerator.type or (device.index or 0) >= count:
        there = f"{count} of type {accelerator.type!r}" if accelerator else "no accelerator"
        raise ValueError(
            f"DeviceLoader: device {str(device)!r} is not available, torch finds {there}"
            f"{_why_unusable(device) if accelerator is None else ''}; "
            "leave device out to take what is there, or say 'cpu'"
        )
    if device.index is None:
        return torch.device(device.type, torch.accelerator.current_device_index())
    return device


def _why_unusable(device: torch.device) -> str:
    """What torch says itself: there is no driver, or one too old for it, or it is built without."""
    try:
        torch.empty(0, device=device)
    except Exception as error:  # noqa: BLE001, of any kind
        return f" ({str(error).strip().splitlines()[0].partition('. ')[0]})"
    return ""
