"""Errors of torch.ops.pinfeed for invalid arguments."""

import re

import pytest
import torch

import op_cases

pytestmark = pytest.mark.kernels

P = torch.ops.pinfeed
# torch's error for std::invalid_argument.
INVALID = RuntimeError if torch.__version__ >= "2.15" else ValueError
IMAGES = op_cases.images()
VALUES, OFFSETS = op_cases.jagged()
PADDED = torch.zeros(4, 7, 2)


def integers(*numbers):
    return torch.tensor(numbers, dtype=torch.int64)


VALID = {
    "normalize_images": {"images": IMAGES},
    "permute": {"images": IMAGES},
    "pad_jagged": {"values": VALUES, "offsets": OFFSETS, "length": 7},
    "unpad_to_jagged": {"padded": PADDED, "offsets": OFFSETS, "total": 12},
}
# The op, a part of its message, and the wrong arguments.
BAD = [
    ("normalize_images", "images must be uint8 with shape (N, H, W, C), got float32 (3, 5, 7, 3); convert with", {"images": IMAGES.float()}),
    ("normalize_images", "images must be uint8 with shape (N, H, W, C), got uint8 (5, 7, 3)", {"images": IMAGES[0]}),
    ("normalize_images", "input must be one of NHWC, NCHW, NHW, got HWC", {"input": "HWC"}),
    ("normalize_images", "output must be NCHW or NHWC, got CHW", {"output": "CHW"}),
    ("normalize_images", "channels_last requires output NCHW", {"output": "NHWC", "channels_last": True}),
    ("normalize_images", "dtype must be float32, float16, bfloat16 or uint8, got float64", {"dtype": torch.float64}),
    ("normalize_images", "mean must have one value, or one for each of the 3 channels, got 2", {"mean": [0.0, 1.0]}),
    ("normalize_images", "std must have one value, or one for each of the 3 channels, got 0", {"std": []}),
    ("normalize_images", "mean must be finite, got nan", {"mean": [float("nan")]}),
    ("normalize_images", "scale must be finite, got inf", {"scale": float("inf")}),
    ("normalize_images", "std must be positive", {"std": [1.0, -0.2, 1.0]}),
    ("normalize_images", "scale / std and mean / std must fit in float32, got scale", {"std": [1e-42]}),
    ("normalize_images", "mean, std and scale must be omitted with dtype uint8", {"dtype": torch.uint8, "mean": [0.5]}),
    ("pad_jagged", "values must have shape (total, ...), got ()", {"values": torch.tensor(1.0)}),
    ("pad_jagged", "offsets must be int64 with shape (B + 1,), got int32 (5,)", {"offsets": OFFSETS.int()}),
    ("pad_jagged", "offsets must be int64 with shape (B + 1,), got int64 (0,)", {"offsets": OFFSETS[:0]}),
    ("pad_jagged", "offsets must be int64 with shape (B + 1,), got int64 (1, 5)", {"offsets": OFFSETS[None]}),
    ("pad_jagged", "offsets must not decrease and must be from 0 to 12, the number of rows, got 13 at position 1", {"offsets": integers(0, 13)}),
    ("pad_jagged", "offsets must not decrease and must be from 0 to 12, the number of rows, got -1 at position 0", {"offsets": integers(-1, 3)}),
    ("pad_jagged", "offsets must not decrease and must be from 0 to 12, the number of rows, got 2 at position 2", {"offsets": integers(0, 3, 2)}),
    ("pad_jagged", "length must not be negative, got -1", {"length": -1}),
    ("pad_jagged", "max_length must not be negative, got -2", {"max_length": -2}),
    ("pad_jagged", "side must be right or left, got top", {"side": "top"}),
    ("pad_jagged", "pad_value must be a value that float32 can hold, got 1e+39", {"pad_value": 1e39}),
    ("pad_jagged", "pad_value must be a value that int64 can hold, got 0.5", {"values": VALUES.long(), "pad_value": 0.5}),
    ("pad_jagged", "pad_value must be a value that bool can hold, got 2", {"values": VALUES.bool(), "pad_value": 2.0}),
    ("pad_jagged", "the dtype of values must be bool, an integer, floating or complex dtype", {"values": VALUES.to(torch.float8_e5m2)}),
    ("pad_jagged", "is too large for any memory", {"length": 2**62}),
    ("unpad_to_jagged", "padded must have shape (B, L, ...), got (4,)", {"padded": PADDED[:, 0, 0]}),
    ("unpad_to_jagged", "padded must have shape (B, L, ...) with 4 samples, one less than offsets, got (3, 7, 2)", {"padded": PADDED[:3]}),
    ("unpad_to_jagged", "total must not be negative, got -1", {"total": -1}),
    ("unpad_to_jagged", "offsets must not decrease and must be from 0 to 10, the number of rows, got 11", {"total": 10}),
    ("unpad_to_jagged", "side must be right or left", {"side": ""}),
    ("unpad_to_jagged", "from 0 to 0, the number of rows, got 5 at position 0", {"offsets": integers(5, 3, 9, 9, 9), "total": 0}),
    ("unpad_to_jagged", "from 0 to 4, the number of rows, got 5 at position 0", {"padded": PADDED[..., :0], "offsets": integers(5, 3, 9, 9, 9), "total": 4}),
    ("permute", "same letters, each once", {"input": "NHWC", "output": "NCH"}),
    ("permute", "same letters, each once", {"input": "NHHC", "output": "NCHH"}),
    ("permute", "an axis for each of the letters HWC, got shape (3, 5, 7, 3)", {"input": "HWC", "output": "CHW"}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "message", "wrong"), BAD)
