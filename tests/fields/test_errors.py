"""Bad input: the right exception, a message that says what, and not one byte written."""

import functools

import numpy as np
import PIL.Image
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import pinfeed
from arrays import unwritten
from messages import check

pytestmark = pytest.mark.kernels

IMAGES = np.zeros((2, 4, 5, 3), np.uint8)
TENSOR = torch.zeros((2, 4, 5, 3), dtype=torch.uint8)
ROWS = np.zeros((4, 3), np.float32)
NAN, INF = float("nan"), float("inf")


def read_only(array):
    array.flags.writeable = False
    return array


BAD_IMAGES = {
    "float": (
        IMAGES.astype(np.float64),
        TypeError,
        "uint8",
        "(N, H, W, C)",
        "float64 (2, 4, 5, 3)",
    ),
    "float tensor": (TENSOR.double(), TypeError, "uint8", "float64 (2, 4, 5, 3)"),
    "signed": (IMAGES.astype(np.int8), TypeError, "uint8", "int8"),
    "bool": (IMAGES.astype(np.bool_), TypeError, "uint8", "bool"),
    "object": (IMAGES.astype(object), TypeError, "dtype", "object"),
    "byte-swapped": (IMAGES.astype(">u2"), TypeError, "byte order", ">u2"),
    "one image": (IMAGES[0], ValueError, "(N, H, W, C)", "(4, 5, 3)"),
    "clips": (IMAGES[None], ValueError, "got uint8 (1, 2, 4, 5, 3)", 'clips take input="NTHWC"'),
    "0-d": (np.uint8(1)[...], ValueError, "0-d"),
    "none": (IMAGES[:0], ValueError, "at least one", "none"),
    "list": ([IMAGES[0]], TypeError, "NumPy array or a torch tensor", "list"),
    "None": (None, TypeError, "NumPy array or a torch tensor", "NoneType"),
    "meta tensor": (TENSOR.to("meta"), TypeError, "CPU", "meta"),
    "sparse tensor": (TENSOR.to_sparse(), TypeError, "dense"),
}


@pytest.mark.parametrize("bad", BAD_IMAGES.values(), ids=BAD_IMAGES.keys())
def test_normalize_images(bad):
    images, error, *words = bad
    kind = "tensor" if isinstance(images, torch.Tensor) else "ndarray"
    out = unwritten(kind, (2, 3, 4, 5), "float32")
    before = np.asarray(out).tobytes()
    check(lambda: pinfeed.normalize(images), error, "normalize", "images", *words)
    # Which of two faults is told doesn't matter; nothing may be written.
    with pytest.raises((TypeError, ValueError)):
        pinfeed.normalize(images, out=out)
    assert np.asarray(out).tobytes() == before


