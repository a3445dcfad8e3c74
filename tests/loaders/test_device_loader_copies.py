"""Copies of DeviceLoader, on a fake device that works as late as possible."""

import collections
import dataclasses
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader

import pinfeed
from fake_accelerator import POISON, FakeAccelerator, FakeStream
from pinfeed import Image
from pinfeed.collation.checked_fields import batch_plan
from pinfeed.functional.torch_ops import has_kernels
from pinfeed.loaders import device_loader, transfer
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.loaders.transfer import tensors_in
from pinfeed.memory import outputs, staging
from samples import STRUCTURES, MarkedTensor, assert_same, bits, random_tensor

KIB = 1024
LARGE = (40, KIB)  # of float32: more than a small entry
late_only = pytest.mark.parametrize("is_eager", [False])


@pytest.fixture(params=[False, True], ids=["late", "eager"])
def is_eager(request):
    return request.param


@pytest.fixture
def fake(monkeypatch, is_eager):
    accelerator = FakeAccelerator(is_eager)
    monkeypatch.setattr(device_loader, "_available", lambda _: torch.device("meta"))
    monkeypatch.setattr(device_loader, "Accelerator", lambda _: accelerator)
    monkeypatch.setattr(device_loader, "has_streams", lambda _: True)
    monkeypatch.setattr(outputs, "_is_refused", False)
    return accelerator


def arrived(fake, batch):
    """Returns the batch as the consumer's stream sees it."""
    fake.current_stream().run()
    return batch


def batch_of(number):
    return {
        "image": torch.full(LARGE, number, dtype=torch.float32),
        "label": torch.full((7,), number),
        "weight": torch.full((3, 2), number, dtype=torch.float64),
        "name": f"batch {number}",
    }


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_batches_arrive_and_stay_unchanged(fake, depth):
    expected = [batch_of(i) for i in range(12)]
    batches = DeviceLoader(expected, prefetch=depth)
    for _ in range(2):
        batches_on_device = []
        for batch, expected_batch in zip(batches, expected, strict=True):
            assert_same(arrived(fake, batch), expected_batch)
            assert all(fake.is_on_device(batch[name]) for name in ("image", "label", "weight"))
            batches_on_device.append(batch)
        assert_same(arrived(fake, batches_on_device), expected)


@late_only
def test_a_batch_is_ready_only_after_its_event(fake):
    batches = iter(DeviceLoader([batch_of(1), batch_of(2)], prefetch=1))
    batch = next(batches)
    assert bits(batch["label"]) == bytes([POISON]) * batch["label"].nbytes
    assert_same(arrived(fake, batch), batch_of(1))


class Loss:
    """A consumer's stream computes with a batch that the consumer has already released."""

    def __init__(self, fake):
        self.values = []
        self._fake = fake

    def add(self, batch):
        address, count = batch["label"].data_ptr(), batch["label"].nbytes
        for piece in self._fake.memory.pieces:  # by address, because streams hold no tensors
            start = address - piece.ctypes.data
            if 0 <= start < piece.size:
                value = piece[start : start + count].view(np.int64)
                self._fake.current_stream().put(
                    lambda value=value: self.values.append(int(value[0]))
                )


@late_only
@pytest.mark.parametrize("is_kept", [True, False])
def test_memory_waits_for_the_consumers_stream(fake, is_kept, monkeypatch):
    if not is_kept:  # otherwise the test must fail
        monkeypatch.setattr(fake, "keep_for", lambda *_: None)
    loss = Loss(fake)
    for batch in DeviceLoader([batch_of(i) for i in range(6)]):
        loss.add(batch)
        del batch
    arrived(fake, None)
    assert (loss.values == list(range(6))) == is_kept


def test_a_consumer_with_its_own_streams(fake):
    consumer = FakeStream(fake)
    batches = iter(DeviceLoader([batch_of(i) for i in range(4)]))
    for i, stream in enumerate([consumer, fake.default, consumer, consumer]):
        with stream:
            assert_same(arrived(fake, next(batches)), batch_of(i))


class Computed(torch.Tensor):
    """A tensor of the device that the current stream hasn't computed yet."""

    def __new__(cls, fake, compute):
        self = torch.zeros(1).as_subclass(cls)
        self.value = 0
        fake.current_stream().put(lambda: setattr(self, "value", compute()))
        return self


@late_only
def test_device_work_of_the_loader_comes_first(fake):
    stream = FakeStream(fake)
    batches = iter(DeviceLoader(Computed(fake, lambda i=i: i) for i in range(1, 4)))
    assert arrived(fake, next(batches)).value == 1
    with stream:
        assert arrived(fake, next(batches)).value == 2
        assert arrived(fake, next(batches)).value == 3


