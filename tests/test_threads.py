"""Threads that use the same objects at the same time: every value equals a single thread's."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import pinfeed
import reference
from arrays import assert_same_bits, random_array
from pinfeed.loaders.stats import Activity, LoopTimes

pytestmark = pytest.mark.kernels

THREADS, SECONDS = 4, 0.5
RANDOM = np.random.default_rng(0)
IMAGES = random_array((64, 12, 10, 3))
TOKENS = [RANDOM.integers(0, 1000, length).tolist() for length in RANDOM.integers(1, 40, 64)]
NAMES = [f"sample {i}" for i in range(64)]


@pytest.fixture(autouse=True)
def hurried_threads():
    """With a GIL, makes threads switch a thousand times as often as usual."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(interval)


def in_threads(run):
    """Calls ``run(number)`` repeatedly in threads that start together; raises their error."""
    barrier = threading.Barrier(THREADS)

    def loop(thread):
        barrier.wait()
        until, number = time.monotonic() + SECONDS, thread
        while time.monotonic() < until:
            run(number)
            number += THREADS

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(loop, range(THREADS)))


def chosen(number):
    return np.random.default_rng(number).permutation(64)[:16]


def padded(indices):
    return reference.pad([np.array(TOKENS[i]) for i in indices], pad_value=0)[0]


@pytest.fixture
def dataset(tmp_path):
    """Returns arrays in memory, in a file and in parts; sequences, and strings."""
    np.save(tmp_path / "images.npy", IMAGES)
    for part in range(4):
        np.save(tmp_path / f"{part}.npy", IMAGES[16 * part : 16 * part + 16])
    parts = pinfeed.ConcatArray([tmp_path / f"{part}.npy" for part in range(4)])
    tokens = pinfeed.RaggedArray.from_sequences(TOKENS)
    names = pinfeed.RaggedArray.from_strings(NAMES)
    arrays = {"image": IMAGES, "file": tmp_path / "images.npy", "parts": parts}
    return pinfeed.ArrayDataset(arrays | {"tokens": tokens, "name": names})


@pytest.mark.parametrize("samples", ["rows", "list"])
def test_one_collate_in_all_threads(dataset, samples):
    fields = {"image": pinfeed.Image(0.5, 0.25), "tokens": pinfeed.Pad(pad_value=0)}
    collate = pinfeed.Collate(fields)

    def run(number):
        indices = chosen(number)
        rows = dataset.__getitems__(indices.tolist())
        batch = collate(rows if samples == "rows" else list(rows))
        images = IMAGES[indices]
        assert_same_bits(batch["image"].numpy(), reference.images(images, 0.5, 0.25))
        assert_same_bits(batch["file"].numpy(), images)
        assert_same_bits(batch["parts"].numpy(), images)
        assert_same_bits(batch["tokens"].numpy(), padded(indices))
        assert batch["name"] == [NAMES[i] for i in indices]

    in_threads(run)


@pytest.mark.filterwarnings("ignore:.*samples repeat")
def test_random_draws_follow_from_the_seed(dataset):
    crops = pinfeed.augment.RandomResizedCrop((8, 8))
    fields = {
        "image": pinfeed.Image(augment=crops),
        "tokens": pinfeed.Pad(),
        "file": pinfeed.Stack(),
        "parts": pinfeed.Stack(),
    }
    collate = pinfeed.Collate(fields, seed=3)
    expected = [collate(dataset.__getitems__(chosen(i).tolist()))["image"] for i in range(8)]

    def run(number):
        batch = collate(dataset.__getitems__(chosen(number % 8).tolist()))
        assert torch.equal(batch["image"], expected[number % 8])

    in_threads(run)


def test_batches_that_other_threads_drop():
    last = [None] * 8
    collate = pinfeed.Collate()

    def run(number):
        # Larger and smaller than the pool's minimum. The previous batch is freed here, whichever thread built it.
        batch = collate(list(np.full((64, 16 << number % 8), number)))
        kept, last[number % 8] = last[number % 8], batch
        assert batch.unique().tolist() == [number]
        assert kept is None or len(kept.unique()) == 1

    in_threads(run)


