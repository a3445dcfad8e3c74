"""DeviceLoader on a device, with slow copies and kernels."""

import gc
import threading
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from pinfeed import (
    ArrayDataset,
    Collate,
    DeviceLoader,
    Image,
    Jagged,
    Pad,
    RaggedArray,
    from_numpy,
    to_numpy,
)
from samples import assert_same

LONG = 100_000_000  # cycles: a few hundredths of a second


class Batch(NamedTuple):
    image: torch.Tensor
    label: torch.Tensor
    weight: torch.Tensor
    name: str


def batch_of(number, size=200_000):
    return Batch(
        torch.full((size,), number, dtype=torch.int32),
        torch.full((7,), number),
        torch.full((3, 2), float(number)),
        f"batch {number}",
    )


def sleep(device, cycles=LONG):
    if device == "cuda":
        torch.cuda._sleep(cycles)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "pinfeed"]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    gc.collect()
    assert threads() == []


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_batches_arrive_unchanged(depth, device):
    batches = DeviceLoader([batch_of(i) for i in range(20)], device, prefetch=depth)
    for _ in range(2):
        for i, batch in enumerate(batches):
            assert batch.image.device.type == device
            assert_same(Batch(*(x.cpu() for x in batch[:3]), batch.name), batch_of(i))
        assert i == 19