BAD_ARGUMENTS = {
    "mean too long": ({"mean": [0.5] * 4}, ValueError, "mean", "3 channels", "4 values"),
    "mean of one": ({"mean": [0.5]}, ValueError, "mean", "3 channels", "1 values"),
    "std too short": ({"std": [0.5] * 2}, ValueError, "std", "3 channels", "2 values"),
    "lengths": ({"mean": [0.5] * 3, "std": [1] * 2}, ValueError, "mean and std", "3 and 2"),
    "mean NaN": ({"mean": [0.5, NAN, 0.5]}, ValueError, "mean", "finite", "nan"),
    "mean infinite": ({"mean": INF}, ValueError, "mean", "finite", "inf"),
    "mean 2-D": ({"mean": [[0.5] * 3]}, ValueError, "mean", "(1, 3)"),
    "mean ragged": ({"mean": [0.5, [0.5, 0.5]]}, TypeError, "mean", "number"),
    "mean empty": ({"mean": []}, ValueError, "mean", "(0,)"),
    "mean text": ({"mean": "0.5"}, TypeError, "mean", "number", "'0.5'"),
    "mean complex": ({"mean": 1j}, TypeError, "mean", "number", "1j"),
    "mean of objects": ({"mean": [None, 1, 2]}, TypeError, "mean", "number", "None"),
    "mean beyond float64": ({"mean": 10**400}, TypeError, "mean", "number"),
    "std zero": ({"std": 0}, ValueError, "std", "must not be 0", "got 0"),
    "std with a zero": ({"std": (1, 0.0, 1)}, ValueError, "std", "must not be 0", "(1, 0.0, 1)"),
    "std NaN": ({"std": NAN}, ValueError, "std", "finite", "nan"),
    "std too small": ({"mean": 1, "std": 1e-300}, ValueError, "std", "float32", "1e-300"),
    "std subnormal": ({"std": 1e-320}, ValueError, "std", "float32", "1e-320"),
    "scale NaN": ({"scale": NAN}, ValueError, "scale", "finite", "nan"),
    "scale zero": ({"scale": 0.0}, ValueError, "scale must not be 0, got 0.0"),
    "scale per channel": ({"scale": [1, 2, 3]}, ValueError, "scale", "single", "[1, 2, 3]"),
    "scale text": ({"scale": "1"}, TypeError, "scale", "number", "'1'"),
    "dtype float64": ({"dtype": np.float64}, TypeError, "dtype", "float16", "float64"),
    "dtype uint8": ({"dtype": torch.uint8}, TypeError, "dtype", "float16", "uint8"),
    "dtype unknown": ({"dtype": "nope"}, TypeError, "dtype", "nope"),
    "dtype bfloat16": ({"dtype": torch.bfloat16}, TypeError, "bfloat16", "tensor"),
    "input": ({"input": "HWC"}, ValueError, "input", "NHWC", "'HWC'"),
    "output": ({"output": "NHW"}, ValueError, "output", "NCHW", "'NHWC', got 'NHW'"),
    "clips": ({"input": "NTHWC"}, ValueError, "output", "['NCTHW', 'NTCHW', 'NTHWC']", "'NCHW'"),
    "no text": ({"input": 3}, ValueError, "input", "NHWC", "3"),
}


@pytest.mark.parametrize("bad", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS.keys())
def test_normalize_arguments(bad):
    arguments, error, *words = bad
    out = unwritten("ndarray", (2, 3, 4, 5), "float32")
    before = out.tobytes()
    call = functools.partial(pinfeed.normalize, IMAGES, out=out, **arguments)
    check(call, error, "normalize", *words)
    assert out.tobytes() == before


FLOATS = np.full((2, 3, 4, 5), 7, np.float32)

BAD_OUTS = {
    "too short": (FLOATS[:1].copy(), ValueError, "shape (2, 3, 4, 5)", "(1, 3, 4, 5)"),
    "too long": (np.full((3, 3, 4, 5), 7, "f4"), ValueError, "shape (2, 3, 4, 5)", "(3, 3, 4, 5)"),
    "other order": (np.full((2, 4, 5, 3), 7, "f4"), ValueError, "(2, 3, 4, 5)", "(2, 4, 5, 3)"),
    "other rank": (FLOATS[0].copy(), ValueError, "shape (2, 3, 4, 5)", "(3, 4, 5)"),
    "other dtype": (FLOATS.astype(np.float64), TypeError, "dtype float32", "float64"),
    "same width": (FLOATS.astype(np.int32), TypeError, "dtype float32", "int32"),
    "byte-swapped": (FLOATS.astype(">f4"), TypeError, "byte order", ">f4"),
    "read-only": (read_only(FLOATS.copy()), ValueError, "writable", "read-only"),
    "steps": (np.full((2, 3, 4, 10), 7, "f4")[..., ::2], ValueError, "contiguous", "strides"),
    "mirrored": (FLOATS.copy()[:, :, ::-1], ValueError, "contiguous", "strides"),
    "broadcast": (torch.full((2, 1, 4, 5), 7.0).expand(2, 3, 4, 5), TypeError, "ndarray", "Tensor"),
    "other kind": (torch.full((2, 3, 4, 5), 7.0), TypeError, "ndarray", "Tensor"),
    "list": (FLOATS.tolist(), TypeError, "NumPy array", "list"),
}


