"""torch.ops.pinfeed and the functions on a CUDA device. Needs one: without it, all of this fails."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given

import op_batches
import op_cases
import pinfeed
from arrays import assert_same_bits
from pinfeed import Collate, FieldContext, Image, Jagged, JaggedBatch
from pinfeed.functional.torch_ops import has_kernels

pytestmark = pytest.mark.gpu_only

P = torch.ops.pinfeed
DEVICE = torch.device("cuda:0")
MEAN, STD = op_cases.MEAN, op_cases.STD
# Created late, because a missing device would fail during collection, with a worse message.
CALLS = list(op_cases.calls())


def test_every_op_has_a_kernel():
    for name in op_cases.OPS:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"pinfeed::{name}", "CUDA")
    # Otherwise fields run on the CPU, whose results have the same bits.
    assert has_kernels(DEVICE)


def on_device(arguments):
    return op_cases.moved(arguments, DEVICE)


def assert_same_tensors(got, expected):
    for one, other in zip(op_cases.tensors(got), op_cases.tensors(expected), strict=True):
        assert one.is_cuda
        assert_same_bits(one.cpu(), other)


@pytest.mark.parametrize(
    ("op", "args", "kwargs"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS]
)
# torch hides this warning too late for the "error" filter.
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not an entry:UserWarning"
)
def test_opcheck(op, args, kwargs):
    args = tuple(
        a.detach().to(DEVICE).requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a
        for a in args
    )
    results = torch.library.opcheck(op.default, args, on_device(kwargs))
    assert list(results.values()) == ["SUCCESS"] * 4


@pytest.mark.kernels
@given(op_batches.image_calls(max_size=130))
def test_normalize_images(call):
    images, constants, options, expected = call
    result = P.normalize_images(on_device((images,))[0], **constants, **on_device(options))
    assert_same_bits(result.cpu(), expected)


@pytest.mark.kernels
@given(op_batches.permutations())
def test_permute(call):
    images, input, output, expected = call
    assert_same_bits(P.permute(on_device((images,))[0], input, output).cpu(), expected)


@pytest.mark.kernels
@given(op_batches.jagged_calls())
def test_pad_jagged_and_back(call):
    values, offsets, length, options, expected = call
    there, starts = on_device((values, offsets))
    padded = P.pad_jagged(there, starts, length, **options)
    assert_same_bits(padded.cpu(), expected)
    del options["pad_value"]
    back = P.unpad_to_jagged(padded, starts, len(values), **options)
    assert_same_bits(back.cpu(), op_batches.unpadded(values, offsets, options))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("shape", [(64, 224, 224, 3), (3, 1079, 1921, 3), (9, 65, 33, 1)], ids=str)
def test_large_batches(shape, dtype, layout):
    images = op_cases.images(shape=shape)
    constants = {} if dtype == torch.uint8 else {"mean": [0.45], "std": [0.22]}
    options = {"dtype": dtype, "output": "NHWC" if layout == "NHWC" else "NCHW"}
    options |= {"channels_last": True} if layout == "channels_last" else {}
    expected = P.normalize_images(images, **constants, **options)
    result = P.normalize_images(images.to(DEVICE), **constants, **options)
    assert result.stride() == expected.stride()
    assert torch.equal(result.cpu(), expected)


def test_more_than_32_bits():
    images = torch.zeros(1, dtype=torch.uint8, device=DEVICE).expand(2, 32768, 32768, 2)
    batch = P.normalize_images(images, [0.0, 1.0], [1.0, 0.5], scale=1.0, dtype=torch.bfloat16)
    assert batch.numel() == 2**32
    assert (batch[:, 0] == 0).all()
    assert (batch[:, 1] == -2).all()


def test_functions():
    images = op_cases.images(shape=(4, 9, 11, 3))
    there = images.to(DEVICE)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        expected = pinfeed.functional.normalize(images, MEAN, STD, dtype=dtype)
        assert_same_tensors(pinfeed.functional.normalize(there, MEAN, STD, dtype=dtype), expected)
        out = torch.empty_like(expected, device=DEVICE)
        assert pinfeed.functional.normalize(there, MEAN, STD, dtype=dtype, out=out) is out
        assert_same_tensors(out, expected)
    assert_same_tensors(pinfeed.functional.permute(there), pinfeed.functional.permute(images))
    assert_same_tensors(
        pinfeed.functional.permute(there, "αβγδ", "δβαγ"), images.permute(3, 1, 0, 2)
    )


@pytest.mark.parametrize("dtype", [None, torch.float64])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("value", [0, 2**60])
def test_pad_of_a_jagged_batch(value, side, dtype):
    batch = Collate(Jagged())([np.arange(n) for n in (3, 0, 17, 5)])
    there = JaggedBatch(*(part.to(DEVICE) for part in batch))
    options = {"side": side, "dtype": dtype, "multiple_of": 8}
    for max_length in (None, 6):
        options["max_length"] = max_length
        expected = pinfeed.functional.pad(batch, value, mask=True, **options)
        for result in (
            pinfeed.functional.pad(there, value, mask=True, **options),
            there.to_padded(value, mask=True, **options),
        ):
            for one, other in zip(result, expected, strict=True):
                assert_same_tensors(one, other)
        if max_length is None:
            back = JaggedBatch.from_padded(expected.values.to(DEVICE), expected.lengths, side=side)
            assert_same_tensors(back.values, batch.values.to(dtype or torch.int64))
            assert_same_tensors(back.offsets, batch.offsets)


def test_fields_use_the_ops():
    images = op_cases.images()
    for field in (Image(MEAN, STD, channels_last=True, dtype=torch.bfloat16),):
        expected = field.apply(images, images, FieldContext("batch"))
        result = field.apply(images.to(DEVICE), images, FieldContext("batch"))
        assert_same_tensors(
            tuple(result) if isinstance(result, tuple) else result,
            tuple(expected) if isinstance(expected, tuple) else expected,
        )


def test_gradients():
    values, offsets = op_cases.jagged(DEVICE, dtype=torch.float64)
    values.requires_grad_()
    for options in ({}, {"side": "left", "max_length": 3}):
        assert torch.autograd.gradcheck(
            lambda values, options=options: P.pad_jagged(values, offsets, 5, **options), values
        )


# torch 2.11's inductor uses functions that torch 2.11 deprecates.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
def test_compile():
    def step(images, values, offsets):
        batch = P.normalize_images(images, MEAN, STD, channels_last=True)
        return batch.relu(), P.pad_jagged(values, offsets, 9) * 2

    compiled = torch.compile(step, fullgraph=True)
    args = (op_cases.images(DEVICE), *op_cases.jagged(DEVICE))
    for got, expected in zip(compiled(*args), step(*args), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("channels", [3, 40])
def test_capture_into_a_graph(channels):
    images = op_cases.images(DEVICE, (4, 6, 7, channels))
    values, offsets = op_cases.jagged(DEVICE)
    mean = [c / channels for c in range(channels)]

    def step():
        batch = P.normalize_images(images, mean, [0.3])
        padded = P.pad_jagged(values, offsets, 8, pad_value=-1.0)
        return batch, P.permute(images), padded, P.unpad_to_jagged(padded, offsets, 12)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    images.copy_(255 - images)
    values.mul_(3)
    offsets.copy_(torch.tensor([0, 2, 3, 11, 12]))
    graph.replay()
    for got, expected in zip(results, step(), strict=True):
        assert torch.equal(got, expected)


def test_ops_run_on_the_current_stream():
    images = op_cases.images(DEVICE, (64, 224, 224, 3))
    expected = P.normalize_images(images, MEAN, STD)
    out = torch.zeros_like(expected)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # about a tenth of a second
        pinfeed.functional.normalize(images, MEAN, STD, out=out)
    assert not stream.query()
    assert (out == 0).all()  # on the default stream, ahead of the other one
    stream.synchronize()
    assert torch.equal(out, expected)


def test_nothing_waits_for_the_device():
    images, (values, offsets) = op_cases.images(DEVICE), op_cases.jagged(DEVICE)

    def calls():
        P.normalize_images(images, MEAN, STD)
        padded = P.pad_jagged(values, offsets, 7)
        P.unpad_to_jagged(padded, offsets, 12)
        P.permute(images)

    calls()  # loading at the first call can wait
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's warning that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        calls()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_two_devices():
    images, (values, offsets) = op_cases.images(), op_cases.jagged()
    there = images.to(DEVICE)
    with pytest.raises(ValueError, match=r"out must be .* on cuda:0, got .* on cpu"):
        pinfeed.functional.normalize(there, out=torch.empty(3, 3, 5, 7))
    with pytest.raises(ValueError, match=r"offsets must be on cuda:0 .* got cpu"):
        P.pad_jagged(values.to(DEVICE), offsets, 3)
    if torch.cuda.device_count() > 1:
        with pytest.raises(ValueError, match=r"offsets must be on cuda:0 .* got cuda:1"):
            P.pad_jagged(values.to(DEVICE), offsets.to("cuda:1"), 3)
        other = P.normalize_images(images.to("cuda:1"), MEAN, STD)
        assert other.device == torch.device("cuda:1")
        assert torch.equal(other.cpu(), P.normalize_images(images, MEAN, STD))


@pytest.mark.kernels
def test_offsets_out_of_range():
    values, _ = op_cases.jagged(DEVICE)
    offsets = torch.tensor([-5, 4, 2, 99], device=DEVICE)
    expected = P.pad_jagged(values.cpu(), torch.tensor([0, 4, 4, 4]), 12)
    padded = P.pad_jagged(values, offsets, 12)
    assert torch.equal(padded[:2].cpu(), expected[:2])


@pytest.mark.parametrize("channels", [40, 128])
def test_many_channels(channels):
    images = op_cases.images(DEVICE, (2, 5, 3, channels))
    mean = [c / channels for c in range(channels)]
    expected = P.normalize_images(images.cpu(), mean)
    assert torch.equal(P.normalize_images(images, mean).cpu(), expected)


def test_too_many_channels():
    images = op_cases.images(DEVICE, (2, 5, 3, 129))
    with pytest.raises(ValueError, match="at most 128 channels, got 129"):
        P.normalize_images(images)
    halves = [P.normalize_images(images[..., part]) for part in (slice(64), slice(64, None))]
    assert torch.equal(torch.cat(halves, 1).cpu(), P.normalize_images(images.cpu()))
    there = P.normalize_images(images, dtype=torch.uint8)  # moved, not computed
    assert torch.equal(there, images.permute(0, 3, 1, 2))
