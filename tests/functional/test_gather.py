"""pinfeed.functional.gather compared with fancy indexing: dtypes, strides, types of indices."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import NUMPY_DTYPES, as_kind, assert_same_bits, random_array, unwritten, views
from programs import run_program

pytestmark = pytest.mark.kernels

KINDS = ["ndarray", "read-only", "tensor"]

INDEX_FORMS = {
    "list": list,
    "tuple": tuple,
    "list of NumPy integers": lambda indices: [np.int16(index) for index in indices],
    "list of tensors": lambda indices: [torch.tensor(index) for index in indices],
    **{f"{dtype} ndarray": lambda indices, dtype=dtype: np.array(indices, dtype) for dtype in ("i1", "i2", "i4", "i8")},
    "strided ndarray": lambda indices: np.repeat(np.array(indices, np.int64), 2)[::2],
    "mirrored ndarray": lambda indices: np.array(indices[::-1], np.int64)[::-1],
    "int32 tensor": lambda indices: torch.tensor(indices, dtype=torch.int32),
    "int64 tensor": lambda indices: torch.tensor(indices, dtype=torch.int64),
}  # fmt: skip


@st.composite
def gathers(draw):
    """Draws rows of any dtype, shape and strides, and indices with repeated and negative ones."""
    kind = draw(st.sampled_from(KINDS))
    length = draw(st.integers(1, 100))
    size = st.one_of(st.integers(0, 4), st.integers(1, 40))
    row = tuple(
        draw(size if axis < 2 else st.integers(1, 3)) for axis in range(draw(st.integers(0, 3)))
    )
    dtype = draw(st.sampled_from(NUMPY_DTYPES))
    array = draw(views((length, *row), dtype, mirrored=kind != "tensor"))
    indices = draw(st.lists(st.integers(-length, length - 1), max_size=20))
    return as_kind(kind, array), indices


@given(gathers(), st.sampled_from(list(INDEX_FORMS)))
def test_any_dtype_strides_and_indices(gather, form):
    array, indices = gather
    expected = reference.gather(np.asarray(array), indices)
    result = pinfeed.functional.gather(array, INDEX_FORMS[form](indices))
    assert type(result) is type(array)
    assert result.dtype == array.dtype
    assert_same_bits(result, expected)
    kind = "tensor" if isinstance(array, torch.Tensor) else "ndarray"
    out = unwritten(kind, expected.shape, np.asarray(array).dtype.name)
    assert pinfeed.functional.gather(array, indices, out=out) is out
    assert_same_bits(out, expected)


@pytest.mark.parametrize(
    "indices", [range(5), range(9, 0, -2), range(-3, 0), range(0), [], (), [3] * 50], ids=str
)
def test_indices_of_other_types(indices):
    array = random_array((10, 4), np.float32)
    assert_same_bits(pinfeed.functional.gather(array, indices), reference.gather(array, indices))
    if min(indices, default=0) >= 0:
        for dtype in ("u1", "u2", "u4", "u8"):
            given = np.array(indices, dtype)
            for same in (given, torch.from_numpy(given)):
                assert_same_bits(pinfeed.functional.gather(array, same), array[[*indices]])
    assert pinfeed.functional.gather(array[:0], np.empty(0, np.uint8)).shape == (0, 4)


@pytest.mark.parametrize("row", [(), (3,), (2, 5)], ids=str)
def test_bfloat16(row):
    tensor = torch.randn((10, *row)).to(torch.bfloat16)
    result = pinfeed.functional.gather(tensor, [3, -1, 3])
    assert result.dtype == torch.bfloat16
    assert_same_bits(result, tensor[[3, -1, 3]])


@pytest.mark.parametrize("row_bytes", [1, 2, 3, 4, 8, 16, 17, 63, 64, 1023, 1025, 150_001])
@pytest.mark.parametrize("out_offset", [0, 1, 64])
def test_streaming(row_bytes, out_offset):
    array = random_array((50, row_bytes))
    count = (4 << 20) // row_bytes + 3
    indices = np.random.default_rng(1).integers(-50, 50, count)
    memory = np.full(count * row_bytes + 256, 0xA5, np.uint8)
    begin = -memory.ctypes.data % 64 + out_offset
    end = begin + count * row_bytes
    pinfeed.functional.gather(array, indices, out=memory[begin:end].reshape(count, row_bytes))
    np.testing.assert_array_equal(memory[begin:end].reshape(count, row_bytes), array[indices])
    assert (memory[:begin] == 0xA5).all()
    assert (memory[end:] == 0xA5).all()


@pytest.mark.parametrize(
    "view", [np.s_[::-1], np.s_[:, 1:], np.s_[:, ::-1], np.s_[:, ::2]], ids=str
)
def test_streaming_of_strided_rows(view):
    array = random_array((40, 301, 401, 2), np.float32)[view]
    indices = [5, -1, 5, 0, 17]
    np.testing.assert_array_equal(
        pinfeed.functional.gather(array, indices).view("u4"), array[indices].view("u4")
    )


class Failing:
    def __index__(self):
        raise KeyboardInterrupt


def test_errors_of_indices_pass_through():
    with pytest.raises(KeyboardInterrupt):
        pinfeed.functional.gather(np.arange(3), [0, Failing()])


def test_the_first_gathers_of_several_threads():
    run_program("first_gathers")


@pytest.mark.parametrize("given", [np.uint16, np.int16, bool, np.float32])
@pytest.mark.parametrize("dtype", [torch.int64, np.float32])
def test_dtypes(given, dtype):
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(-3, 40).astype(given), 5)
    indices, target = [7, 0, -1], np.dtype("i8" if dtype is torch.int64 else dtype)
    if given is np.float32 and target.kind == "i":
        with pytest.raises(TypeError, match="gather: array"):
            pinfeed.functional.gather(windows, indices, dtype=dtype)
        return
    for array in (windows, torch.from_numpy(windows.copy())):
        result = pinfeed.functional.gather(array, indices, dtype=dtype)
        assert type(result) is type(array)
        assert_same_bits(result, windows[indices].astype(target))
        out = result[:2] * 0
        assert pinfeed.functional.gather(array, indices[:2], dtype=dtype, out=out) is out
        assert_same_bits(out, windows[indices[:2]].astype(target))
