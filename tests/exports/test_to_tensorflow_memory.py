"""to_tensorflow: owners and lifetimes of batch memory."""

import numpy as np
import pytest
import torch

import pinfeed
from tensorflow_elements import BATCHES, WAYS, address


class Memory(bytearray):
    """Memory that counts its living instances."""

    alive = 0

    def __init__(self, size):
        super().__init__(size)
        Memory.alive += 1

    def __del__(self):
        Memory.alive -= 1


def alive():
    import tensorflow as tf

    # TensorFlow releases ndarrays at its next call of Python.
    tf.numpy_function(lambda: np.int64(0), [], tf.int64)
    return Memory.alive


def counted(batches):
    for number in range(batches):
        memory = np.frombuffer(Memory((1 << 18) + 64), np.uint8)
        start = -memory.ctypes.data % 64  # TensorFlow copies arrays at other alignments
        array = memory[start : start + (1 << 18)].view(np.float32).reshape(4, -1)
        array.fill(number)
        yield torch.from_numpy(array)
        del memory, array


def pooled(batches):
    for number in range(batches):
        yield pinfeed.functional.permute(torch.full((4, 1 << 14), float(number)), "ab", "ab")


@pytest.mark.parametrize("way", WAYS)
def test_no_copy(way):
    batch = {
        "tensor": torch.zeros(256, 64),
        "small": torch.zeros(3),
        "bfloat16": torch.zeros(8, 8, dtype=torch.bfloat16),
        "bool": torch.zeros(8, dtype=torch.bool),
        "pooled": next(pooled(1)),
        "ndarray": next(pooled(1)).numpy(),  # of the pool
        "channels_last": torch.zeros(2, 3, 8, 8).to(memory_format=torch.channels_last),
        "jagged": pinfeed.JaggedBatch(torch.zeros(9, 2), torch.tensor([0, 4, 9])),
    }
    (element,) = WAYS[way](pinfeed.to_tensorflow([batch], channels_last="channels_last"))
    batch["jagged"], element["jagged"] = batch["jagged"].values, element["jagged"].values
    for key, tensor in batch.items():
        assert address(element[key]) == address(tensor), key


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_lives_as_long_as_its_tensors(way):
    elements = WAYS[way](pinfeed.to_tensorflow(counted(BATCHES)))
    assert alive() == BATCHES
    assert [float(element[-1, -1]) for element in elements] == list(range(BATCHES))
    view = elements[2][1:]
    array = np.asarray(elements[3])
    del elements
    assert alive() == 2
    assert float(view[0, 0]) == 2
    assert float(array[-1, -1]) == 3
    del view, array
    assert alive() == 0


def test_read_ahead_holds_only_its_buffers(tf):
    dataset = pinfeed.to_tensorflow(counted(30))
    assert [float(batch[0, 0]) for batch in dataset.prefetch(2)] == list(range(30))
    assert alive() == 0
    shuffled = []
    for batch in pinfeed.to_tensorflow(counted(30)).shuffle(5, seed=0).prefetch(2):
        shuffled.append(float(batch[0, 0]))
        # The batches of both buffers, the current and the previous one, and two in transit.
        assert Memory.alive <= 5 + 2 + 4
    assert shuffled != sorted(shuffled) == list(range(30))
    del batch
    assert alive() == 0


@pytest.mark.parametrize("way", WAYS)
def test_held_batches_are_not_overwritten(way):
    elements = WAYS[way](pinfeed.to_tensorflow(pooled(BATCHES)))
    # These would reuse the memory of the held batches.
    assert sum(float(other[0, 0]) for other in pooled(2 * BATCHES)) == 66
    assert [float(element[-1, -1]) for element in elements] == list(range(BATCHES))


def test_tensorflow_does_not_write_into_batches(tf):
    """Its kernels reuse the memory of an input that they own."""
    batch = torch.ones(256, 256)
    dataset = pinfeed.to_tensorflow([batch] * 3)
    double = tf.function(lambda x: tf.nn.relu(x * 2) + 1)
    for element in dataset.map(lambda x: tf.nn.relu(x - 5) * 3).prefetch(1):
        assert float(element[0, 0]) == 0
    for element in dataset:
        element += 4
        element = double(element)
        assert float(element[0, 0]) == 11
    assert float(batch.sum()) == batch.numel()
