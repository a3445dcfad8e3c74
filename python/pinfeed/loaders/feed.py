"""A loader that a background thread runs ahead of its consumer."""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import os
import queue
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from pinfeed.loaders.modes import modes_here
from pinfeed.loaders.snapshots import LoaderState, Snapshots
from pinfeed.loaders.stats import Activity, Journal
from pinfeed.loaders.transfer import InFlight, Transfer
from pinfeed.loaders.turns import Turns
from pinfeed.optional import add_note

# How long closing waits for a loader that is busy; the thread ends when the loader returns.
_SECONDS_TO_CLOSE = 1.0
_SECONDS_TO_EXIT = 5.0
# How often a consumer that waits looks whether the thread is still there.
_SECONDS_TO_CHECK = 1.0


@dataclass(slots=True)
class _Item:
    """What came of asking the loader once.

    Attributes:
        number: How often it was asked before.
        batch: What it returned.
        sent: The same on its way.
        error: What was raised instead.
        state: Of the loader, after that; None if it has none.
        is_end: Whether there was nothing left.
    """

    number: int
    batch: Any = None
    sent: InFlight | None = None
    error: BaseException | None = None
    state: LoaderState | None = None
    is_end: bool = False


class Feed:
    """One iteration over a loader: its iterator, the thread that runs it, what it has fetched.

    The first batch is fetched in the consumer's thread, so that what a loader does first (drawing a
    seed from the global generator, say) happens when it would in a plain loop. So is the one after
    an error, for an error ends the thread.

    The thread knows the feed, but not the iterator that the consumer has. When that goes, the feed
    is closed.

    Args:
        source: The loader's iterator.
        turns: At the loader; all iterations over it share them.
        transfer: The way of the batches.
        snapshots: Takes the loader's states; None if it has none.
        depth: How many batches may be ahead of the consumer.
        journal: Where the iteration is recorded.
    """

    def __init__(
        self,
        source: Iterator[Any],
        turns: Turns,
        transfer: Transfer,
        snapshots: Snapshots | None,
        depth: int,
        journal: Journal,
    ) -> None:
        self.source: Iterator[Any] | None = source
        self._turns = turns
        self._transfer = transfer
        self._snapshots = snapshots
        self._journal = journal
        self._asked = 0
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_superseded = False
        self._process = os.getpid()
        self._pending: _Item | None = None  # what a thread that didn't start was to begin with
        self._last: _Item | None = None  # the end, or an error, until it is put to the items
        # Of all queues this is the one that finalizers may use whatever they interrupt, and that an
        # interrupted consumer leaves as it was.
        self._items: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        # One for each time that the thread may ask the loader. Consumers first put one and then
        # wait, so an interrupt in between can't leave both sides waiting.
        self._permits: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(depth):
            self._permits.put(None)

    def take(self) -> Any:
        """The next batch, for the consumer.

        Raises:
            StopIteration: There is none, or the feed was closed.
            RuntimeError: A later iteration took the loader's iterator over.
            BaseException: What the loader raised, or what its batch caused on its way.
        """
        if self._is_closed:
            raise self._why_closed()
        if self._thread is None:
            item = self._start()
        else:
            self._permits.put(None)
            item = self._next_item()
        if item.is_end:
            if item.state is not None:  # or the end is but that of the feed
                self._journal.state = item.state
            self.close()
            raise self._why_closed()
        if item.error is not None:
            self._join(None)
            self._thread = None
            self._journal.is_ahead = False
            error = item.error
            del item
            try:
                raise error
            finally:
                del error  # it knows this frame
        assert item.sent is not None
        self._journal.count(item.sent.size)
        self._journal.state = item.state
        try:
            return self._transfer.receive(item.sent)
        except BaseException as error:
            add_note(error, f"DeviceLoader: raised while batch {item.number} was handed over")
            raise

    def supersede(self) -> None:
        """Closes the feed because another one has its source now."""
        self._is_superseded = True
        self.close(0)

    def close(self, seconds: float = _SECONDS_TO_CLOSE) -> None:
        """Ends the thread, as soon as the loader lets it, and drops what it has fetched.

        Args:
            seconds: How long to wait for that.
        """
        self._is_closed = True
        self._pending = None
        self._permits.put(None)
        self._join(seconds)
        if self._thread is None or not self._thread.is_alive():
            self.source = None
        try:
            while True:
                self._items.get_nowait()
        except queue.Empty:
            self._items.put(_Item(self._asked, is_end=True))  # for whoever still waits

    def _join(self, seconds: float | None) -> None:
        thread = self._thread
        # A garbage collection may run a finalizer in the very thread.
        if thread is None or thread is threading.current_thread():
            return
        with contextlib.suppress(RuntimeError):  # interrupted while it was started: it will end
            thread.join(seconds)

    def _why_closed(self) -> Exception:
        if not self._is_superseded:
            return StopIteration()
        return RuntimeError(
            "DeviceLoader: this iteration ended when a later one began, since the loader has one "
            "iterator for all (a generator, or persistent workers); finish or drop one first"
        )

    def _why_too_short(self) -> Exception:
        skipped, left = self._journal.skipped, self._journal.to_skip
        self._journal.to_skip = 0  # it is said once, and then the iteration is at its end
        return ValueError(
            f"DeviceLoader: the state has {skipped + left} batches_since its snapshot, but the loader "
            f"made only {skipped} after that; a state continues the same data only"
        )

    def _start(self) -> _Item:
        """Asks the loader, and if it has a batch, starts the thread with that."""
        self._journal.is_ahead = True
        item = self._ask() if self._pending is None else self._pending
        if item is None:
            self._journal.begin(None)
            self._put_last()
            return self._items.get()
        self._pending = None
        first = [item]
        del item
        self._thread = threading.Thread(
            target=contextvars.copy_context().run,
            args=(self._run, first, [self._transfer.as_here(), *modes_here()]),
            name="pinfeed",
            daemon=True,  # or a loader that never returns would keep the process from ending
        )
        _running.add(self)
        try:
            self._thread.start()
        except BaseException:  # no more threads; or an interrupt, and it may have started or not
            with contextlib.suppress(IndexError):
                self._pending = first.pop()  # whoever is first has the batch
                self._thread = None
            raise
        return self._next_item()

    def _next_item(self) -> _Item:
        while True:
            try:
                return self._items.get(timeout=_SECONDS_TO_CHECK)
            except queue.Empty:
                if self._thread is not None and self._thread.is_alive():
                    continue
            if os.getpid() != self._process:
                raise RuntimeError(
                    "DeviceLoader: a forked process has no thread for this iteration; "
                    "begin one of its own there"
                )
            if not self._items.empty():  # since then
                continue
            return self._start()  # an interrupt took the thread's last word with it

    # An error knows the frames that it came through, and they all that it was ever called. Were it
    # in a variable of theirs, only a garbage collection could free it, them, and a loader's workers.

    def _put_last(self) -> None:
        assert self._last is not None
        self._items.put(self._last)
        self._last = None

    def _run(self, first: list[_Item], here: list[AbstractContextManager[Any]]) -> None:
        """What the thread does."""
        # OpenMP has a number of threads of its own in each thread, all CPUs to begin with. Asked for
        # it, torch sets it to what set_num_threads said; else a product of two matrices may not.
        torch.get_num_threads()
        try:
            with contextlib.ExitStack() as stack:
                for mode in here:  # once, rather than for every batch
                    stack.enter_context(mode)
                if not self._work(first):
                    return
        except BaseException as error:  # noqa: BLE001, it is the consumer's
            self._last = _Item(self._asked, error=error)
        self._journal.begin(None)
        try:
            self._transfer.close()
        except BaseException as error:  # noqa: BLE001, the device failed
            self._last = _Item(self._asked, error=error)
        if self._is_closed:  # nobody asks any more
            self._last = _Item(self._asked, is_end=True)
        if self._last is not None and self._last.is_end:
            self.source = None
        self._put_last()

    def _work(self, first: list[_Item]) -> bool:
        """Passes batches on until there is none, an error, or the feed is closed.

        Args:
            first: The batch to begin with, if it is still there.

        Returns:
            Whether it was. The start of a thread can be interrupted, and made up for by another.
        """
        try:
            item: _Item | None = first.pop()
        except IndexError:
            return False
        while item is not None:
            self._journal.begin(Activity.COPYING)
            try:
                item.sent = self._transfer.send(item.batch)
            except BaseException as error:  # noqa: BLE001, it is the consumer's
                # Who keeps the error shall not keep the device's memory with it.
                traceback.clear_frames(error.__traceback__)
                add_note(
                    error, f"DeviceLoader: raised while batch {item.number} was moved to the device"
                )
                self._last = _Item(item.number, error=error)
                return True
            item.batch = None
            self._journal.begin(Activity.WAITING)
            self._items.put(item)
            del item  # or it would live on here for as long as the next one takes
            self._permits.get()
            item = self._ask()
        return True

    def _ask(self) -> _Item | None:
        """Asks the loader for a batch; if there is none, ``_last`` says why."""
        self._journal.begin(Activity.LOADING)
        item = _Item(self._asked)
        try:
            with self._turns.lock:
                if self._is_closed or self.source is None:
                    self._last = _Item(self._asked, is_end=True)
                    return None
                self._asked += 1
                try:
                    while self._journal.to_skip:
                        next(self.source)
                        self._journal.to_skip -= 1
                        self._journal.skipped += 1
                    item.batch = next(self.source)
                except StopIteration:
                    if self._journal.to_skip:
                        self._last = _Item(item.number, error=self._why_too_short())
                        return None
                    item.is_end = True
                if self._snapshots is not None:
                    item.state = self._snapshots.after_batch(item.is_end)
        except BaseException as error:  # noqa: BLE001, it is the consumer's
            add_note(
                error,
                f"DeviceLoader: raised by the loader for batch {item.number} of this iteration, "
                "counted from 0",
            )
            self._last = _Item(item.number, error=error)
            return None
        if item.is_end:
            self._last = item
            return None
        return item


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
