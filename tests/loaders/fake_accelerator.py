"""A device in host memory, whose streams work as late as possible.

Work on a stream runs only when something waits for it. Freed memory is overwritten immediately, unless a
stream that uses it is behind. So the results show memory that is written, reused or released too early.
"""

import ctypes
import threading
import weakref
from collections import deque

import numpy as np
import torch

POISON = 0xA5
_lock = threading.RLock()  # of all streams and all memory


class FakeStream:
    """A queue of work."""

    def __init__(self, accelerator):
        self._accelerator = accelerator
        self._work = deque()
        self.submitted = 0  # pieces of work
        self.done = 0

    def put(self, work):
        with _lock:
            self._work.append(work)
            self.submitted += 1
        if self._accelerator.is_eager:
            self.run()

    def run(self, until=None):
        """Runs the work up to that piece, or all of it."""
        with _lock:
            while self._work and (until is None or self.done < until):
                self._work.popleft()()
                self.done += 1

    def wait_event(self, event):
        self.put(event.synchronize)

    def __enter__(self):
        self._accelerator.streams().append(self)

    def __exit__(self, *_):
        assert self._accelerator.streams().pop() is self


class FakeEvent:
    """A position in a stream's work."""

    def __init__(self, stream):
        self._stream = stream
        self._position = stream.submitted

    def synchronize(self):
        self._stream.run(self._position)


class _Array(np.ndarray):
    """An ndarray whose end can be observed."""


class _Memory:
    """Memory that is never unmapped, so that stale addresses don't crash the tests.

    Args:
        stream: The stream that uses new allocations first.
    """

    def __init__(self, stream):
        self.pieces = []  # never freed
        self.used = {}  # address: size
        self.users = {}  # by address
        self._stream = stream

    def allocate(self, size):
        piece = np.full(size, POISON, np.uint8)
        array = piece.view(_Array)
        address = piece.ctypes.data
        with _lock:
            self.pieces.append(piece)
            self.used[address] = size
            self.users[address] = set()
        weakref.finalize(array, self._free, address, piece)
        return torch.from_numpy(array)

    def has(self, tensor):
        return tensor.untyped_storage().data_ptr() in self.used

    def _free(self, address, piece):
        with _lock:
            del self.used[address]
            for stream in self.users.pop(address):
                if stream.done < stream.submitted:  # it may be using it
                    return
        if self._stream is None:
            piece.fill(POISON)
        else:
            self._stream.put(lambda: piece.fill(POISON))


class FakeAccelerator:
    """Replaces `pinfeed.memory.staging.Accelerator`.

    Args:
        is_eager: Run all work immediately.

    Attributes:
        default: The initial stream of each thread.
        capacity: Device memory in bytes; more raises OutOfMemoryError. None: no limit.
        pinned_left: Number of pinned allocations that still succeed. None: all.
        pinned_sizes: Sizes of the successful pinned allocations.
        copied: Size of each started copy.
    """

    device = torch.device("cpu")

    def __init__(self, is_eager=False):
        self.is_eager = is_eager
        self.copies = FakeStream(self)
        self.default = FakeStream(self)
        self.capacity = None
        self.pinned_left = None
        self.pinned_sizes = []
        self.copied = []
        self.memory = _Memory(self.copies)
        self._host = _Memory(None)
        self._threads = threading.local()

    @property
    def used_bytes(self):
        """Returns the used device memory."""
        with _lock:
            return sum(self.memory.used.values())

    @property
    def pinned_bytes(self):
        """Returns the used pinned memory."""
        with _lock:
            return sum(self._host.used.values())

    def streams(self):
        """Returns the streams that this thread has entered."""
        if not hasattr(self._threads, "streams"):
            self._threads.streams = [self.default]
        return self._threads.streams

    def current_stream(self):
        return self.streams()[-1]

    def as_here(self):
        return self.current_stream()

    def record(self, stream):
        return FakeEvent(stream)

    def pinned(self, size):
        if self.pinned_left is not None:
            if self.pinned_left == 0:
                raise RuntimeError("CUDA error: out of memory")
            self.pinned_left -= 1
        self.pinned_sizes.append(size)
        return self._host.allocate(size)

    def is_pinned(self, tensor):
        return self._host.has(tensor)

    def empty(self, shape, strides, dtype):
        size = int(np.prod(shape)) * dtype.itemsize
        if size == 0:
            return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
        if self.capacity is not None and self.used_bytes + size > self.capacity:
            raise torch.OutOfMemoryError(f"tried to allocate {size} bytes")
        return self.memory.allocate(size).view(dtype).as_strided(shape, strides)

    def copy(self, target, source):
        assert self.current_stream() is self.copies
        assert target.stride() == source.stride()  # or it is more than a byte copy
        is_fetched = self._host.has(target)  # a tensor that a test treats as a device tensor
        assert is_fetched or self.memory.has(target)
        self.copied.append(source.nbytes)
        to, of = _bytes_at(target), _bytes_at(source)
        if not (is_fetched or self.is_pinned(source)):
            of = of.copy()  # drivers copy pageable memory immediately
        self.copies.put(lambda: np.copyto(to, of))

    def keep_for(self, tensor, stream):
        if self.memory.has(tensor):
            with _lock:
                self.memory.users[tensor.untyped_storage().data_ptr()].add(stream)

    def is_on_device(self, tensor):
        return self.memory.has(tensor)


def _bytes_at(tensor):
    """Returns the tensor's device memory by address, which keeps nothing alive."""
    buffer = (ctypes.c_uint8 * tensor.nbytes).from_address(tensor.data_ptr())
    return np.frombuffer(buffer, np.uint8)