@pytest.mark.parametrize("bad", BAD_OUTS.values(), ids=BAD_OUTS.keys())
def test_normalize_out(bad):
    out, error, *words = bad
    before = np.asarray(out).copy()
    check(lambda: pinfeed.normalize(IMAGES, out=out), error, "normalize", "out", *words)
    np.testing.assert_array_equal(np.asarray(out), before)


def test_normalize_out_as_a_broadcast_tensor():
    out = torch.full((2, 1, 4, 5), 7.0)
    call = functools.partial(pinfeed.normalize, TENSOR, out=out.expand(2, 3, 4, 5))
    check(call, ValueError, "normalize", "out", "contiguous")
    assert (out == 7).all()


@pytest.mark.parametrize("shift", [0, 1, 119, -479], ids=lambda shift: f"shift {shift}")
def test_normalize_out_that_overlaps_the_images(shift):
    memory = np.full(2000, 7, np.uint8)
    images = memory[800:920].reshape(2, 4, 5, 3)
    out = memory[800 + shift : 1280 + shift].view(np.float32).reshape(2, 3, 4, 5)
    check(lambda: pinfeed.normalize(images, out=out), ValueError, "normalize", "out", "overlap")
    check(
        lambda: pinfeed.normalize(images[:, ::-1], out=out),
        ValueError,
        "normalize",
        "out",
        "overlap",
    )
    assert (memory == 7).all()


def test_normalize_out_beside_the_images():
    memory = np.full(2000, 7, np.uint8)
    images = memory[800:920].reshape(2, 4, 5, 3)
    for begin in (320, 920):
        out = memory[begin : begin + 480].view(np.float32).reshape(2, 3, 4, 5)
        pinfeed.normalize(images, scale=1, out=out)
        assert (out == 7).all()


BAD_PERMUTATIONS = {
    "other letters": ((ROWS, "AB", "AC"), ValueError, "input and output", "'AB'", "'AC'"),
    "a letter twice": ((ROWS, "AA", "AA"), ValueError, "each once", "'AA'"),
    "a letter less": ((ROWS, "AB", "A"), ValueError, "input and output", "'AB'", "'A'"),
    "rank": ((ROWS, "ABC", "CBA"), ValueError, "images", "3 axes", "(4, 3)"),
    "rank of bytes": ((IMAGES[0],), ValueError, "images", "4 axes", "(4, 5, 3)"),
    "object": ((ROWS.astype(object), "AB", "BA"), TypeError, "images", "numeric", "object"),
    "text": ((np.array(["a"]), "A", "A"), TypeError, "images", "numeric", "<U1"),
    "dates": ((np.zeros(3, "M8[s]"), "A", "A"), TypeError, "images", "numeric", "datetime64"),
    "structured": ((np.zeros(3, "i4,i4"), "A", "A"), TypeError, "images", "numeric", "i4"),
    "byte-swapped": ((ROWS.astype(">f4"), "AB", "BA"), TypeError, "images", "byte order", ">f4"),
    "list": (([1], "A", "A"), TypeError, "images", "NumPy array", "list"),
    "meta tensor": ((torch.zeros(4, 3, device="meta"), "AB", "BA"), TypeError, "CPU", "meta"),
    "8-bit floats": (
        (torch.zeros(4, 3).to(torch.float8_e4m3fn), "AB", "BA"),
        TypeError,
        "numeric",
        "float8",
    ),
    "conjugated": (
        (torch.zeros((4, 3), dtype=torch.complex64).conj(), "AB", "BA"),
        TypeError,
        "images",
        "resolve_conj",
    ),
    "larger than memory can be": (
        (torch.zeros(1).expand(2**31, 2**31), "AB", "BA"),
        ValueError,
        "(2147483648, 2147483648)",
    ),
}