def test_bad_arguments(op, message, wrong):
    arguments = VALID[op] | wrong
    first = arguments.pop(next(iter(arguments)))
    with pytest.raises(INVALID, match=re.escape(message)) as raised:
        getattr(P, op)(first, **arguments)
    assert str(raised.value).startswith(f"{op}: ")


def test_many_images_without_pixels_are_fast():
    assert P.normalize_images(IMAGES.new_empty(2**40, 0, 7, 3)).shape == (2**40, 3, 0, 7)


def test_fakes_check_arguments_that_determine_shapes():
    """The ops check the others at run time."""
    meta = IMAGES.to("meta")
    for wrong in ({"images": meta[0]}, {"images": meta, "input": "HWC"}):
        with pytest.raises(ValueError, match="normalize_images: input must be one of"):
            P.normalize_images(**wrong)
    for letters in (("NHWC", "NCH"), ("HWC", "CHW")):
        with pytest.raises(ValueError, match="permute: input and output must have the same"):
            P.permute(meta, *letters)


# By the shape of the output.
TOO_LARGE = {
    (2**61, 3, 1, 1): (P.normalize_images, (IMAGES[:1, :1, :1].expand(2**61, 1, 1, 3),), {}),
    (0, 2**62, 7, 3): (
        P.normalize_images,
        (IMAGES[:0, :1].expand(0, 2**62, 7, 3),),
        {"output": "NHWC", "dtype": torch.uint8},
    ),
    (0, 2, 2**62, 1): (P.permute, (torch.empty(0, 1, 1, 2).expand(0, 2**62, 1, 2),), {}),
    (4, 2**62, 2): (P.pad_jagged, (VALUES, OFFSETS, 2**62), {}),
    (0, 2**62, 8): (P.pad_jagged, (torch.zeros(0, 8), integers(0), 2**62), {}),
    (4, 2**62, 0): (P.pad_jagged, (VALUES[:, :0], OFFSETS, 2**62), {}),
    (2**62, 0): (P.unpad_to_jagged, (PADDED[..., :0], OFFSETS, 2**62), {}),
}  # fmt: skip


@pytest.mark.parametrize("shape", TOO_LARGE, ids=str)
def test_outputs_larger_than_any_memory(shape):
    op, args, kwargs = TOO_LARGE[shape]
    aside = ", sizes of 0 aside" if 0 in shape else ""
    message = f": an output of shape {shape} is too large for any memory{aside}"
    with pytest.raises(INVALID, match=re.escape(message) + "$") as raised:
        op(*args, **kwargs)
    assert str(raised.value).startswith(op._qualified_op_name[9:] + ":")


def test_outputs_with_too_many_bytes():
    message = f"pad_jagged: out could not be allocated: float32 (4, {2**44}, 2) on cpu"
    with pytest.raises(RuntimeError, match=re.escape(message)):
        P.pad_jagged(VALUES, OFFSETS, 2**44)