@late_only
def test_fields_wait_for_device_work_of_the_loader(fake):
    class Doubled(pinfeed.Stack):
        def apply(self, batch, host, context):
            return Computed(fake, lambda: 2 * batch.value)

    loader = (Computed(fake, lambda i=i: i) for i in range(1, 4))
    for i, batch in enumerate(DeviceLoader(loader, fields=Doubled()), 1):
        fake.copies.run()  # before any other stream works
        assert arrived(fake, batch).value == 2 * i


def test_batches_in_transit_need_no_host_memory(fake):
    def loader():
        for _ in range(5):
            batch = torch.zeros(3)
            alive.append(weakref.ref(batch))
            yield batch
            del batch
        gate.wait(60)

    gate, alive = threading.Event(), []
    batches = iter(DeviceLoader(loader(), prefetch=5))
    next(batches)
    while len(alive) < 5 or any(batch() is not None for batch in alive):
        time.sleep(0.001)  # the watchdog ends it
    gate.set()
    batches.close()


def test_batches_of_workers_can_be_overwritten_before_their_copy(fake):
    samples = [{"x": np.full(40_000, i, np.float32), "y": i} for i in range(24)]
    workers = DataLoader(
        samples, 2, num_workers=1, collate_fn=pinfeed.Collate(), prefetch_factor=1, timeout=60,
        multiprocessing_context="fork",
    )  # fmt: skip
    batches = list(DeviceLoader(workers, prefetch=12))
    grown = pinfeed.testing.worker_memory_stats()["grows"]
    assert grown < 2 * len(batches)  # their memory was reused
    assert_same(arrived(fake, batches), list(DataLoader(samples, 2, collate_fn=pinfeed.Collate())))


def test_small_entries_share_a_copy(fake):
    rng = np.random.default_rng(0)
    dtypes = [torch.uint8, torch.int64, torch.bool, torch.bfloat16, torch.complex128, torch.float32]
    small = [random_tensor(rng, dtype, (size,)) for size, dtype in enumerate(dtypes, 1)]
    batch = [*small, torch.tensor(5), torch.empty(0, 3), random_tensor(rng, torch.float32, LARGE)]
    (result,) = DeviceLoader([batch])
    assert_same(arrived(fake, result), batch)
    assert len(fake.copied) == 2
    assert fake.copied[1] == batch[-1].nbytes
    # Each begins at an alignment of tensors, and all are in one allocation.
    starts = [entry.storage_offset() * entry.itemsize for entry in result[:7]]
    assert [start % 512 for start in starts] == [0] * 7
    assert len({entry.untyped_storage().data_ptr() for entry in result[:7]}) == 1
    assert result[-1].storage_offset() == 0


WHOLE = random_tensor(np.random.default_rng(0), torch.float32, (4, 6, 30, 50))
PACKED = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
STRIDED = {
    "channels_last": WHOLE.to(memory_format=torch.channels_last),
    "transposed": WHOLE[0, 0].t(),
    "sliced": WHOLE[::2, :, 3:, ::2],
    "expanded": torch.arange(5).expand(3, 5),
    "small channels_last": WHOLE[:1, :, :2, :2].to(memory_format=torch.channels_last),
    "conjugated": torch.conj(torch.complex(WHOLE[0, 0], WHOLE[0, 1])),
}
OTHERS = [
    *("text", 3.5, None, np.arange(3), range(4), torch.Size([1, 2]), bytearray(b"abc"), ["a", "b"]),
    *(torch.Tensor, {1, 2}, object(), collections.deque([1])),
]
BATCHES = {
    **{name: make(WHOLE[0], [torch.ones(2), "text", None]) for name, make in STRUCTURES.items()},
    "packed": (PACKED, torch.ones(1)),
    "strided": STRIDED,
    "no tensor": OTHERS[-2],
    "others": {"tensor": torch.ones(2), "others": OTHERS},
}


@pytest.mark.parametrize("kind", BATCHES)
def test_structures_strides_and_other_objects_survive(kind, fake):
    batch = BATCHES[kind]
    (result,) = DeviceLoader([batch])
    assert_same(arrived(fake, result), batch)
    for one, other in zip(tensors_in(result), tensors_in(batch), strict=True):
        assert one.stride() == torch.empty_like(other, device="meta").stride()
    if kind == "others":
        assert result["others"] is OTHERS