@pytest.mark.parametrize("bad", BAD_PERMUTATIONS.values(), ids=BAD_PERMUTATIONS.keys())
def test_permute(bad):
    arguments, error, *words = bad
    check(lambda: pinfeed.permute(*arguments), error, "permute", *words)


def test_permute_of_more_than_there_is_memory():
    with pytest.raises(MemoryError):
        pinfeed.permute(torch.zeros(1).expand(2**30, 2**18), "AB", "BA")


@pytest.mark.parametrize(
    ("array", "letters", "out_shape"),
    [(ROWS, "AB", (3, 4)), (IMAGES, "NHWC", (2, 3, 4, 5))],
    ids=["any", "bytes of images"],
)
def test_permute_out(array, letters, out_shape):
    output = letters[0] + letters[-1] + letters[1:-1] if len(letters) > 2 else letters[::-1]
    permute = functools.partial(pinfeed.permute, array, letters, output)
    good = np.full(out_shape, 7, array.dtype)
    longer = np.full((*out_shape[:-1], out_shape[-1] + 1), 7, array.dtype)
    outs = [
        (longer, ValueError, str(out_shape), str(longer.shape)),
        (good.astype(np.float64), TypeError, array.dtype.name, "float64"),
        (read_only(good.copy()), ValueError, "read-only"),
        (longer[..., :-1], ValueError, "contiguous", "strides"),
        (torch.from_numpy(good.copy()), TypeError, "ndarray", "Tensor"),
    ]
    for out, error, *words in outs:
        check(lambda out=out: permute(out=out), error, "permute", "out", *words)
        assert (np.asarray(out) == 7).all()
    overlapping = array.reshape(out_shape)
    before = array.copy()
    check(lambda: permute(out=overlapping), ValueError, "permute", "out", "overlap")
    np.testing.assert_array_equal(array, before)


BAD_INDICES = {
    "past the end": ([0, 4], IndexError, "index 4", "position 1", "4 "),
    "before the start": ([-5], IndexError, "index -5", "position 0", "4 "),
    "of an array past the end": (np.array([1, 9]), IndexError, "index 9", "position 1"),
    "of a tensor past the end": (torch.tensor([-5]), IndexError, "index -5", "position 0"),
    "smallest int64": ([-(2**63)], IndexError, str(-(2**63))),
    "more than int64": ([2**70], IndexError, str(2**70)),
    "more than int64, in uint64": (np.array([2**63], "u8"), IndexError, str(2**63)),
    "float": ([0, 1.0], TypeError, "integers", "float", "position 1"),
    "float array": (np.array([1.0]), TypeError, "integers", "float64"),
    "empty float array": (np.array([]), TypeError, "integers", "float64"),
    "bool": ([True], TypeError, "integers", "bool"),
    "NumPy bool": ([np.True_], TypeError, "integers", "bool"),
    "mask": (np.ones(4, np.bool_), TypeError, "integers", "bool"),
    "mask tensor": (torch.ones(4, dtype=torch.bool), TypeError, "integers", "bool"),
    "text": ("12", TypeError, "str"),
    "list of text": (["1"], TypeError, "integers", "str"),
    "None": (None, TypeError, "NoneType"),
    "one number": (1, TypeError, "int"),
    "nested": ([[1]], TypeError, "integers", "list"),
    "2-D": (np.array([[1]]), TypeError, "1-D", "(1, 1)"),
    "object array": (np.array([1], object), TypeError, "object"),
    "byte-swapped": (np.array([1], ">i8"), TypeError, "byte order", ">i8"),
    "slice": (slice(2), TypeError, "slice"),
    "set": ({1}, TypeError, "set"),
    "meta tensor": (torch.zeros(2, dtype=torch.int64, device="meta"), TypeError, "CPU", "meta"),
}


@pytest.mark.parametrize("bad", BAD_INDICES.values(), ids=BAD_INDICES.keys())
def test_gather_indices(bad):
    indices, error, *words = bad
    out = np.full((2, 3), 7, np.float32)
    check(lambda: pinfeed.gather(ROWS, indices, out=out), error, "gather", "indices", *words)
    assert (out == 7).all()