def test_computations_with_dropped_batches_are_right(device):
    """The consumer's stream is far behind its thread, and the memory is requested again."""
    sums = []
    for batch in DeviceLoader([batch_of(i) for i in range(30)], device):
        sleep(device, LONG // 20)
        sums.append(batch.image.sum() + batch.label.sum() + batch.weight.sum().long())
        del batch
    assert [int(total) for total in sums] == [i * (200_000 + 7 + 6) for i in range(30)]


def test_slots_are_not_overwritten_during_their_copy(device):
    """The copy stream waits; the loader doesn't."""
    held = []
    for batch in DeviceLoader((batch_of(i, 2_000_000) for i in range(12)), device, prefetch=6):
        held.append(batch.image)
        sleep(device, LONG // 10)
    assert [(int(x.min()), int(x.max())) for x in held] == [(i, i) for i in range(12)]


@pytest.mark.gpu_only
def test_a_consumer_with_its_own_streams():
    streams = [torch.cuda.Stream() for _ in range(3)]
    batches = iter(DeviceLoader([batch_of(i) for i in range(12)], "cuda"))
    sums = []
    for i in range(12):
        with torch.cuda.stream(streams[i % 3]):
            torch.cuda._sleep(LONG // 20)
            batch = next(batches)
            sums.append(batch.image.sum())
            del batch
    torch.cuda.synchronize()
    assert [int(total) for total in sums] == [200_000 * i for i in range(12)]
    batches.close()


def test_fields_on_the_device(device):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (64, 33, 31, 3), np.uint8)
    texts = [np.arange(n) for n in rng.integers(0, 50, 64)]
    dataset = ArrayDataset({"image": images, "tokens": RaggedArray.from_sequences(texts)})
    image, pad = Image(0.5, 0.25, dtype=torch.bfloat16, channels_last=True), Pad(multiple_of=8)
    there = DeviceLoader(
        DataLoader(dataset, 16, collate_fn=Collate({"tokens": Jagged()})),
        device,
        {"image": image, "tokens": pad},
    )
    here = DataLoader(dataset, 16, collate_fn=Collate({"image": image, "tokens": pad}))
    for batch, expected in zip(there, here, strict=True):
        assert_same(batch["image"].cpu(), expected["image"])
        assert batch["image"].is_contiguous(memory_format=torch.channels_last)
        assert_same([x.cpu() for x in batch["tokens"]], list(expected["tokens"]))


@pytest.mark.gpu_only
def test_pinned_memory_is_allocated_once():
    def allocations():
        return torch.cuda.host_memory_stats()["num_host_alloc"]

    images = np.zeros((2048, 64, 64, 3), np.uint8)
    loader = from_numpy({"x": images, "y": np.arange(2048)}, 128, device="cuda")
    pageable = DeviceLoader(
        DataLoader(ArrayDataset(images), 128, collate_fn=Collate(pin_memory=False)), "cuda"
    )
    for _ in loader, pageable, loader, pageable:
        for batches in (loader, pageable):
            list(batches)
    before = allocations()
    for _ in range(5):
        for batches in (loader, pageable):
            for _ in batches:
                pass
    assert allocations() == before


@pytest.mark.gpu_only
def test_a_batch_too_large_for_the_device():
    free, _ = torch.cuda.mem_get_info()
    too_large = torch.empty(1, dtype=torch.uint8).expand(2 * free)
    batches = iter(DeviceLoader([batch_of(0), [too_large], batch_of(2), batch_of(3)], "cuda"))
    assert int(next(batches).label[0]) == 0
    with pytest.raises(torch.OutOfMemoryError) as caught:
        next(batches)
    assert "batch 1 was moved to the device" in caught.value.__notes__[0]
    assert [int(batch.label[0]) for batch in batches] == [2, 3]


@pytest.mark.gpu_only
def test_missing_devices():
    count = torch.cuda.device_count()
    batches = DeviceLoader([torch.ones(1)], f"cuda:{count}")
    with pytest.raises(ValueError, match=rf"'cuda:{count}' is not available; torch finds {count}"):
        iter(batches)


@pytest.mark.gpu_only
def test_every_device():
    for index in range(torch.cuda.device_count()):
        for batch in DeviceLoader([batch_of(3)], index):
            assert batch.label.device == torch.device("cuda", index)
            assert batch.label.tolist() == [3] * 7


def test_a_loader_that_yields_nothing(device):
    assert list(DeviceLoader([], device)) == []


@pytest.mark.parametrize("stop", [0, 1, 5])
def test_leaving_a_loop(stop, device):
    for i, _ in enumerate(DeviceLoader((batch_of(i) for i in range(100)), device)):
        if i == stop:
            break
    assert threads() == []


def test_an_error_in_the_loader(device):
    def failing():
        yield batch_of(0)
        raise LookupError("batch 1 is missing")

    batches = iter(DeviceLoader(failing(), device))
    next(batches)
    with pytest.raises(LookupError, match="batch 1 is missing") as caught:
        next(batches)
    assert "batch 1 of this loop" in caught.value.__notes__[0]


@pytest.mark.gpu_only
def test_a_graph_is_captured_while_batches_are_fetched():
    batches = iter(DeviceLoader((batch_of(i) for i in range(50)), "cuda", prefetch=8))
    first = next(batches)
    static = first.image.clone()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        total = static.sum()
    for i, batch in enumerate(batches, 1):
        static.copy_(batch.image)
        graph.replay()
        assert int(total) == 200_000 * i


def test_stats(device):
    batches = DeviceLoader([batch_of(i) for i in range(5)], device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(batches)
    stats = batches.stats()
    assert stats.batches == 5
    assert stats.bytes == (5 * (800_000 + 56 + 24) if device == "cuda" else 0)


def test_two_loops_at_once(device):
    loader = DeviceLoader([torch.full((1 << 18,), float(i)) for i in range(20)], device)
    for one, other in zip(loader, loader, strict=True):
        assert torch.equal(one, other)


# Batches on the device, drained by to_numpy.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
def test_to_numpy_copies_batches(dtype, device):
    batches = [torch.randn(64, 500, 200).to(dtype) for _ in range(7)]
    there = (x.to(device) for x in batches)
    result = to_numpy({"x": x, "t": x.transpose(1, 2)} for x in there)
    expected = torch.cat(batches)
    expected = expected.float() if dtype == torch.bfloat16 else expected
    assert_same(result["x"], expected.numpy())
    assert_same(result["t"], expected.transpose(1, 2).contiguous().numpy())


def test_to_numpy_of_memory_that_is_reused(device):
    buffer = torch.zeros(1 << 24, device=device)
    result = to_numpy(buffer.fill_(i) for i in range(8))
    assert (result.reshape(8, -1) == np.arange(8)[:, np.newaxis]).all()
