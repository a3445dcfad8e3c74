"""scale= of Stack and pad compared with NumPy's float32 arithmetic."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import as_kind, assert_same_bits, random_array, views
from messages import check
from pinfeed import Collate, DeviceLoader, Pad, Stack
from samples import assert_same

pytestmark = pytest.mark.kernels

INTEGERS = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
AUDIO = 2.0**-15
scales = st.one_of(
    st.sampled_from([AUDIO, 1, 1 / 255, -0.3, 0.1]), st.floats(2.0**-60, 2.0**40, width=32)
)


def scaled(array, scale, dtype=torch.float32):
    """Returns the expected values; bfloat16 as bits."""
    floats = array.astype(np.float32) * np.float32(scale)
    return reference.rounded(floats, str(dtype).removeprefix("torch."))


@given(st.data())
def test_stacks(isa, data):
    source, dtype = data.draw(st.sampled_from(INTEGERS)), data.draw(st.sampled_from(DTYPES))
    kind = data.draw(st.sampled_from(["ndarray", "read-only", "tensor"]))
    shape = data.draw(st.tuples(*[st.integers(1, 40)] * data.draw(st.integers(1, 3))))
    scale = data.draw(scales)
    some = [data.draw(views(shape, source, mirrored=kind != "tensor")) for _ in range(2)]
    collate = Collate(Stack(dtype, scale=scale))
    expected = scaled(np.stack(some), scale, dtype)
    assert_same_bits(collate([as_kind(kind, one) for one in some]), expected)
    rows = pinfeed.ArrayDataset(np.stack(some)).__getitems__([1, 0])
    assert_same_bits(collate(rows), expected[::-1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [AUDIO, 1 / 32767, -3e4, 1e-9])
def test_every_int16(isa, dtype, scale):
    """As rows, sequences of one length, lists and padded clips; large enough for streaming stores."""
    clips = np.arange(-(2**15), 2**15, dtype=np.int16).reshape(64, 1024).repeat(32, 0)
    expected = scaled(clips, scale, dtype)
    collate = Collate(Stack(dtype, scale=scale))
    ragged = pinfeed.RaggedArray(clips.reshape(-1), np.arange(0, clips.size + 1, 1024))
    for source in (clips, ragged):
        assert_same_bits(collate(pinfeed.ArrayDataset(source).__getitems__(range(2048))), expected)
    assert_same_bits(collate(clips[:3].tolist()), expected[:3])
    assert_same_bits(collate(clips[5].tolist()), expected[5])
    padded = Collate(Pad(pad_value=7, dtype=dtype, scale=scale, multiple_of=1025, lengths=False))(
        [*clips]
    )
    assert_same_bits(padded[:, :1024], expected)
    assert (padded[:, 1024] == 7).all()


def test_without_a_dtype_it_is_float32():
    assert Stack(scale=0.5).dtype == torch.float32
    assert pinfeed.functional.pad([[1], [2]], scale=0.5, lengths=False).tolist() == [[0.5], [1.0]]
    assert pinfeed.functional.pad([[3], []], scale=np.float32(0.5)).values.dtype == torch.float32


def test_samples_of_several_dtypes_and_large_numbers_in_lists():
    samples = [np.array([300], np.uint16), np.array([-4], np.int8), [100_000], []]
    values = pinfeed.functional.pad(
        samples, -1, scale=torch.tensor(0.25), dtype="float16", lengths=False
    )
    assert values.tolist() == [[75], [-1], [24_992], [-1]]  # float16 can represent every 16th


class Elsewhere(torch.Tensor):
    """A tensor that the native code rejects, as if it were on a device."""


@pytest.mark.parametrize("dtype", [None, *DTYPES])
def test_stacks_on_a_device(dtype):
    rng = np.random.default_rng(0)
    for source in INTEGERS:
        clips = torch.from_numpy(random_array((5, 300), source, int(rng.integers(1000))))
        expected = Collate(Stack(dtype, scale=0.3))(list(clips))
        field = Stack(dtype, scale=0.3)
        (on_the_cpu,) = DeviceLoader([{"wave": clips}], "cpu", fields={"wave": field})
        assert_same(on_the_cpu["wave"], expected)
        elsewhere = field.apply(clips.as_subclass(Elsewhere), clips, pinfeed.FieldContext("wave"))
        assert_same(elsewhere.as_subclass(torch.Tensor), expected)
        assert_same(field.apply(clips[:0], clips[:0], pinfeed.FieldContext("wave")), expected[:0])


CLIPS = [np.array([1, 2], np.int16), np.array([3, 4], np.int16)]
FLOATS = [clip.astype(np.float32) for clip in CLIPS]
LONG = "must be finite and not 0 in float32"

# The call, the error, and words of its message.
BAD = {
    "0": (lambda: Pad(scale=0), ValueError, f"Pad: scale {LONG}", "leave it out to cast"),
    "nan": (lambda: Stack(scale=float("nan")), ValueError, "Stack: scale must be a number, got nan"),
    "inf": (lambda: pinfeed.functional.pad(CLIPS, scale=-np.inf), ValueError, f"pad: scale {LONG}, got -inf"),
    "overflow": (lambda: Stack(scale=1e39), ValueError, LONG, "1e+39"),
    "underflow": (lambda: Stack(scale=1e-60), ValueError, LONG, "1e-60"),
    "text": (lambda: Pad(scale="1"), TypeError, "Pad: scale must be a number, got '1'"),
    "bool": (lambda: Stack(scale=True), TypeError, "Stack: scale must be a number, got True"),
    "each channel": (lambda: Stack(scale=[1, 2]), TypeError, "scale must be a number, got [1, 2]"),
    "integers wanted": (lambda: Stack(torch.int32, scale=2),
        TypeError, "Stack: dtype must be one of ('float32', 'float16', 'bfloat16') with scale, got int32", "leave dtype out for float32"),
    "float64 wanted": (lambda: Pad(dtype=np.float64, scale=2), TypeError, "got float64"),
    "floats": (lambda: pinfeed.functional.pad(FLOATS, scale=2),
        TypeError, "sample 0: expected integers to scale, got float32; leave scale out, and multiply the batch"),
    "a float": (lambda: pinfeed.functional.pad([[1], [0.5]], scale=2), TypeError, "sample 1", "got float32"),
    "floats to stack": (lambda: Collate({"x": Stack(scale=2)})([{"x": clip} for clip in FLOATS]),
        TypeError, "entry ['x']: expected integers to scale, got float32"),
    "numbers": (lambda: Collate(Stack(scale=2))([0.5]), TypeError, "got float64; leave scale out"),
    "bools": (lambda: Collate(Stack(scale=2))([CLIPS[0] > 1]), TypeError, "integers to scale, got bool"),
    "floats on a device": (lambda: Stack(scale=2).apply(torch.ones(2).as_subclass(Elsewhere), None, pinfeed.FieldContext("entry")),
        TypeError, "entry: expected integers to scale, got float32; leave scale out"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_calls(kind):
    check(*BAD[kind])


def test_hints_of_errors_work():
    expected = torch.tensor([[0.5, 1.0], [1.5, 2.0]])
    assert_same(Collate(Stack(scale=0.5))(CLIPS), expected)
    assert_same(Collate(Stack())(FLOATS) * 0.5, expected)  # multiply the batch instead
    assert_same(Collate(Stack(torch.float32))(CLIPS), 2 * expected)  # a cast without scaling
