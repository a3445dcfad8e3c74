"""Tests of all array functions: array types, threads, `out`, and errors before writing."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import pinfeed
import reference
from arrays import assert_same_bits, random_array, unwritten
from messages import check
from programs import run_program
from unusable import fake, freed, wrapped

pytestmark = pytest.mark.kernels


class Case(NamedTuple):
    """A function, an input array, its name in messages, and the expected result."""

    call: Callable[..., Any]
    argument: str
    array: np.ndarray
    expected: Callable[[np.ndarray], np.ndarray]


def normalize(images, **options):
    return pinfeed.functional.normalize(images, 0.5, 0.25, input="NHWC", **options)


def pad(rows, **options):
    return pinfeed.functional.pad(rows, 7, side="left", multiple_of=2, lengths=False, **options)


INDICES = [1, 0, -1]
CASES = {
    "normalize": Case(normalize, "images", random_array((5, 41, 37, 3)), lambda a: reference.images(a, 0.5, 0.25)),
    "permute": Case(pinfeed.functional.permute, "images", random_array((5, 41, 37, 3), np.int32), lambda a: reference.permute(a, "NHWC", "NCHW")),
    "permute, bytes": Case(pinfeed.functional.permute, "images", random_array((5, 41, 37, 3)), lambda a: reference.permute(a, "NHWC", "NCHW")),
    "gather": Case(lambda a, **o: pinfeed.functional.gather(a, INDICES, **o), "array", random_array((5, 41, 37), np.uint16), lambda a: a[INDICES]),
    "pad": Case(pad, "sequences", random_array((5, 41, 37), np.int64), lambda a: reference.pad(list(a), 7, "left", multiple_of=2)[0]),
}  # fmt: skip
every_function = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def large(array):
    """An array that is large enough for several threads and streaming stores."""
    return np.tile(array, (20, 11, *[1] * (array.ndim - 2)))


@every_function
def test_any_number_of_threads(case, num_threads):
    for array in (case.array, large(case.array)):
        assert_same_bits(case.call(array), case.expected(array))


@every_function
def test_the_result_has_the_type_of_the_input(case, tmp_path):
    expected = case.expected(case.array)
    fixed = case.array.view()
    fixed.flags.writeable = False
    np.save(tmp_path / "array.npy", case.array)
    mapped = np.load(tmp_path / "array.npy", mmap_mode="r")
    for array in (case.array, fixed, mapped, torch.from_numpy(case.array)):
        result = case.call(array)
        assert type(result) is (torch.Tensor if isinstance(array, torch.Tensor) else np.ndarray)
        assert_same_bits(result, expected)


@every_function
@pytest.mark.parametrize("kind", ["ndarray", "tensor"])
def test_out(case, kind):
    array = torch.from_numpy(case.array) if kind == "tensor" else case.array
    expected = case.expected(case.array)
    out = unwritten(kind, expected.shape, expected.dtype.name)
    before = getattr(out, "_version", 0)
    assert case.call(array, out=out) is out
    assert_same_bits(out, expected)
    assert kind == "ndarray" or out._version > before  # so autograd detects the change
    if case.argument != "sequences":  # and of the other type
        other = case.array if kind == "tensor" else torch.from_numpy(case.array)
        again = unwritten(kind, expected.shape, expected.dtype.name)
        assert case.call(other, out=again) is again
        assert_same_bits(again, expected)


# Errors about `out`, for any other arguments.
BAD_OUT = {
    "longer": (lambda out: np.concatenate([out, out]), ValueError, ["shape"]),
    "shorter": (lambda out: out[:1], ValueError, ["shape"]),
    "another rank": (lambda out: out[0], ValueError, ["shape"]),
    "another dtype": (lambda out: out.astype(np.complex64), TypeError, ["dtype", "complex64"]),
    "as wide": (lambda out: out.view(f"V{out.itemsize}"), TypeError, ["dtype"]),
    "byte-swapped": (lambda out: out.view(out.dtype.newbyteorder()), TypeError, ["byte order"]),
    "read-only": (lambda out: np.broadcast_to(out, out.shape), ValueError, ["read-only"]),
    "steps": (lambda out: out.repeat(2, -1)[..., ::2], ValueError, ["contiguous", "strides"]),
    "mirrored": (lambda out: out[:, ::-1], ValueError, ["contiguous", "strides"]),
    "a list": (lambda out: out.tolist(), TypeError, ["list"]),
    "a function": (lambda out: lambda shape, dtype: out, TypeError, ["function"]),
}


@every_function
@pytest.mark.parametrize("bad", BAD_OUT.values(), ids=BAD_OUT)
def test_bad_out(case, bad):
    make, error, words = bad
    expected = case.expected(case.array)
    if expected.itemsize == 1 and words == ["byte order"]:
        return
    out = make(np.full_like(expected, 7))
    name = case.call.__name__ if case.call.__module__ == __name__ else ""
    check(
        lambda: case.call(case.array, out=out), error, name if name in CASES else "", "out", *words
    )
    if isinstance(out, np.ndarray) and out.dtype.isnative and out.dtype.kind != "V":
        assert (out == 7).all()


@every_function
@pytest.mark.parametrize("bad", ["read-only", "byte-swapped", "mirrored", "longer", "steps"])
def test_bad_arrays_as_out_of_tensors(case, bad):
    """Read-only files and bytes stay unchanged."""
    if case.call.__name__ == "pad":
        return  # of sequences
    expected = case.expected(case.array)
    if expected.itemsize == 1 and bad == "byte-swapped":
        return
    make, error, _ = BAD_OUT[bad]
    out = make(np.full_like(expected, 7))
    check(lambda: case.call(torch.from_numpy(case.array), out=out), (error, ValueError), "out")
    if out.dtype.isnative:
        assert (out == 7).all()


@every_function
def test_bad_tensors_as_out(case):
    array = torch.from_numpy(case.array)
    out = torch.full_like(torch.from_numpy(case.expected(case.array)), 7)
    check(lambda: case.call(array, out=out[:1].expand(out.shape)), ValueError, "out", "contiguous")
    if out.is_floating_point():
        check(lambda: case.call(array, out=out.clone().requires_grad_()), TypeError, "detach()")
    check(lambda: case.call(array, out=out.to("meta")), TypeError, "out", "CPU")
    empty = out.clone()
    empty.untyped_storage().resize_(0)
    check(lambda: case.call(array, out=empty), TypeError, "memory of its own")
    assert (out == 7).all()


@every_function
@pytest.mark.parametrize("shift", [0, 1, -1], ids=["at the start", "within", "before the end"])
def test_out_that_overlaps_the_input(case, shift):
    expected = case.expected(case.array)
    memory = np.full(3 * (case.array.nbytes + expected.nbytes), 7, np.uint8)
    begin = expected.nbytes // 8 * 8 + 8
    array = memory[begin:][: case.array.nbytes].view(case.array.dtype).reshape(case.array.shape)
    offset = begin + {0: 0, 1: case.array.nbytes - 8, -1: 8 - expected.nbytes}[shift]
    offset -= offset % 8
    out = memory[offset:][: expected.nbytes].view(expected.dtype).reshape(expected.shape)
    for one in (array, array[:, ::-1]):
        check(lambda one=one: case.call(one, out=out), ValueError, "out", "overlap")
    assert (memory == 7).all()
    beside = memory[begin + case.array.nbytes :][: expected.nbytes]
    beside = beside.view(expected.dtype).reshape(expected.shape)
    case.call(array, out=beside)
    assert_same_bits(beside, case.expected(array))


# Arrays without numbers or without host memory.


REFUSED = {
    "objects": (lambda a: a.astype(object), "object"),
    "text": (lambda a: a.astype("U1"), "<U1"),
    "dates": (lambda a: a.astype("M8[s]"), "datetime64"),
    "structured": (lambda a: a.astype("i4,i4"), "i4"),
    "byte-swapped": (lambda a: a.astype(">i4"), "byte order"),
    "meta": (lambda a: torch.from_numpy(a).to("meta"), "CPU"),
    "sparse": (lambda a: torch.from_numpy(a.astype("f4")).to_sparse(), "dense"),
    "gradients": (lambda a: torch.from_numpy(a.astype("f4")).requires_grad_(), "detach()"),
    "conjugated": (lambda a: torch.from_numpy(a.astype("c8")).conj(), ""),
    "8-bit floats": (lambda a: torch.from_numpy(a.astype("f4")).to(torch.float8_e5m2), "float8"),
    "fake": (lambda a: fake(torch.from_numpy(a)), ""),
    "a wrapper": (lambda a: wrapped(torch.from_numpy(a)), ""),
    "freed": (lambda a: freed(torch.from_numpy(a)), ""),
    "None": (lambda _: None, "NoneType"),
}


@every_function
@pytest.mark.parametrize("bad", REFUSED.values(), ids=REFUSED)
def test_inputs_that_no_function_accepts(case, bad):
    make, word = bad
    array = make(case.array)
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        case.call(array)
    assert word in str(caught.value)
    assert case.argument in str(caught.value) or word == ""
    out = np.full_like(case.expected(case.array), 7)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        case.call(array, out=torch.from_numpy(out) if isinstance(array, torch.Tensor) else out)
    assert (out == 7).all()


def test_an_empty_tensor_needs_no_memory():
    assert pinfeed.functional.gather(torch.empty(3, 0), [0, 2]).shape == (2, 0)


# The pool of results; small ones come from malloc.


@every_function
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_memory_of_a_dropped_result_is_reused(case, convert):
    array = convert(large(case.array))
    address = np.asarray(case.call(array)).ctypes.data
    assert np.asarray(case.call(array)).ctypes.data == address
    results = [case.call(array) for _ in range(5)]
    addresses = {np.asarray(result).ctypes.data for result in results}
    assert len(addresses) == 5
    for result in results:
        assert_same_bits(result, results[0])
    del result
    thread = threading.Thread(target=results.clear)  # they can be freed on any thread
    thread.start()
    thread.join()
    assert {np.asarray(r).ctypes.data for r in [case.call(array) for _ in range(5)]} == addresses
    for _ in range(10):
        with pytest.raises((TypeError, ValueError)):
            case.call(array, out=[])
    assert {np.asarray(r).ctypes.data for r in [case.call(array) for _ in range(5)]} == addresses


@pytest.mark.processes
def test_results_do_not_depend_on_earlier_memory(monkeypatch):
    # Functions write all of their output, so they overwrite the poison. The native tests check the pool itself.
    expected = run_program("digest_of_results")
    monkeypatch.setenv("PINFEED_DEBUG", "1")
    assert run_program("digest_of_results", fresh=True) == expected