BAD_ROWS = {
    "0-d": (np.array(1.0), ValueError, "0-d"),
    "list": ([1, 2], TypeError, "NumPy array", "list"),
    "object": (ROWS.astype(object), TypeError, "numeric", "object"),
    "byte-swapped": (ROWS.astype(">f4"), TypeError, "byte order", ">f4"),
    "meta tensor": (torch.zeros(4, 3, device="meta"), TypeError, "CPU", "meta"),
}


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_gather_array(bad):
    array, error, *words = bad
    check(lambda: pinfeed.gather(array, [0]), error, "gather", "array", *words)


def test_gather_out():
    outs = [
        (np.full((2, 3), 7, "f4"), ValueError, "(1, 3)", "(2, 3)"),
        (np.full(3, 7, "f4"), ValueError, "(1, 3)", "(3,)"),
        (np.full((1, 3), 7, "f8"), TypeError, "float32", "float64"),
        (read_only(np.full((1, 3), 7, "f4")), ValueError, "read-only"),
        (np.full((1, 6), 7, "f4")[:, ::2], ValueError, "contiguous", "strides"),
        (torch.full((1, 3), 7.0), TypeError, "ndarray", "Tensor"),
        (ROWS[3:], ValueError, "overlap"),
    ]
    for out, error, *words in outs:
        before = np.asarray(out).copy()
        call = functools.partial(pinfeed.gather, ROWS, [1], out=out)
        check(call, error, "gather", "out", *words)
        np.testing.assert_array_equal(np.asarray(out), before)


BAD_FIELDS = {
    "input": ({"input": "NHWC"}, ValueError, "input", "'HWC'", "'NHWC'"),
    "output": ({"output": "HW"}, ValueError, "output", "'CHW'", "'HW'"),
    "dtype float64": ({"dtype": torch.float64}, TypeError, "dtype", "float64"),
    "dtype of NumPy": ({"dtype": np.float32}, TypeError, "dtype", "numpy.float32"),
    "mean of uint8": ({"mean": 0.5, "dtype": torch.uint8}, ValueError, "uint8", "mean"),
    "scale of uint8": ({"scale": 2, "dtype": torch.uint8}, ValueError, "uint8", "scale"),
    "channels_last": (
        {"channels_last": True, "output": "HWC"},
        ValueError,
        "channels_last",
        "output='HWC'",
    ),
    "std zero": ({"std": [1, 0, 1]}, ValueError, "std", "must not be 0"),
    "std NaN": ({"std": NAN}, ValueError, "std", "finite", "nan"),
    "scale zero": ({"scale": 0}, ValueError, "scale must not be 0, got 0"),
    "lengths": ({"mean": [0.5], "std": [1, 1]}, ValueError, "mean and std", "1 and 2"),
    "mean text": ({"mean": "a"}, TypeError, "mean", "number", "'a'"),
}


@pytest.mark.parametrize("bad", BAD_FIELDS.values(), ids=BAD_FIELDS.keys())
def test_image_arguments(bad):
    arguments, error, *words = bad
    check(lambda: pinfeed.Image(**arguments), error, "Image", *words)


IMAGE = IMAGES[0]
PIXELS = PIL.Image.new("RGB", (5, 4))

