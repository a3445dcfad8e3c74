"""pinfeed.functional.pad and Pad compared with a reference: any rank, dtype, strides, samples and keywords."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import assert_same_bits, random_array, unwritten
from sequences import assert_same_padded, batches

pytestmark = pytest.mark.kernels

TOKENS = [np.array([1, 2, 3]), np.array([4])]


@given(batches())
def test_every_keyword(isa, batch):
    assert_same_padded(pinfeed.functional.pad(batch.samples, **batch.keywords), batch)


@given(batches(), st.data())
def test_out_gets_the_values_of_a_new_array_and_padding_beyond(batch, data):
    shape = list(batch.expected()[0].shape)
    axes = batch.keywords.get("axes")
    chosen = axes if isinstance(axes, tuple) else [0 if axes is None else axes]
    min_sizes = []
    for axis in chosen:
        axis %= len(shape) - 1
        shape[axis + 1] += data.draw(st.sampled_from([0, 0, 1, 20]))
        min_sizes.append(shape[axis + 1])
    kind = "tensor" if batch.dtype == torch.bfloat16 else data.draw(st.sampled_from(["", "tensor"]))
    out = unwritten(kind, shape, str(batch.dtype).removeprefix("torch."))
    result = pinfeed.functional.pad(batch.samples, **batch.keywords, out=out)
    values = result if not isinstance(result, tuple) else result.values
    assert values is out
    assert_same_padded(result, batch._replace(is_tensor=kind == "tensor"), min_sizes)


# Beyond the reference, which supports ndarrays only.


class Samples(list):
    """A subclass of list."""


@pytest.mark.parametrize("container", [list, tuple, Samples, pinfeed.ArrayDataset])
def test_any_sequence_of_samples(container):
    if container is pinfeed.ArrayDataset:
        ragged = pinfeed.RaggedArray.from_sequences(TOKENS)
        samples = container(ragged).__getitems__([0, 1])
    else:
        samples = container(TOKENS)
    values, lengths, _ = pinfeed.functional.pad(samples, pad_value=-1)
    np.testing.assert_array_equal(values, [[1, 2, 3], [4, -1, -1]])
    np.testing.assert_array_equal(lengths, [3, 1])


def joined(as_tensor, offsets_dtype):
    """Returns values and offsets with gaps before and after, and the samples as a list."""
    values = random_array((40, 3), np.int16)
    offsets = np.array([2, 9, 9, 30, 38], offsets_dtype)
    samples = [values[start:end] for start, end in itertools.pairwise(offsets)]
    if as_tensor:
        values, offsets = torch.from_numpy(values), torch.from_numpy(offsets)
    return values, offsets, samples


@pytest.mark.parametrize("keywords", [{}, {"side": "left", "max_length": 5, "multiple_of": 4}])
@pytest.mark.parametrize("offsets_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_samples_in_one_array(as_tensor, offsets_dtype, keywords):
    values, offsets, samples = joined(as_tensor, offsets_dtype)
    expected = reference.pad(samples, 7, **keywords)
    for kind in (pinfeed.JaggedBatch, pinfeed.RaggedArray):
        result = pinfeed.functional.pad(kind(values, offsets), 7, mask=True, **keywords)
        for got, part in zip(result, expected, strict=True):
            assert type(got) is type(values)
            assert_same_bits(got, part)


def test_a_slice_of_a_ragged_array():
    values, offsets, samples = joined(False, np.int64)
    ragged = pinfeed.RaggedArray(values, offsets)
    np.testing.assert_array_equal(
        pinfeed.functional.pad(ragged[1:3], lengths=False), reference.pad(samples[1:3], 0)[0]
    )
    # Values in any memory order.
    fortran = pinfeed.RaggedArray(np.asfortranarray(values), offsets)
    np.testing.assert_array_equal(
        pinfeed.functional.pad(fortran, lengths=False), reference.pad(samples, 0)[0]
    )


def test_memory_that_is_not_aligned_to_its_items():
    memory = random_array((1 + 8 * 21,))
    sample = np.ndarray((7, 3), np.float64, memory, offset=1)
    buffer = np.full(1 + 8 * 2 * 8 * 3, 0xA5, np.uint8)
    out = np.ndarray((2, 8, 3), np.float64, buffer, offset=1)
    pinfeed.functional.pad([sample, sample[::-2]], 1.5, multiple_of=8, out=out)
    assert_same_bits(out, reference.pad([sample, sample[::-2]], 1.5, multiple_of=8)[0])
    assert buffer[0] == 0xA5


def test_many_axes():
    shapes = [(2, 1, 1, 3, 1, 1, 1, 1, 2, 1, 1, 1), (1, 1, 2, 3, 1, 1, 1, 1, 1, 1, 1, 2)]
    samples = [random_array(shape, np.int16) for shape in shapes]
    for side in ("right", "left"):
        assert_same_bits(
            pinfeed.functional.pad(samples, 5, side=side, lengths=False),
            reference.pad(samples, 5, side)[0],
        )


# Batches that are split for threads, or written with streaming stores.

# Shapes of samples that need more than 16 MiB, with odd sizes; keywords.
LARGE = {
    "tokens": ([(8191,), (0,), (100,), (8190,)] * 70, "i8", {"multiple_of": 3}),
    "tokens, left": ([(8191,), (0,), (100,), (8190,)] * 70, "i8", {"side": "left"}),
    "bytes": ([(1_000_003,), (999_999,)] * 9, "u1", {"side": "left"}),
    "audio": ([(1_600_001,), (1,)], "c16", {"max_length": 1_500_001}),
    "features": ([(1201, 33), (1153, 31), (7, 33)] * 40, "f4", {"axes": (0, 1)}),
    "images": ([(3, 301, 403), (3, 299, 401)] * 9, "f4", {"axes": (1, 2), "side": "left"}),
}


@pytest.mark.parametrize("large", LARGE)
def test_large_batches(large):
    shapes, dtype, keywords = LARGE[large]
    samples = [random_array(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    values, lengths, mask = reference.pad(samples, 3, **keywords)
    assert values.nbytes > 16 << 20
    result = pinfeed.functional.pad(samples, 3, mask=True, **keywords)
    assert_same_bits(result.values, values)
    assert_same_bits(result.lengths, lengths)
    assert_same_bits(result.mask, mask)


@pytest.mark.parametrize("offset", [0, 1, 3, 60])
def test_large_batches_of_unaligned_memory(offset):
    samples = [random_array((size,), np.float64, size) for size in (700_001, 900_000, 3)]
    memory = np.zeros(100 + 8 * 3 * 900_000, np.uint8)
    out = np.ndarray((3, 900_000), np.float64, memory, offset)
    pinfeed.functional.pad(samples, 1.1, out=out)
    assert_same_bits(out, reference.pad(samples, 1.1)[0])
    assert not memory[:offset].any()
    assert not memory[offset + out.nbytes :].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("view", [np.s_[..., ::-1], np.s_[:, 1:, 1:], "transposed"], ids=str)
def test_large_batches_of_views(view, dtype):
    rng = np.random.default_rng(0)
    arrays = [rng.random((3, size, size + 2), np.float32) for size in (1101, 1003)]
    samples = [array.T if view == "transposed" else array[view] for array in arrays]
    values, _, _ = reference.pad([sample.astype(dtype) for sample in samples], 3)
    assert_same_bits(pinfeed.functional.pad(samples, 3, dtype=dtype, lengths=False), values)
