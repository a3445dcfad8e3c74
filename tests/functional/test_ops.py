"""torch.ops.pinfeed: opcheck, fakes, gradients, loading, and CPU results compared with NumPy."""

import contextlib
import ctypes.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given

import op_batches
import op_cases
import pinfeed
from arrays import assert_same_bits, random_array
from pinfeed.functional.torch_ops import library
from programs import run_program

pytestmark = pytest.mark.kernels

P = torch.ops.pinfeed
CALLS = list(op_cases.calls())
every_call = pytest.mark.parametrize(
    ("op", "args", "kwargs"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS]
)


def test_every_op_exists():
    assert set(dir(P)) >= set(op_cases.OPS)
    for name in op_cases.OPS:
        assert getattr(P, name).overloads() == ["default"]
    assert {op._qualified_op_name for _, op, *_ in CALLS} == {f"pinfeed::{n}" for n in op_cases.OPS}
    assert P.normalize_images.default._schema.arguments[3].default_value == 1 / 255


@every_call
# torch hides this warning too late for the "error" filter.
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not an entry:UserWarning"
)
def test_opcheck(op, args, kwargs):
    results = torch.library.opcheck(op.default, args, kwargs)
    assert list(results.values()) == ["SUCCESS"] * 4


@every_call
def test_meta(op, args, kwargs):
    with torch.no_grad():
        results = op(*args, **kwargs)
        meta = op(*op_cases.moved(args, "meta"), **op_cases.moved(kwargs, "meta"))
    for expected, got in zip(op_cases.tensors(results), op_cases.tensors(meta), strict=True):
        assert got.is_meta
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        assert got.stride() == expected.stride()


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("length", "most"), [(9, None), (4, None), (6, 3)])
def test_gradients(side, length, most):
    values, offsets = op_cases.jagged(dtype=torch.float64)
    options = {"side": side, "max_length": most}
    values.requires_grad_()
    pad = {"pad_value": 5.0, **options}

    def padded(values):
        return P.pad_jagged(values, offsets, length, **pad)

    assert torch.autograd.gradcheck(padded, values)
    batch = padded(values).detach().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda batch: P.unpad_to_jagged(batch, offsets, 12, **options), batch
    )
    assert torch.autograd.gradgradcheck(padded, values)


def test_gradient_of_permute():
    images = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda images: P.permute(images, "ABCD", "DBAC"), images)


def test_inference_mode():
    values, offsets = op_cases.jagged()
    with torch.inference_mode():
        padded = P.pad_jagged(values, offsets, 7)
    assert torch.equal(padded, P.pad_jagged(values, offsets, 7))


def test_use_isa_forces_the_ops_too(isa):
    # An unknown name raises. Tests that use the `isa` fixture compare the results of both libraries.
    images = op_cases.images()
    batch = P.normalize_images(images, op_cases.MEAN, op_cases.STD)
    assert torch.equal(batch, pinfeed.functional.normalize(images, op_cases.MEAN, op_cases.STD))


@pytest.mark.slow  # copies the package
def test_without_the_library(tmp_path, monkeypatch):
    package = Path(pinfeed.__file__).parent
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    shutil.copytree(package, tmp_path / "pinfeed", ignore=shutil.ignore_patterns("libpinfeed*"))
    attribute, function, shape, info, file = json.loads(run_program("without_the_ops", fresh=True))
    assert file.startswith(str(tmp_path))
    assert attribute.startswith("torch.ops.pinfeed.permute: this pinfeed was built without torch;")
    assert attribute.endswith(ADVICE)
    assert function.startswith(
        "pad: tensors on cuda need torch ops: this pinfeed was built without"
    )
    assert shape == [1, 3, 2, 2]
    assert info.startswith("none: this pinfeed was built without torch;")
    assert info.endswith(ADVICE)


ADVICE = "in a checkout of pinfeed, pip install --force-reinstall --no-deps ."


@pytest.fixture
def cuda_library(monkeypatch, tmp_path):
    """Loads the ops again with this library of CUDA kernels and a torch that reports CUDA."""

    def load(path):
        monkeypatch.setattr(library, "_CUDA_LIBRARY", path)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(library, "_no_cuda", library._load_cuda())

    return load


