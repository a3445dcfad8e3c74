"""pinfeed.functional.unpad: views along any axes, on either side, and their gradients."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
from arrays import as_kind, views
from messages import check

pytestmark = pytest.mark.kernels

PADDED = np.arange(24).reshape(2, 3, 4)


@st.composite
def padded_batches(draw):
    """Draws a padded array of any strides and type, lengths in some form, and keywords."""
    shape = draw(st.lists(st.integers(0, 5), min_size=2, max_size=4))
    kind = draw(st.sampled_from(["ndarray", "read-only", "tensor"]))
    array = draw(views(shape, np.int32, mirrored=kind != "tensor"))
    axes = draw(st.integers(1, len(shape) - 1))
    lengths = [
        [draw(st.integers(0, size)) for size in shape[1 : 1 + axes]] for _ in range(shape[0])
    ]
    if axes == 1 and draw(st.booleans()):
        lengths = [length for (length,) in lengths]
    given = lengths
    if draw(st.booleans()):
        given = np.array(lengths, draw(st.sampled_from([np.int64, np.uint8, np.int32])))
        given = torch.from_numpy(given) if draw(st.booleans()) else given
    keywords = {"side": draw(st.sampled_from(["right", "left"]))}
    return as_kind(kind, array), given, lengths, keywords


def address(array):
    """Returns the address of an array."""
    if isinstance(array, torch.Tensor):
        return array.data_ptr(), array.stride()
    return array.ctypes.data, array.strides


@given(padded_batches())
def test_any_batch(batch):
    padded, given, lengths, keywords = batch
    result = pinfeed.functional.unpad(padded, given, **keywords)
    assert type(result) is list
    assert len(result) == len(padded)
    for row, sizes, got in zip(padded, lengths, result, strict=True):
        for axis, size in enumerate(sizes if isinstance(sizes, list) else [sizes]):
            start = row.shape[axis] - size if keywords["side"] == "left" else 0
            index = (*[slice(None)] * axis, slice(start, start + size))
            row = row[index]
        assert type(got) is type(padded)
        assert got.shape == row.shape
        np.testing.assert_array_equal(got, row)
        if 0 not in row.shape:
            assert address(got) == address(row)  # the same memory, not a copy


@pytest.mark.parametrize("lengths", [[3, 1], [[3, 2], [1, 4]]])
@pytest.mark.parametrize("is_contiguous", [True, False])
def test_gradients_flow(is_contiguous, lengths):
    entry = torch.arange(24.0).reshape(2, 3, 4).requires_grad_()
    padded = entry if is_contiguous else entry * 1.0
    padded = padded if is_contiguous else padded.transpose(1, 2).contiguous().transpose(1, 2)
    views = pinfeed.functional.unpad(padded, lengths)
    sum((i + 1) * view.sum() for i, view in enumerate(views)).backward()
    expected = torch.zeros(2, 3, 4)
    for i, view in enumerate(views):
        expected[i, : view.shape[0], : view.shape[1]] = i + 1
    torch.testing.assert_close(entry.grad, expected)


def test_gradients_of_padding_are_zero():
    padded = torch.ones(1, 4, requires_grad=True)
    pinfeed.functional.unpad(padded, [0])[0].sum().backward()
    assert padded.grad.tolist() == [[0] * 4]


def test_empty_batches():
    assert pinfeed.functional.unpad(np.zeros((0, 3)), []) == []
    assert pinfeed.functional.unpad(torch.zeros((0, 3, 2)), np.zeros((0, 2), np.int32)) == []
    for padded in (np.zeros((2, 0, 3)), torch.zeros((2, 0, 3)), torch.zeros((2, 3, 0))):
        views = pinfeed.functional.unpad(padded, [0, 0])
        assert [tuple(view.shape) for view in views] == [(0, padded.shape[2])] * 2


BAD = {
    "too long": (PADDED, [3, 4], {}, ValueError, "lengths of sample 1: expected from 0 to 3, got 4"),
    "negative": (PADDED, [-1, 3], {}, ValueError, "lengths of sample 0: expected from 0 to 3, got -1"),
    "far too long": (PADDED, np.array([0, 2**64 - 1], np.uint64), {}, ValueError, "sample 1"),
    "beyond integers": (PADDED, [1, 2**70], {}, (TypeError, ValueError), "lengths"),
    "second axis": (PADDED, [[1, 4], [1, 5]], {}, ValueError, "lengths of sample 1: expected from 0 to 4, got 5"),
    "too few": (PADDED, [1], {}, ValueError, "(2,) or (2, n), got (1,)"),
    "of 3 axes": (PADDED, [[1, 1, 1]] * 2, {}, ValueError, "1 to 2 axes, got 3"),
    "of no axes": (PADDED, np.zeros((2, 0), int), {}, ValueError, "1 to 2 axes, got 0"),
    "number": (PADDED, 3, {}, ValueError, "(2,) or (2, n), got ()"),
    "floats": (PADDED, [1.0, 2.0], {}, TypeError, "integers, got float64"),
    "bools": (PADDED, [True, False], {}, TypeError, "integers, got bool"),
    "strings": (PADDED, ["1", "2"], {}, TypeError, "integers"),
    "ragged": (PADDED, [[1], [1, 2]], {}, ValueError, "expected shape (2,) or (2, n), got [[1], [1, 2]]"),
    "no lengths": (PADDED, None, {}, TypeError, "expected lengths, or a Padded with lengths, got neither"),
    "no lengths in it": (pinfeed.Padded(PADDED), None, {}, TypeError, "expected lengths, or a Padded"),
    "1-D": (PADDED[0, 0], [1] * 4, {}, ValueError, "padded: expected shape (B, L, ...)", "(4,)"),
    "0-d": (torch.tensor(1), [], {}, ValueError, "padded: expected shape (B, L, ...)", "()"),
    "list": ([[1]], [1], {}, TypeError, "padded: expected a NumPy array", "list"),
    "side": (PADDED, [1, 1], {"side": "both"}, ValueError, "side must be", "'both'"),
    "axes": (PADDED[..., 0], [1, 2], {"axes": 1}, ValueError, "axes of 1-D samples, got 1"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("convert", [lambda array: array, torch.as_tensor], ids=["", "tensor"])
def test_bad_input(bad, convert):
    padded, lengths, keywords, error, *words = bad
    padded = convert(padded) if isinstance(padded, np.ndarray) else padded
    check(lambda: pinfeed.functional.unpad(padded, lengths, **keywords), error, "unpad: ", *words)


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("axes", [0, 1, -1, (1,), (0, 2), (1, 2), (-3, -1)])
def test_axes_equal_the_axes_of_pad(convert, side, axes):
    chosen = axes if isinstance(axes, tuple) else (axes,)
    rng = np.random.default_rng(0)
    sizes = np.full((6, 3), 4)
    sizes[:, chosen] = rng.integers(0, 5, (6, len(chosen)))
    samples = [convert(rng.random(size)) for size in sizes]
    padded = pinfeed.functional.pad(samples, -1, side=side, axes=axes, multiple_of=7)
    views = pinfeed.functional.unpad(padded, side=side, axes=axes)
    assert len(views) == 6
    for view, sample in zip(views, samples, strict=True):
        np.testing.assert_array_equal(view, sample)


def test_views_can_be_changed_in_place_with_gradients():
    weight = torch.ones((), requires_grad=True)
    values = torch.ones(2, 3)
    pinfeed.functional.unpad(values, [1, 2])[1].mul_(2 * weight)
    values.sum().backward()
    assert weight.grad == 4


def test_matrices_and_masked_arrays():
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1, 2], [3, 4]])
    assert [view.tolist() for view in pinfeed.functional.unpad(matrix, [1, 2])] == [[1], [3, 4]]
    with pytest.raises(TypeError, match="unpad: padded: expected a NumPy array, a"):
        pinfeed.functional.unpad(np.ma.zeros((2, 3)), [1, 2])
    with pytest.raises(TypeError, match="sample 0: expected an array without a mask"):
        pinfeed.functional.pad([np.ma.zeros(3)])


@pytest.mark.parametrize("output", ["CHW", "HWC"])
@pytest.mark.parametrize("mask", [False, True])
def test_axes_of_images_are_known(output, mask):
    rng = np.random.default_rng(0)
    # The second one is smaller than its channels, which the sizes would also fit.
    images = [rng.integers(0, 256, (*size, 4), np.uint8) for size in ((2, 3), (1, 2))]
    field = pinfeed.Image(pad_value=-1, sizes=True, mask=mask, multiple_of=4, output=output)
    batch = pinfeed.Collate(field)(images)
    expected = [
        pinfeed.functional.normalize(image[None], output="N" + output)[0] for image in images
    ]
    again = pickle.loads(pickle.dumps(batch))
    for parts in (
        pinfeed.functional.unpad(batch),
        batch.unbind(),
        pinfeed.functional.unbind(batch),
        again.unbind(),
    ):
        for view, image in zip(parts, expected, strict=True):
            np.testing.assert_array_equal(view, image)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("mask", [False, True])
def test_the_padding_side_is_known(side, mask):
    samples = [[1, 2], [3], [], [4, 5, 6]]
    jagged = pinfeed.Collate(pinfeed.Jagged())(samples)
    batches = [
        pinfeed.functional.pad(samples, side=side, mask=mask, multiple_of=4),
        jagged.to_padded(side=side, mask=mask),
        pinfeed.Collate(pinfeed.Pad(side=side, mask=mask))(samples),
        *pinfeed.DeviceLoader([jagged], device="cpu", fields=pinfeed.Pad(side=side, mask=mask)),
    ]
    batches += [pickle.loads(pickle.dumps(batches[0])), *pinfeed.DeviceLoader(batches[:1], "cpu")]
    for batch in batches:
        again = pinfeed.JaggedBatch.from_padded(batch)
        for parts in (
            batch.unbind(),
            pinfeed.functional.unbind(batch),
            pinfeed.functional.unpad(batch),
            again.unbind(),
        ):
            assert [part.tolist() for part in parts] == samples
    # An explicit side is right; a Padded built by hand has no side.
    by_hand = pinfeed.Padded(*batches[0])
    for batch in (by_hand, batches[0]):
        assert [part.tolist() for part in pinfeed.functional.unpad(batch, side=side)] == samples
        again = pinfeed.JaggedBatch.from_padded(batch, side=side)
        assert again.values.tolist() == [1, 2, 3, 4, 5, 6]


def test_parts_of_a_jagged_batch_are_views_and_a_mask_has_no_lengths():
    samples = [torch.arange(3), torch.arange(0), torch.arange(5)]
    jagged = pinfeed.Collate(pinfeed.Jagged())(samples)
    jagged.unbind()[2][0] = 7
    assert jagged.values.tolist() == [0, 1, 2, 7, 1, 2, 3, 4]
    with pytest.raises(
        TypeError,
        match="unbind: expected lengths, or a Padded with lengths, got neither; pass lengths",
    ):
        pinfeed.functional.pad(samples, lengths=False, mask=True).unbind()
