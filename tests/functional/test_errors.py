"""Errors of normalize, permute and gather for invalid arguments, before a byte is written."""

import numpy as np
import pytest
import torch

import pinfeed
from messages import check

pytestmark = pytest.mark.kernels

IMAGES = np.zeros((2, 4, 5, 3), np.uint8)
TENSOR = torch.zeros((2, 4, 5, 3), dtype=torch.uint8)
ROWS = np.zeros((4, 3), np.float32)
NAN, INF = float("nan"), float("inf")

BAD_IMAGES = {
    "float": (IMAGES.astype(float), TypeError, "uint8", "(N, H, W, C)", "float64 (2, 4, 5, 3)"),
    "float tensor": (TENSOR.double(), TypeError, "uint8", "float64 (2, 4, 5, 3)"),
    "signed": (IMAGES.astype(np.int8), TypeError, "uint8", "int8"),
    "bool": (IMAGES.astype(np.bool_), TypeError, "uint8", "bool"),
    "one image": (IMAGES[0], ValueError, "(N, H, W, C)", "(4, 5, 3)"),
    "clips": (IMAGES[None], ValueError, "got uint8 (1, 2, 4, 5, 3)", 'for clips pass input="NTHWC"'),
    "0-d": (np.uint8(1)[...], ValueError, "0-d"),
    "list": ([IMAGES[0]], TypeError, "NumPy array or a torch tensor", "list"),
}  # fmt: skip


BAD_ARGUMENTS = {
    "mean too long": ({"mean": [0.5] * 4}, ValueError, "mean", "4 channels", "got 3"),
    "mean of one": ({"mean": [0.5]}, ValueError, "mean", "expected 1 channels", "got 3"),
    "std too short": ({"std": [0.5] * 2}, ValueError, "std", "2 channels", "got 3"),
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
    "std zero": ({"std": 0}, ValueError, "std", "must be positive", "got 0"),
    "std with a zero": ({"std": (1, 0.0, 1)}, ValueError, "std", "must be positive", "(1, 0.0, 1)"),
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
    "dtype bfloat16": (
        {"dtype": torch.bfloat16},
        TypeError,
        "NumPy has no bfloat16; pass tensors",
        "float16",
    ),
    "input": ({"input": "HCW"}, ValueError, "input", "NHWC", "'NHCW'"),
    "output": ({"output": "NHW"}, ValueError, "output", "NCHW", "'NHWC', got 'NHW'"),
    "clips": ({"input": "NTHWC"}, ValueError, "output", "['NCTHW', 'NTCHW', 'NTHWC']", "'NCHW'"),
    "no text": ({"input": 3}, ValueError, "input", "NHWC", "3"),
}


BAD_PERMUTATIONS = {
    "other letters": ((ROWS, "AB", "AC"), ValueError, "input and output", "'AB'", "'AC'"),
    "a letter twice": ((ROWS, "AA", "AA"), ValueError, "each once", "'AA'"),
    "a letter less": ((ROWS, "AB", "A"), ValueError, "input and output", "'AB'", "'A'"),
    "rank": ((ROWS, "ABC", "CBA"), ValueError, "images", "3 axes", "(4, 3)"),
    "rank of bytes": ((IMAGES[0],), ValueError, "images", "4 axes", "(4, 5, 3)"),
    "list": (([1], "A", "A"), TypeError, "images", "NumPy array", "list"),
    "larger": ((torch.zeros(1).expand(2**31, 2**31), "AB", "BA"), ValueError, "(2147483648, 2"),
    "more": ((torch.zeros(1).expand(2**30, 2**18), "AB", "BA"), MemoryError, ""),
}


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


# The call with a wrong value, words of its messages, the values, and an output that stays unchanged.
CALLS = [
    (pinfeed.functional.normalize, ("normalize", "images"), BAD_IMAGES, (2, 3, 4, 5)),
    (lambda options, **out: pinfeed.functional.normalize(IMAGES, **options, **out), ("normalize",), BAD_ARGUMENTS, (2, 3, 4, 5)),
    (lambda given, **out: pinfeed.functional.permute(*given, **out), ("permute",), BAD_PERMUTATIONS, (3, 4)),
    (lambda indices, **out: pinfeed.functional.gather(ROWS, indices, **out), ("gather", "indices"), BAD_INDICES, (2, 3)),
    (lambda array, **out: pinfeed.functional.gather(array, [0], **out), ("gather: array",), {"no rows": (np.array(1.0), ValueError, "0-d")}, ()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "words", "bad", "shape"),
    [(call, words, bad, shape) for call, words, table, shape in CALLS for bad in table.values()],
    ids=[f"{words[-1]}, {case}" for _, words, table, _ in CALLS for case in table],
)
def test_bad_calls(call, words, bad, shape):
    value, error, *more = bad
    check(lambda: call(value), error, *words, *more)
    out = np.full(shape, 7, np.float32)
    # Either of two errors can be raised; nothing may be written.
    with pytest.raises((TypeError, ValueError, IndexError, MemoryError)):
        call(value, out=out)
    assert (out == 7).all()
