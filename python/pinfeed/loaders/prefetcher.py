"""`Prefetcher`: a background thread that prefetches the batches of a loader."""

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

from pinfeed.imports import add_note
from pinfeed.loaders.stats import Activity, LoopTimes
from pinfeed.loaders.transfer import InFlight, Transfer

# How long closing waits for a busy loader; the thread ends when the loader returns.
_SECONDS_TO_CLOSE = 1.0
_SECONDS_TO_EXIT = 5.0


class LoaderState(NamedTuple):
    """The result of a loader's ``state_dict`` after a batch, or its error."""

    value: Any = None
    error: Exception | None = None


class _Fetched(NamedTuple):
    """The result of one ``next`` of the loader: a batch, an error, or neither at the end."""

    number: int
    sent: InFlight | None = None
    error: BaseException | None = None
    state: LoaderState | None = None


class Prefetcher:
    """One iteration over a loader: its iterator, its thread, and the queue of prefetched batches.

    The first batch is fetched in the consumer's thread, so that the loader's first actions (such as
    drawing a seed from the global generator) happen at the same time as in a plain loop. So is the batch
    after an error, because an error ends the thread.

    The thread references the prefetcher, but not the consumer's iterator. When the iterator is freed, the
    prefetcher is closed.

    Attributes:
        source: The loader's iterator, until the end.
        times: Times of the iteration, by activity.
        states: The loader's last few states: at the beginning, after each batch that the consumer took,
            or at the end. None if the loader has no state.
        position: Number of batches that the consumer took, including failed ones and the end, but not one
            that was interrupted.
        is_continued: Whether an earlier loop took batches of the same iterator, which is the loader itself.
        is_closed: Whether the consumer gets no more batches.
        is_ahead: Whether the loader may be ahead of the consumer.
    """

    def __init__(
        self,
        source: Iterator[Any],
        take_state: Callable[[], Any] | None,
        transfer: Transfer,
        prefetch: int,
    ) -> None:
        self.source: Iterator[Any] | None = source
        self.times = LoopTimes()
        # Lightning prefetches a batch, and needs the state before it.
        self.states: collections.deque[LoaderState | None] = collections.deque(maxlen=3)
        self.is_ahead = False
        self.is_continued = False
        self.position = 0
        self._take_state = take_state
        self._transfer = transfer
        self._requested = 0
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self.is_closed = False
        self._superseded_by: str | None = None
        # SimpleQueue is reentrant, so finalizers may use it, and an interrupt leaves it intact.
        self._items: queue.SimpleQueue[_Fetched] = queue.SimpleQueue()
        # One permit per batch that the thread may fetch.
        self._permits: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(prefetch):
            self._permits.put(None)
        self.states.append(self._state_now())

    def take(self) -> Any:
        """Returns the next batch to the consumer.

        Raises errors of the loader or the transfer, StopIteration at the end or if this is closed,
        and RuntimeError if a later iteration has taken over the loader's iterator.
        """
        if self.is_closed:
            raise self._why_closed()
        start = time.perf_counter()
        try:
            item = self._next_item()
        except BaseException:  # an interrupt, or the thread limit
            self.close()
            raise
        finally:
            self.times.waited += time.perf_counter() - start
        if item.state is not None:
            self.states.append(item.state)
        if not self.is_closed and (item.error is None or isinstance(item.error, Exception)):
            self.position = item.number + 1
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
                del error  # it references this frame
        if item.sent is None:
            self.close()
            if self.is_continued and self.position == 1:  # the end
                raise RuntimeError(
                    "DeviceLoader: the loader is an iterator, and an earlier loop has exhausted it; pass an "
                    "iterable that creates a new iterator for each loop: a DataLoader, a list, or an object "
                    "whose __iter__ is a generator"
                )
            raise self._why_closed()
        self.times.count(item.sent.size)
        try:
            return self._transfer.receive(item.sent)
        except BaseException as error:
            add_note(
                error, f"DeviceLoader: raised while batch {item.number} was passed to the loop"
            )
            raise

    def supersede(self, cause: str) -> None:
        """Closes because of another use of the loader; waits until the thread no longer uses the loader."""
        if not self.is_closed:
            self._superseded_by = cause
        self.close(None)

    def close(self, seconds: float | None = _SECONDS_TO_CLOSE) -> None:
        """Ends the thread as soon as the loader returns, and drops prefetched batches.

        Waits at most this many seconds; None waits indefinitely.
        """
        self.is_closed = True
        self._permits.put(None)
        self._join(seconds)
        if self._thread is None or not self._thread.is_alive():
            self.source = None
        with contextlib.suppress(queue.Empty):
            while True:
                self._items.get_nowait()
        self._items.put(_Fetched(self._requested))  # for a waiting consumer

    def _next_item(self) -> _Fetched:
        if self._thread is None:
            self.is_ahead = True
            if self._fetch_next():
                self._start_thread()
        elif os.getpid() != self._process:
            raise RuntimeError(
                "DeviceLoader: a forked process has no thread for this loop; begin a new loop there"
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
            daemon=True,  # so that a loader that never returns doesn't block the process's exit
        )
        _running.add(self)
        self._thread.start()

    def _run(self, modes: list[AbstractContextManager[Any]]) -> None:
        """Runs in the thread."""
        # OpenMP has a thread count per thread, initially all CPUs. This call sets it to the value of
        # torch.set_num_threads; otherwise some operations ignore that value.
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
        except BaseException as error:  # noqa: BLE001, the consumer raises it
            self._put_last(_Fetched(self._requested, error=error))
        if self.is_closed:  # without a consumer
            self._put_last(_Fetched(self._requested))

    # An error references its frames. If a local variable of such a frame kept the error, only a garbage
    # collection could free the cycle, and with it a loader's workers.

    def _fetch_next(self) -> bool:
        """Fetches a batch and starts its transfer; returns whether there was one."""
        number = self._requested
        self._requested += 1
        self.times.begin(Activity.LOADING)
        try:
            assert self.source is not None
            batch = next(self.source)
            state = self._state_now()
        except StopIteration:
            self._put_last(_Fetched(number, state=self._state_now()))
            return False
        except BaseException as error:  # noqa: BLE001, the consumer raises it
            add_note(
                error,
                f"DeviceLoader: raised by the loader for batch {number} of this loop, "
                "counted from 0",
            )
            self._put_last(_Fetched(number, error=error))
            return False
        self.times.begin(Activity.COPYING)
        try:
            transfer = self._transfer.send(batch)
        except BaseException as error:  # noqa: BLE001, the consumer raises it
            # Storing the error must not hold device memory.
            traceback.clear_frames(error.__traceback__)
            add_note(error, f"DeviceLoader: raised while batch {number} was moved to the device")
            self._put_last(_Fetched(number, error=error))
            return False
        self._items.put(_Fetched(number, transfer, state=state))
        return True

    def _put_last(self, item: _Fetched) -> None:
        """Queues the end or an error, after freeing memory."""
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
        except Exception as error:  # noqa: BLE001, state_dict raises it
            return LoaderState(error=error.with_traceback(None))

    def _join(self, seconds: float | None) -> None:
        thread = self._thread
        # A garbage collection may run a finalizer in this same thread.
        if thread is not None and thread is not threading.current_thread() and thread.is_alive():
            thread.join(seconds)

    def _why_closed(self) -> Exception:
        if self._superseded_by is None:
            return StopIteration()
        return RuntimeError(f"DeviceLoader: this loop ended when {self._superseded_by}")


def _modes_here() -> list[AbstractContextManager[Any]]:
    """Returns context managers that set this thread's torch modes in another thread, in order.

    torch stores these modes per thread, and a new thread begins without them.
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
    if device.type != "cpu":  # the default of a new thread; the mode adds overhead
        modes.append(device)
    return modes


_running: weakref.WeakSet[Prefetcher] = weakref.WeakSet()


def close_all() -> None:
    """Ends all threads when the process exits.

    A thread in native code at interpreter shutdown can crash the process, and a thread that holds a
    DataLoader's iterator can keep its workers alive.
    """
    feeds = list(_running)
    for prefetcher in feeds:
        prefetcher.close(0)
    deadline = time.monotonic() + _SECONDS_TO_EXIT
    for prefetcher in feeds:
        prefetcher.close(max(0.0, deadline - time.monotonic()))


def register_exit() -> None:
    """Registers `close_all` to run before all exit handlers registered so far.

    The handlers of multiprocessing and torch end workers that a thread may be waiting for.
    """
    atexit.unregister(close_all)
    atexit.register(close_all)


register_exit()