def test_documents_packed_and_exported():
    dataset = pinfeed.ArrayDataset({"tokens": pinfeed.RaggedArray.from_sequences(TOKENS)})
    lengths = [len(tokens) for tokens in TOKENS]
    batches = list(pinfeed.samplers.PackSampler(lengths, seq_length=64, batch_size=2))
    collate = pinfeed.Collate({"tokens": pinfeed.Pack(seq_length=64)})
    expected = [collate(dataset.__getitems__(batch))["tokens"] for batch in batches]

    def run(number):
        packed = collate(dataset.__getitems__(batches[number % len(batches)]))
        assert torch.equal(packed["tokens"], expected[number % len(batches)])
        exported = pinfeed.to_numpy(collate(dataset.__getitems__(batch)) for batch in batches)
        assert_same_bits(exported["tokens"], torch.cat(expected).numpy())

    in_threads(run)


def test_functions_with_cached_constants():
    def run(number):
        mean = number % 100 / 100  # of more constants than the cache holds
        assert_same_bits(
            pinfeed.functional.normalize(IMAGES[:4], mean, 0.25),
            reference.images(IMAGES[:4], mean, 0.25),
        )
        indices = chosen(number)
        values, lengths, _ = pinfeed.functional.pad([TOKENS[i] for i in indices], lengths=True)
        assert_same_bits(np.asarray(values), padded(indices))
        assert lengths.tolist() == [len(TOKENS[i]) for i in indices]

    in_threads(run)


def test_one_sampler_in_several_epochs():
    lengths = np.array([len(tokens) for tokens in TOKENS])
    samplers = [
        pinfeed.samplers.ShuffleSampler(64, 16),
        pinfeed.samplers.WeightedSampler(lengths, num_samples=32, batch_size=16, replacement=False),
        pinfeed.samplers.PackSampler(lengths, seq_length=64, batch_size=2),
    ]
    expected = [[list(s.batch(epoch, 0)) for epoch in range(3)] for s in samplers]

    def run(number):
        epoch = number % 3
        for sampler, batches in zip(samplers, expected, strict=True):
            assert list(sampler.batch(epoch, 0)) == batches[epoch]

    in_threads(run)


def test_lists_that_another_thread_changes():
    tokens, indices = [1] * 100, [1] * 100

    def change():
        for numbers in (tokens, indices):
            del numbers[50:]
            numbers.extend([1] * 50)
        tokens[:] = [1.5] * 10 + [1] * 90
        tokens[:] = [1] * 100

    def run(number):
        if number % THREADS == 0:
            return change()
        try:
            assert set(np.asarray(pinfeed.functional.pad([tokens]).values).ravel()) <= {1, 1.5}
            assert set(pinfeed.functional.gather(np.arange(3), indices)) == {1}
        except ValueError as error:
            if "the list changed while it was read" not in str(error):
                raise

    in_threads(run)


def test_samples_that_another_thread_replaces():
    samples = [{"x": np.full(8, i), "y": i} for i in range(64)]
    collate = pinfeed.Collate()

    def run(number):
        if number % THREADS == 0:
            samples.append({"x": np.full(8, number), "y": number})
            samples.pop(0)
        else:
            batch = collate(samples)
            assert (batch["x"] == batch["y"][:, None]).all()

    in_threads(run)


def test_stats_that_are_read_meanwhile():
    times, seen = LoopTimes(), [0.0] * THREADS

    def run(number):
        thread = number % THREADS
        if thread == 0:
            times.begin(Activity(number // THREADS % 3))
        else:
            stats = times.stats()
            whole = stats.waiting_for_loader + stats.waiting_for_copy + stats.waiting_for_consumer
            assert whole >= seen[thread] - 1e-9
            seen[thread] = whole

    in_threads(run)


def test_gathers_of_one_array_run_concurrently(monkeypatch):
    arrays = [pinfeed.ConcatArray([np.arange(number, number + 2)]) for number in (0, 10)]
    make, others = pinfeed.ConcatArray._native_rows, threading.Event()

    def waiting_rows(array):
        if array is arrays[0]:
            assert others.wait(30)
        return make(array)

    monkeypatch.setattr(pinfeed.ConcatArray, "_native_rows", waiting_rows)
    first = threading.Thread(target=arrays[0].select, args=(np.array([0]),))
    first.start()
    arrays[1].select(np.array([0]))
    others.set()
    first.join()
