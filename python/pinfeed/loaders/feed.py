"""A loader that a background thread runs ahead of its consumer."""

from __future__ import annotations

import atexit
import collections
import contextlib
import contextvars
import os
import queue
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch

from pinfeed.loaders.stats import Activity, FeedTimes
from pinfeed.loaders.transfer import InFlight, Transfer
from pinfeed.optional import add_note

# How long closing waits for a loader that is busy; the thread ends when the loader returns.
_SECONDS_TO_CLOSE = 1.0
_SECONDS_TO_EXIT = 5.0


class LoaderState(NamedTuple):
    """What a loader's ``state_dict`` returned after a batch, or the error that it raised."""

    value: Any = None
    error: Exception | None = None


class _Fetched(NamedTuple):
    """What came of asking the loader once: a batch, an error, or neither at the end."""

    number: int
    sent: InFlight | None = None
    error: BaseException | None = None
    state: LoaderState | None = None


class Feed:
    """One iteration over a loader: its iterator, the thread that runs it, what it has fetched.

    The first batch is fetched in the consumer's thread, so that what a loader does first (drawing a
    seed from the global generator, say) happens when it would in a plain loop. So is the one after
    an error, for an error ends the thread.

    The thread knows the feed, but not the iterator that the consumer has. When that goes, the feed
    is closed.

    Attributes:
        source: The loader's iterator, until the end.
        times: Where the time of the iteration goes.
        states: The loader's: that of the beginning, and then after each batch that was handed over, or
            at the end; the last few of them. None if the loader has no state.
        taken: How many batches were handed over, failed ones included; the end counts like one.
        goes_on: Whether an earlier loop had batches of the same iterator, which is the loader itself.
        is_closed: Whether no more batches are handed over.
        is_ahead: Whether the loader may be at a batch that wasn't handed over.
    """

    def __init__(
        self,
        source: Iterator[Any],
        take_state: Callable[[], Any] | None,
        transfer: Transfer,
        prefetch: int,
    ) -> None:
        self.source: Iterator[Any] | None = source
        self.times = FeedTimes()
        # Lightning fetches a batch ahead, and wants the state before it.
        self.states: collections.deque[LoaderState | None] = collections.deque(maxlen=3)
        self.is_ahead = False
        self.goes_on = False
        self.taken = 0
        self._take_state = take_state
        self._transfer = transfer
        self._asked = 0
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self.is_closed = False
        self._superseded_by: str | None = None
        # Of all queues this is the one that finalizers may use whatever they interrupt, and that an
        # interrupted consumer leaves as it was.
        self._items: queue.SimpleQueue[_Fetched] = queue.SimpleQueue()
        # One for each time that the thread may ask the loader.
        self._permits: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(prefetch):
            self._permits.put(None)
        self.states.append(self._state_now())

    def take(self) -> Any:
        """The next batch, for the consumer.

        Raises what the loader raised, or the batch caused on its way; StopIteration behind the last one,
        or once the feed is closed; a RuntimeError if a later iteration took the loader's iterator over.
        """
        if self.is_closed:
            raise self._why_closed()
        asked = time.perf_counter()
        try:
            item = self._next_item()
        except BaseException:  # an interrupt, or there are no more threads
            self.close()
            raise
        finally:
            self.times.waited += time.perf_counter() - asked
        if item.state is not None:
            self.states.append(item.state)
        if not self.is_closed:
            self.taken = item.number + 1
        if item.error is not None:
            self._join(None)
            self._thread = None
            self.is_ahead = False
            error = item.error
            del item
            if not isinstance(error, Exception):  # an interrupt too
                self.close()
            try:
                raise error
            finally:
                del error  # it knows this frame
        if item.sent is None:
            self.close()
            if self.goes_on and self.taken == 1:  # the end
                raise RuntimeError(
                    "DeviceLoader: the loader is an iterator, and an earlier loop has used it up; pass what "
                    "makes a new one for each loop: a DataLoader, a list, or an object whose __iter__ is a "
                    "generator"
                )
            raise self._why_closed()
        self.times.count(item.sent.size)
        try:
            return self._transfer.receive(item.sent)
        except BaseException as error:
            add_note(error, f"DeviceLoader: raised while batch {item.number} was handed over")
            raise

    def supersede(self, cause: str) -> None:
        """Closes the feed because of something else that needs the loader, once the thread has left that."""
        if not self.is_closed:
            self._superseded_by = cause
        self.close(None)

    def close(self, seconds: float | None = _SECONDS_TO_CLOSE) -> None:
        """Ends the thread, as soon as the loader lets it, and drops what it has fetched.

        It waits so many seconds for that, and with None as long as it takes.
        """
        self.is_closed = True
        self._permits.put(None)
        self._join(seconds)
        if self._thread is None or not self._thread.is_alive():
            self.source = None
        with contextlib.suppress(queue.Empty):
            while True:
                self._items.get_nowait()
        self._items.put(_Fetched(self._asked))  # for whoever still waits

    def _next_item(self) -> _Fetched:
        if self._thread is None:
            self.is_ahead = True
            if self._fetch_next():
                self._start_thread()
        elif os.getpid() != self._process:
            raise RuntimeError(
                "DeviceLoader: a forked process has no thread for this iteration; "
                "begin one of its own there"
            )
        else:
            self._permits.put(None)
        return self._items.get()

    def _start_thread(self) -> None:
        self._process = os.getpid()
        self._thread = threading.Thread(
            target=contextvars.copy_context().run,
            args=(self._run, [self._transfer.as_here(), *_modes_here()]),
            name="pinfeed",
            daemon=True,  # or a loader that never returns would keep the process from ending
        )
        _running.add(self)
        self._thread.start()

    def _run(self, modes: list[AbstractContextManager[Any]]) -> None:
        """What the thread does."""
        # OpenMP has a number of threads of its own in each thread, all CPUs to begin with. Asked for
        # it, torch sets it to what set_num_threads said; else a product of two matrices may not.
        torch.get_num_threads()
        try:
            with contextlib.ExitStack() as stack:
                for mode in modes:  # once, rather than for every batch
                    stack.enter_context(mode)
                self.times.begin(Activity.WAITING)
                self._permits.get()
                while not self.is_closed and self._fetch_next():
                    self.times.begin(Activity.WAITING)
                    self._permits.get()
        except BaseException as error:  # noqa: BLE001, it is the consumer's
            self._put_last(_Fetched(self._asked, error=error))
        if self.is_closed:  # nobody asks any more
            self._put_last(_Fetched(self._asked))

    # An error knows the frames that it came through, and they all that it was ever called. Were it
    # in a variable of theirs, only a garbage collection could free it, them, and a loader's workers.

    def _fetch_next(self) -> bool:
        """Asks the loader for a batch and sends it on its way; returns whether there was one."""
        number = self._asked
        self._asked += 1
        self.times.begin(Activity.LOADING)
        try:
            assert self.source is not None
            batch = next(self.source)
            state = self._state_now()
        except StopIteration:
            self._put_last(_Fetched(number, state=self._state_now()))
            return False
        except BaseException as error:  # noqa: BLE001, it is the consumer's
            add_note(
                error,
                f"DeviceLoader: raised by the loader for batch {number} of this iteration, "
                "counted from 0",
            )
            self._put_last(_Fetched(number, error=error))
            return False
        self.times.begin(Activity.COPYING)
        try:
            sent = self._transfer.send(batch)
        except BaseException as error:  # noqa: BLE001, it is the consumer's
            # Who keeps the error shall not keep the device's memory with it.
            traceback.clear_frames(error.__traceback__)
            add_note(error, f"DeviceLoader: raised while batch {number} was moved to the device")
            self._put_last(_Fetched(number, error=error))
            return False
        self._items.put(_Fetched(number, sent, state=state))
        return True

    def _put_last(self, item: _Fetched) -> None:
        """Puts an end or an error, once no memory is in use any more."""
        self.times.begin(None)
        if item.error is None:
            self.source = None
        try:
            self._transfer.close()
        except BaseException as error:  # noqa: BLE001, the device failed
            item = _Fetched(item.number, error=error)
        self._items.put(item)

    def _state_now(self) -> LoaderState | None:
        if self._take_state is None:
            return None
        try:
            return LoaderState(self._take_state())
        except Exception as error:  # noqa: BLE001, for whoever asks for the state
            return LoaderState(error=error.with_traceback(None))

    def _join(self, seconds: float | None) -> None:
        thread = self._thread
        # A garbage collection may run a finalizer in the very thread.
        if thread is not None and thread is not threading.current_thread() and thread.is_alive():
            thread.join(seconds)

    def _why_closed(self) -> Exception:
        if self._superseded_by is None:
            return StopIteration()
        return RuntimeError(f"DeviceLoader: this iteration ended when {self._superseded_by}")