BAD_SAMPLES = {
    "float": ([IMAGE.astype(float)], TypeError, "uint8", "(H, W, C)", "float64 (4, 5, 3)"),
    "grey": ([IMAGE[..., 0]], ValueError, "(H, W, C)", "(4, 5)", 'input="HW"'),
    "grey PIL image": ([PIXELS.convert("L")], ValueError, "(H, W, C)", "(4, 5)", 'input="HW"'),
    "shapes": ([IMAGE, IMAGE, IMAGE[:3]], ValueError, "sample 2", "(4, 5, 3)", "(3, 5, 3)"),
    "ranks": ([IMAGE, IMAGE[0]], ValueError, "sample 1", "(4, 5, 3)", "(5, 3)"),
    "PIL sizes": ([PIXELS, PIXELS.resize((4, 5))], ValueError, "sample 1", "(5, 4, 3)"),
    "PIL modes": ([PIXELS, PIXELS.convert("RGBA")], ValueError, "sample 1", "(4, 5, 4)"),
    "dtypes": ([IMAGE, IMAGE.astype("i1")], TypeError, "sample 1", "uint8", "int8"),
    "None": ([IMAGE, None], TypeError, "sample 1", "NoneType"),
    "numbers": ([1, 2], TypeError, "sample 0", "int"),
    "text": (["a"], TypeError, "sample 0", "str"),
    "meta tensor": ([TENSOR[0].to("meta")], TypeError, "sample 0", "CPU", "meta"),
    **{
        f"PIL mode {mode}": (
            [PIXELS, PIL.Image.new(mode, (5, 4))],
            TypeError,
            "sample 1",
            "'RGB'",
            f"got {mode!r}",
        )
        for mode in ("P", "1", "I")
    },
}


@pytest.mark.parametrize("bad", BAD_SAMPLES.values(), ids=BAD_SAMPLES.keys())
def test_image_samples(bad):
    samples, error, *words = bad
    collate = pinfeed.Collate({"views": (pinfeed.Image(0.5, 0.25),)})
    batch = [{"views": (sample,)} for sample in samples]
    check(lambda: collate(batch), error, "Collate: leaf ['views'][0]", *words)


def test_image_with_constants_for_other_channels():
    collate = pinfeed.Collate({"image": pinfeed.Image([0.5] * 4)})
    words = ["Collate: leaf ['image']", "3 channels", "4 values"]
    check(lambda: collate([{"image": IMAGE}]), ValueError, *words)
    rows = pinfeed.ArrayDataset({"image": IMAGES}).__getitems__([1, 0])
    check(lambda: collate(rows), ValueError, *words)


def test_image_of_rows_that_are_no_images():
    collate = pinfeed.Collate({"image": pinfeed.Image()})
    rows = pinfeed.ArrayDataset({"image": IMAGES.astype(np.float64)}).__getitems__([1, 0])
    check(lambda: collate(rows), TypeError, "leaf ['image']", "uint8", "float64 (4, 5, 3)")


# Tensors that promise values but have no memory: an error, and the process lives on.


def fake():
    with FakeTensorMode():
        return torch.zeros(2, 4, 4, 3, dtype=torch.uint8)


def wrapped():
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls):
            return torch.Tensor._make_wrapper_subclass(cls, (2, 4, 4, 3), dtype=torch.uint8)

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise RuntimeError("a wrapper was computed with")

    return Wrapper()


def freed():
    tensor = torch.ones(2, 4, 4, 3, dtype=torch.uint8)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.kernels
@pytest.mark.parametrize("make", [fake, wrapped, freed])
@pytest.mark.parametrize(
    "use",
    [
        pinfeed.normalize,
        pinfeed.permute,
        lambda images: pinfeed.gather(images, [0]),
        lambda images: pinfeed.Collate(pinfeed.Image(input="HWC"))([images]),
        lambda images: pinfeed.to_numpy([images]),
    ],
    ids=["normalize", "permute", "gather", "Collate", "to_numpy"],
)
def test_refused(make, use):
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        use(make())


def test_out_without_memory():
    out = torch.ones(1, 4, 4, 3, dtype=torch.uint8)
    out.untyped_storage().resize_(0)
    with pytest.raises(TypeError, match="memory of its own"):
        pinfeed.gather(torch.ones(2, 4, 4, 3, dtype=torch.uint8), [0], out=out)


def test_an_empty_tensor_needs_none():
    assert pinfeed.gather(torch.empty(3, 0), [0, 2]).shape == (2, 0)
