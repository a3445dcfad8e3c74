"""Random calls of torch.ops.pinfeed, and their results in plain NumPy; for any device."""

import itertools

import numpy as np
import torch
from hypothesis import strategies as st

import reference
from arrays import NUMPY_DTYPES, as_kind, random_array, views

PIXEL_DTYPES = ["float32", "float16", "bfloat16", "uint8"]
LAYOUTS = {"NHWC": (1, 2), "NCHW": (2, 3), "NHW": (1, 2)}  # positions of H and W


@st.composite
def image_calls(draw, max_size=70):
    """Draws arguments of normalize_images, and the expected batch."""
    input = draw(st.sampled_from(list(LAYOUTS)))
    dtype = draw(st.sampled_from(PIXEL_DTYPES))
    output = draw(st.sampled_from(["NCHW", "NHWC", "channels_last"]))
    size = st.one_of(st.integers(0, 5), st.integers(1, max_size))
    channels = 1 if input == "NHW" else draw(st.one_of(st.integers(1, 5), st.just(40)))
    count, height, width = draw(st.integers(0, 4)), draw(size), draw(size)
    axes = {"N": count, "H": height, "W": width, "C": channels}
    array = draw(views(tuple(axes[letter] for letter in input), mirrored=False))
    options = {"input": input, "dtype": getattr(torch, dtype), "output": output}
    if output == "channels_last":
        options |= {"output": "NCHW", "channels_last": True}
    constants = {}
    if dtype != "uint8":
        mean = [0.5 - 0.01 * c for c in range(channels)]
        constants["mean"] = draw(st.sampled_from([None, [0.45], mean]))
        constants["std"] = draw(st.sampled_from([None, [0.25], [0.2 + 0.01 * c for c in mean]]))
        options["scale"] = constants["scale"] = draw(st.sampled_from([1 / 255, 1.0]))
    values = {name: value for name, value in constants.items() if name != "scale"}
    expected = reference.images(array, dtype=dtype, input=input, output="NHWC", **constants)
    expected = reference.permute(expected, "NHWC", options["output"])
    return torch.from_numpy(array), values, options, expected


@st.composite
def permutations(draw, kinds=("tensor",)):
    """Draws an array of any dtype, rank and strides, two orders of its axes, and the permuted array."""
    kind = draw(st.sampled_from(kinds))
    input = "".join(draw(st.permutations("NTHWCβ"))[: draw(st.integers(1, 5))])
    output = "".join(draw(st.permutations(input)))
    if draw(st.booleans()):
        input, output = draw(st.permutations(["NHWC", "NCHW"]))
    size = st.one_of(st.integers(0, 5), st.integers(1, 40))
    shape = tuple(draw(size if axis < 3 else st.integers(1, 4)) for axis in range(len(input)))
    array = draw(views(shape, draw(st.sampled_from(NUMPY_DTYPES)), mirrored=kind != "tensor"))
    return as_kind(kind, array), input, output, reference.permute(array, input, output)


@st.composite
def jagged_calls(draw):
    """Draws arguments of pad_jagged, and the expected values."""
    row = tuple(draw(st.lists(st.integers(0, 4), max_size=2)))
    dtype = draw(st.sampled_from(NUMPY_DTYPES))
    lengths = draw(st.lists(st.one_of(st.integers(0, 4), st.integers(1, 50)), max_size=6))
    before, after = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    offsets = np.concatenate([[before], before + np.cumsum(lengths)]).astype(np.int64)
    total = int(offsets[-1]) + after
    if draw(st.booleans()):
        values = draw(views((total, *row), dtype, mirrored=False))
    else:
        values = random_array((total, *row), dtype)
    max_length = draw(st.one_of(st.none(), st.integers(1, 60)))
    longest = min(max([1, *lengths]), max_length or 60)
    options = {
        "side": draw(st.sampled_from(["right", "left"])),
        "pad_value": float(draw(st.sampled_from([0, 1]))),
        "max_length": max_length,
    }
    length = draw(st.integers(longest, longest + 9))
    samples = [values[a:b] for a, b in itertools.pairwise(offsets)]
    if samples:
        keywords = {"max_length": max_length, "min_sizes": (length,)}
        expected, *_ = reference.pad(samples, options["pad_value"], options["side"], **keywords)
    else:
        expected = np.empty((0, length, *row), dtype)
    return torch.from_numpy(values), torch.from_numpy(offsets), length, options, expected


def unpadded(values, offsets, options):
    """Returns the expected result of unpad_to_jagged: zeros for missing or truncated rows."""
    result = np.zeros_like(np.asarray(values))
    max_length = options["max_length"]
    for begin, end in itertools.pairwise(offsets.tolist()):
        length = end - begin if max_length is None else min(end - begin, max_length)
        rows = (
            slice(end - length, end) if options["side"] == "left" else slice(begin, begin + length)
        )
        result[rows] = np.asarray(values)[rows]
    return result