@dataclasses.dataclass
class Graph:
    """An object with its own transfer methods, like a graph."""

    inside: Any
    moves: int = 0

    def to(self, device):
        return type(self)(self.inside, self.moves + 1)


class InPlace(Graph):
    def to(self, device):
        self.moves += 1


@pytest.mark.parametrize(
    "entry",
    [Graph([torch.ones(2)]), Graph((None, object())), InPlace(None)],
    ids=["of a list", "of a tuple", "in place"],
)
def test_objects_that_move_themselves_are_moved_once(entry, fake):
    entry = dataclasses.replace(entry)
    batches = list(DeviceLoader([{"graph": entry, "label": torch.ones(2)}]))
    (result,) = arrived(fake, batches)
    assert type(result["graph"]) is type(entry)
    assert result["graph"].moves == 1
    assert_same(result["label"], torch.ones(2))


def test_an_object_moves_with_the_consumer(fake):
    threads = []

    class Opaque:
        def to(self, device):
            threads.append((threading.current_thread(), fake.current_stream()))
            return "moved"

    (result,) = DeviceLoader([[Opaque(), torch.ones(1)]])
    assert result[0] == "moved"
    assert threads.pop() == (threading.main_thread(), fake.default)


def test_a_batch_of_a_tokenizer(fake):
    transformers = pytest.importorskip("transformers")
    batch = transformers.BatchEncoding({"input_ids": torch.arange(6), "mask": torch.ones(6)})
    (result,) = DeviceLoader([batch])
    assert type(result) is transformers.BatchEncoding
    assert_same(dict(arrived(fake, result)), dict(batch))
    assert len(fake.copied) == 1  # unlike its own .to, which copies each entry