def test_without_the_cuda_library(cuda_library, tmp_path):
    cuda_library(tmp_path / "nowhere.so")
    with pytest.raises(RuntimeError, match="normalize: tensors on cuda:0 need CUDA ") as raised:
        library.require("normalize", torch.device("cuda:0"))
    assert "this pinfeed was built without them; build it where nvcc is" in str(raised.value)
    assert library.status() == f"CPU; no CUDA kernels: {library._no_cuda}"
    assert str(raised.value).endswith(ADVICE)


def test_a_cuda_library_that_cannot_be_loaded(cuda_library, tmp_path):
    broken = tmp_path / "libbroken.so"
    broken.write_bytes(b"no library")
    cuda_library(broken)
    with pytest.raises(
        RuntimeError, match=r"pad: .* could not be loaded: .*libbroken\.so"
    ) as raised:
        library.require("pad", torch.device("cuda:0"))
    assert str(raised.value).endswith(ADVICE)
    library.require("pad", torch.device("cpu"))


@pytest.mark.skipif(not library._CUDA_LIBRARY.exists(), reason="built without nvcc")
def test_kernels_that_a_device_cannot_run(monkeypatch):
    """A driver that is too old counts as no device."""
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    if ctypes.util.find_library("cuda"):
        assert library._can_run.__wrapped__(0)
        return
    message = (
        r"pinfeed's kernels can't run on cuda:0, so fields run on the CPU: CUDA "
        "says .*; the driver is older than the CUDA that pinfeed was built with: update it, or build"
    )
    with pytest.warns(RuntimeWarning, match=message):
        assert not library._can_run.__wrapped__(0)


def test_torch_without_cuda(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)  # also ROCm
    assert library._load_cuda() == "this torch was built without CUDA"


def test_spawned_threads_use_the_ops():
    from concurrent.futures import ThreadPoolExecutor

    images = op_cases.images(shape=(8, 64, 64, 3))
    expected = pinfeed.functional.normalize(images, op_cases.MEAN, op_cases.STD)
    with ThreadPoolExecutor(8) as pool:
        batches = pool.map(
            lambda _: P.normalize_images(images, op_cases.MEAN, op_cases.STD), range(64)
        )
        assert all(torch.equal(batch, expected) for batch in batches)


@given(op_batches.image_calls())
def test_normalize_images(isa, call):
    images, constants, options, expected = call
    result = P.normalize_images(images, **constants, **options)
    assert_same_bits(result, expected)
    if options.get("channels_last") and result.numel() > 0:
        assert result.is_contiguous(memory_format=torch.channels_last)
    elif not options.get("channels_last"):
        assert result.is_contiguous()


@given(op_batches.permutations())
def test_permute(isa, call):
    images, input, output, expected = call
    result = P.permute(images, input, output)
    assert result.dtype == images.dtype
    assert result.is_contiguous()
    assert_same_bits(result, expected)


@given(op_batches.jagged_calls())
def test_pad_jagged_and_back(isa, call):
    values, offsets, length, options, expected = call
    padded = P.pad_jagged(values, offsets, length, **options)
    assert_same_bits(padded, expected)
    del options["pad_value"]
    back = P.unpad_to_jagged(padded, offsets, len(values), **options)
    assert_same_bits(back, op_batches.unpadded(values, offsets, options))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8])
def test_streaming_and_threads(dtype):
    images = torch.from_numpy(random_array((12 // dtype.itemsize, 601, 803, 3)))
    constants = {} if dtype == torch.uint8 else {"mean": op_cases.MEAN, "std": op_cases.STD}
    threads = torch.get_num_threads()
    for count in (1, 3):
        torch.set_num_threads(count)
        batch = P.normalize_images(images, **constants, dtype=dtype, channels_last=count == 3)
        if dtype == torch.uint8:
            expected = images.permute(0, 3, 1, 2)
        else:
            expected = pinfeed.functional.normalize(
                images, op_cases.MEAN, op_cases.STD, dtype=dtype
            )
        assert torch.equal(batch, expected)
    torch.set_num_threads(threads)


def test_large_jagged_batches_and_threads():
    values, lengths = torch.arange(3_000_000), torch.arange(0, 3000, 3)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    padded = P.pad_jagged(values, offsets, 3000, pad_value=-1)
    batch = pinfeed.JaggedBatch(values, offsets)
    assert torch.equal(padded, batch.to_padded(-1, lengths=False, multiple_of=3000))
    back = P.unpad_to_jagged(padded, offsets, len(values))
    assert torch.equal(back[: offsets[-1]], values[: offsets[-1]])
    assert not back[offsets[-1] :].any()