def _modes_here() -> list[AbstractContextManager[Any]]:
    """What another thread enters, in this order, to compute as this one does now.

    torch knows these modes of each thread by itself, and a new thread begins without.
    """
    modes: list[AbstractContextManager[Any]] = [
        torch.inference_mode(torch.is_inference_mode_enabled()),
        torch.enable_grad() if torch.is_grad_enabled() else torch.no_grad(),
    ]
    accelerator = torch.accelerator.current_accelerator()
    for kind in ("cpu",) if accelerator is None else ("cpu", accelerator.type):
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
            cache = torch.is_autocast_cache_enabled()
            modes.append(torch.autocast(kind, dtype, cache_enabled=cache))
    device = torch.get_default_device()
    if device.type != "cpu":  # which is any thread's to begin with; the mode has its price
        modes.append(device)
    return modes


_running: weakref.WeakSet[Feed] = weakref.WeakSet()


def close_all() -> None:
    """Ends all threads, at the end of the process.

    A thread that Python's end finds in native code could bring the process down with it, and one
    that holds the workers of a DataLoader could keep them.
    """
    feeds = list(_running)
    for feed in feeds:
        feed.close(0)
    deadline = time.monotonic() + _SECONDS_TO_EXIT
    for feed in feeds:
        feed.close(max(0.0, deadline - time.monotonic()))


def register_exit() -> None:
    """Has `close_all` called before anything that was registered earlier.

    Of multiprocessing and torch, that is, which end the workers that a thread may be waiting for.
    """
    atexit.unregister(close_all)
    atexit.register(close_all)


register_exit()