UNEVEN = [torch.ones(2), torch.ones(3)]
TENSORS = {
    "subclass": lambda: torch.arange(4.0).as_subclass(MarkedTensor),
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "gradients": lambda: torch.ones(3, requires_grad=True) * 2,
    "sparse": lambda: torch.eye(3).to_sparse(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor(UNEVEN),
    "jagged": lambda: torch.nested.nested_tensor(UNEVEN, layout=torch.jagged),
}


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:.*quantize_per_tensor.*")
@pytest.mark.filterwarnings("ignore:.*torch.ao.quantization.*")
def test_tensor_subclasses(kind, fake):
    entry = TENSORS[kind]()
    (result,) = DeviceLoader([[entry, torch.ones(2)]])
    assert type(result[0]) is type(entry)
    assert result[0].layout == entry.layout
    assert result[0].requires_grad == entry.requires_grad
    assert_same(arrived(fake, result)[1], torch.ones(2))


# Fields.


@pytest.mark.parametrize("is_eager", [True])  # host fields can't wait for a stream
def test_fields_are_applied_after_the_copy(fake):
    images = torch.randint(0, 256, (20, 40, 30, 3), dtype=torch.uint8)
    loader = DeviceLoader([{"image": images, "label": torch.arange(20)}], fields={"image": Image()})
    (result,) = loader
    assert_same(result["image"], pinfeed.functional.normalize(images))
    assert fake.copied == [512, images.nbytes]
    assert loader.stats().bytes == images.nbytes + 160


def test_fields_are_applied_before_the_copy_to_a_device_without_kernels(fake, monkeypatch):
    monkeypatch.setattr(transfer, "has_kernels", lambda _: False)
    images = torch.randint(0, 256, (20, 40, 30, 3), dtype=torch.uint8)
    (result,) = DeviceLoader([{"image": images}], fields={"image": Image()})
    expected = pinfeed.functional.normalize(images)
    assert_same(arrived(fake, result)["image"], expected)
    assert fake.copied == [expected.nbytes]
    one_stream = transfer.OneStreamTransfer(batch_plan(Image()), torch.device("meta"))
    assert one_stream.send(images).batch.dtype == torch.float32
    assert not has_kernels(torch.device("meta"))


# A device with a single order of work.


def test_a_device_with_one_stream(monkeypatch):
    meta = torch.device("meta")  # has no pinned memory; .to copies there
    monkeypatch.setattr(device_loader, "_available", lambda _: meta)
    pair, sequence = (torch.ones(4, device=meta), np.ones(2)), PACKED
    batch = {"image": torch.ones(2, 3), "name": "text", "pair": pair, "p": sequence}
    loader = DeviceLoader([batch] * 3)
    for result in loader:
        assert result["image"].device == result["p"].data.device == meta
        assert result["image"].shape == (2, 3)
        assert result["name"] is batch["name"]
        assert result["pair"] is batch["pair"]
    assert loader.stats()[:2] == (3, 3 * 24)
    for device in ("mps", "cpu"):
        assert not staging.has_streams(torch.device(device))


# Slots.


def test_slots_are_allocated_once(fake):
    for _ in DeviceLoader([batch_of(i) for i in range(20)], prefetch=4):
        pass
    assert len(fake.pinned_sizes) == 2


def test_slots_grow_a_few_times(fake):
    lengths = np.random.default_rng(0).integers(1, 100_000, 50).tolist()
    expected = [torch.arange(length) for length in lengths]
    for batch, tensor in zip(DeviceLoader(expected), expected, strict=True):
        assert_same(arrived(fake, batch), tensor)
    assert len(fake.pinned_sizes) <= 2 * 18


@pytest.mark.parametrize("gap", [0, LARGE[1]])
def test_contiguous_pinned_tensors_are_copied_in_place(fake, gap):
    def loader():
        for i in range(6):
            width = LARGE[1] + gap
            pinned = fake.pinned(LARGE[0] * width * 4).view(torch.float32).view(-1, width)
            yield pinned[:, : LARGE[1]].fill_(i)

    for i, batch in enumerate(DeviceLoader(loader())):
        assert_same(arrived(fake, batch), torch.full(LARGE, float(i)))
    assert len(fake.pinned_sizes) == (8 if gap else 6)  # two slots, or none


def test_a_loop_releases_its_pinned_memory(fake):
    batches = DeviceLoader([batch_of(i) for i in range(8)])
    for stop in range(9):
        for i, _ in enumerate(batches):
            if i == stop:
                break
        assert fake.pinned_sizes
        assert fake.pinned_bytes == 0


def test_at_most_prefetch_batches_are_on_the_device(fake):
    size = 100 * KIB
    for depth in (1, 2, 5):
        highest = 0
        loader = (torch.zeros(size, dtype=torch.uint8) for _ in range(20))
        for batch in DeviceLoader(loader, prefetch=depth):
            arrived(fake, batch)
            for _ in range(50):
                highest = max(highest, fake.used_bytes)
        assert highest <= (depth + 2) * size  # the current one, and the one it replaces
        del batch
        assert fake.used_bytes == 0


# Failures.


def test_a_batch_too_large_for_the_device(fake):
    fake.capacity = 4 * LARGE[0] * LARGE[1] * 4
    too_large = [torch.zeros(LARGE), torch.zeros(fake.capacity)]
    batches = iter(DeviceLoader([batch_of(0), too_large, batch_of(2)], prefetch=1))
    assert_same(arrived(fake, next(batches)), batch_of(0))
    with pytest.raises(torch.OutOfMemoryError, match="tried to allocate") as caught:
        next(batches)
    assert caught.value.__notes__ == ["DeviceLoader: raised while batch 1 was moved to the device"]
    assert fake.pinned_bytes == 0
    assert fake.used_bytes == 0  # although the error still exists
    assert_same(arrived(fake, list(batches)), [batch_of(2)])


@pytest.mark.parametrize("left", [0, 1])
def test_failing_pinned_allocations(fake, left):
    fake.pinned_left = left
    expected = [batch_of(i) for i in range(6)]
    loader = DeviceLoader(expected)
    with pytest.warns(RuntimeWarning, match=r"could not be pinned.*out of memory") as caught:
        assert_same(arrived(fake, list(loader)), expected)
    assert len(caught) == 1
    assert_same(arrived(fake, list(loader)), expected)  # and does not warn again
    assert len(fake.pinned_sizes) == left


def test_an_object_that_cannot_move(fake):
    class Stuck:
        def to(self, device):
            raise NotImplementedError("stuck")

    batches = iter(DeviceLoader([batch_of(0), [Stuck()], batch_of(2)]))
    next(batches)
    with pytest.raises(NotImplementedError, match="stuck") as caught:
        next(batches)
    assert caught.value.__notes__ == ["DeviceLoader: raised while batch 1 was passed to the loop"]
    assert_same(arrived(fake, next(batches)), batch_of(2))


def test_loops_share_a_stream_but_no_context(monkeypatch):
    """torch stores the previous stream on the context object; threads of two loops enter it."""
    stream = torch.Stream(stream_id=3, device_index=0, device_type=1)  # of CUDA, without a device
    monkeypatch.setattr(staging, "_copy_stream", lambda device: stream)
    one, other = (staging.Accelerator(torch.device("cuda:0")) for _ in range(2))
    assert one.copies == other.copies == stream
    assert one.copies is not other.copies
