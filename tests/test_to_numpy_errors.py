"""to_numpy: arrays of the caller, what is refused, and what is left when something fails."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import DataLoader, TensorDataset

import pinfeed
from pinfeed.exports.to_numpy import to_numpy
from samples import Point, assert_same


def test_out_is_filled_and_returned() -> None:
    x, y = torch.randn(10, 3), torch.arange(10)
    out = [np.zeros((10, 3), np.float32), np.zeros(10, np.int64)]
    for loader in (DataLoader(TensorDataset(x, y), 4), list(DataLoader(TensorDataset(x, y), 4))):
        result = to_numpy(loader, out)
        assert result[0] is out[0]
        assert result[1] is out[1]
        assert_same(result, [x.numpy(), y.numpy()])


def test_out_that_is_longer_strided_or_left_to_make() -> None:
    batches = [{"x": np.full((2, 3), i, ">i2"), "y": ["a", "b"], "z": np.ones(2)} for i in range(3)]
    base = np.zeros((16, 6), ">i2")
    result = to_numpy(iter(batches), {"x": base[::2, ::2], "y": None, "z": None})
    assert_same(result["x"].copy(), np.repeat(np.arange(3), 2)[:, None].astype(">i2").repeat(3, 1))
    assert np.shares_memory(result["x"], base)
    assert (base[12:] == 0).all()
    assert (base[1::2] == 0).all()
    assert result["y"] == ["a", "b"] * 3
    assert_same(result["z"], np.ones(6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_out_with_strides_takes_tensors(dtype: torch.dtype) -> None:
    values = torch.randn(4, 3, dtype=dtype)
    expected = (values.float() if dtype == torch.bfloat16 else values).numpy()
    out = np.zeros((3, 4), expected.dtype).T
    assert to_numpy([values], out) is out
    assert_same(out.copy(), expected.copy())


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


BATCH = np.zeros((4, 3), np.float32)
JAGGED = pinfeed.JaggedBatch(np.zeros(3), np.array([0, 3]))

BAD_OUT: tuple[tuple[Any, Any, type[Exception], str], ...] = (
    (BATCH, np.zeros((8, 3)), TypeError, "batch 0: out must have dtype float32, got float64"),
    (BATCH, np.zeros((8, 4), "f4"), ValueError, r"shape \(N, 3\), got \(8, 4\); pad=a number"),
    (BATCH, np.zeros((8, 2), "f4"), ValueError, r"out must have shape \(N, 3\), got \(8, 2\)$"),
    (BATCH, np.zeros(8, "f4"), ValueError, r"out must have shape \(N, 3\), got \(8,\)$"),
    (BATCH, np.zeros((), "f4"), ValueError, r"out must have shape \(N, 3\), got \(\)$"),
    (BATCH, read_only(np.zeros((8, 3), "f4")), ValueError, "must be writable, got a read-only"),
    (BATCH, torch.zeros(8, 3), TypeError, "out must be an ndarray or None, got Tensor"),
    (BATCH, [np.zeros((8, 3), "f4")], TypeError, "out must be an ndarray or None, got list"),
    ([BATCH], np.zeros((8, 3), "f4"), ValueError, r"out has ndarray, but batches have \['\[0\]'\]"),
    ({"x": BATCH}, {}, ValueError, r"out has \[\], but batches have"),
    ({"x": [BATCH]}, {"x": [None, None]}, ValueError, r"out\['x'\] has .*\[1\].*None for an array"),
    (["a", "b"], [None, None], TypeError, "batch 0: out must be None, .*got list"),
    (JAGGED, np.zeros(3), TypeError, "batch 0: out must be None"),
    (JAGGED, JAGGED, TypeError, "batch 0: out must be None"),
)


@pytest.mark.parametrize(("batch", "out", "error", "message"), BAD_OUT)
def test_out_that_does_not_fit(batch: Any, out: Any, error: type[Exception], message: str) -> None:
    before = np.array(out) if isinstance(out, np.ndarray) else None
    for loader in ([batch] * 2, iter([batch] * 2)):
        with pytest.raises(error, match=f"^to_numpy: .*{message}"):
            to_numpy(loader, out)
    if before is not None:
        assert_same(np.array(out), before)


def test_out_that_is_too_small() -> None:
    out = np.full((7, 3), -1, np.float32)
    dataset = TensorDataset(torch.ones(8, 3))
    known = DataLoader(dataset, 4, collate_fn=lambda rows: torch.stack([row[0] for row in rows]))
    message = r"out must have room for 8 samples, got shape \(7, 3\)"
    with pytest.raises(ValueError, match=f"batch 0: {message}"):
        to_numpy(known, out)
    assert (out == -1).all()
    with pytest.raises(ValueError, match=f"batch 1: {message}") as caught:
        to_numpy(iter(known), out)
    assert_same(caught.value.partial, np.ones((4, 3), np.float32))
    assert (out[4:] == -1).all()
    assert_same(to_numpy(known, out, max_samples=7), np.ones((7, 3), np.float32))


def test_a_plan_that_the_first_batch_refutes_refuses_nothing() -> None:
    out = np.zeros(13, np.int64)
    loader = DataLoader(range(20), 4, collate_fn=lambda rows: np.array([i for i in rows if i % 3]))
    assert to_numpy(loader, out) is out
    assert out.tolist() == [i for i in range(20) if i % 3]


def first_then(batch: Any) -> list[Any]:
    return [{"x": np.zeros((2, 3), "f4"), "y": ["a", "b"]}, batch]


LATER: tuple[tuple[Any, type[Exception], str], ...] = (
    (
        {"x": np.zeros((2, 3)), "y": ["c", "d"]},
        TypeError,
        r"\['x'\] of batch 1: expected float32 as",
    ),
    ({"x": torch.zeros(2, 3).half(), "y": ["c", "d"]}, TypeError, "expected float32.*got float16"),
    ({"x": np.zeros((2, 3, 1), "f4"), "y": ["c", "d"]}, ValueError, "expected 2 axes.*got shape"),
    (
        {"x": np.zeros((2, 3), "f4"), "y": ["c"]},
        ValueError,
        r"\['y'\] of batch 1: expected 2 sampl",
    ),
    ({"x": np.zeros((2, 3), "f4"), "y": "cd"}, TypeError, "expected a list of objects.*got str"),
    ({"x": [0, 0], "y": ["c", "d"]}, TypeError, "expected a tensor or an ndarray, got list"),
    ({"x": np.zeros((2, 3), "f4")}, ValueError, r"batch 1: expected dict of \[.*got dict of \["),
    ([np.zeros((2, 3), "f4"), ["c", "d"]], ValueError, r"batch 1: expected dict .*got list of \["),
    (None, ValueError, "batch 1: expected dict of .*got NoneType"),
    (np.zeros((2, 3), "f4"), ValueError, "batch 1: expected dict of .*got ndarray"),
)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("batch", "error", "message"), LATER)
def test_batches_that_change(batch: Any, error: type[Exception], message: str, known: bool) -> None:
    batches = first_then(batch)
    with pytest.raises(error, match=f"^to_numpy: .*{message}") as caught:
        to_numpy(batches if known else iter(batches))
    assert_same(caught.value.partial, {"x": np.zeros((2, 3), np.float32), "y": ["a", "b"]})


def test_none_that_changes() -> None:
    with pytest.raises(ValueError, match=r"leaf \[1\] of batch 1: expected None as before, got nd"):
        to_numpy([(np.zeros(2), None), (np.zeros(2), np.zeros(2))])


FIRST: tuple[tuple[Any, type[Exception], str], ...] = (
    (torch.tensor(1.0), ValueError, "batch 0: expected an axis that counts samples, got a 0-d"),
    (
        {"loss": torch.tensor(1.0), "y": np.zeros(2)},
        ValueError,
        r"leaf \['loss'\] of batch 0: expec",
    ),
    ([torch.tensor(1.0), np.zeros(2)], ValueError, r"leaf \[0\] of batch 0: expected an axis"),
    (np.float32(1), TypeError, "expected a tensor, an ndarray, or a list .*got float32"),
    ({"x": np.zeros(2), "n": 2}, TypeError, r"leaf \['n'\] of batch 0: expected a tensor.*got int"),
    ("ab", TypeError, "got str"),
    (None, ValueError, "expected at least one array or list, got none"),
    ({}, ValueError, "expected at least one array or list, got none"),
    (
        {"x": np.zeros(2), "y": np.zeros(3)},
        ValueError,
        r"\['y'\] of batch 0: expected 2 samples, as",
    ),
    (np.ma.masked_array([1, 2], [True, False]), TypeError, "mask of a masked array would be lost"),
    (np.zeros(2, [("a", object)]), TypeError, "expected a dtype of fixed size"),
    (np.zeros(2, "V0"), TypeError, "expected a dtype of fixed size"),
    (torch.zeros(2, device="meta"), TypeError, "a tensor on the meta device has no values"),
    (
        torch.eye(2).to_sparse(),
        TypeError,
        r"expected a dense tensor, got torch.sparse_coo; use .to_d",
    ),
    (
        torch.eye(2).to(torch.float8_e4m3fn),
        TypeError,
        r"NumPy has no float8_e4m3fn.*view\(torch.ui",
    ),
    (
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        TypeError,
        r"got a nested one; use pinfeed.JaggedBatch\(tensor.values\(\), tensor.offsets\(\)\)",
    ),
)


@pytest.mark.parametrize(("batch", "error", "message"), FIRST)
def test_batches_that_can_not_be_drained(batch: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^to_numpy: .*{message}") as caught:
        to_numpy([batch])
    assert caught.value.partial is None


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.zeros(2, 3)


def freed() -> torch.Tensor:
    tensor = torch.ones(2, 3)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize("make", [fake, freed])
def test_tensors_without_memory(make: Any) -> None:
    with pytest.raises((TypeError, RuntimeError)):
        to_numpy([make()])


ARGUMENTS: tuple[tuple[Any, dict[str, Any], type[Exception], str], ...] = (
    (3, {}, TypeError, "loader must be an iterable of batches, got int"),
    (np.zeros((2, 3)), {}, TypeError, "loader must be an iterable of batches, got ndarray"),
    (torch.zeros(2, 3), {}, TypeError, "got Tensor"),
    ({"x": np.zeros(2)}, {}, TypeError, "got dict"),
    (TensorDataset(torch.zeros(2)), {}, TypeError, "got TensorDataset; wrap it in a DataLoader"),
    ([], {}, ValueError, "loader yielded no batch"),
    (iter([]), {}, ValueError, "loader yielded no batch"),
    (itertools.cycle([np.zeros(2)]), {}, ValueError, "never ends; max_samples says when to stop"),
    ([np.zeros(2)], {"max_samples": 0}, ValueError, "max_samples must be positive, got 0"),
    (
        [np.zeros(2)],
        {"max_samples": 1.5},
        TypeError,
        "max_samples must be an integer or None, got 1",
    ),
    (
        [np.zeros(2)],
        {"max_samples": True},
        TypeError,
        "max_samples must be an integer or None, got",
    ),
    ([np.zeros(2)], {"side": "top"}, ValueError, "side must be 'right', 'left' or None, got 'top'"),
    ([np.zeros(2)], {"bfloat16": "float16"}, ValueError, "bfloat16 must be 'float32' or 'uint16'"),
)


@pytest.mark.parametrize(("loader", "keywords", "error", "message"), ARGUMENTS)
def test_arguments(
    loader: Any, keywords: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^to_numpy: .*{message}"):
        to_numpy(loader, **keywords)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit, MemoryError])
@pytest.mark.parametrize("given", [False, True])
def test_what_the_loader_raises_carries_what_was_drained(
    error: type[BaseException], given: bool
) -> None:
    def batches() -> Iterator[Any]:
        for i in range(3):
            yield Point(torch.full((2, 2), i), [i, i])
        raise error("of the loader")

    out = Point(np.zeros((9, 2), np.int64), None) if given else None
    with pytest.raises(error, match="of the loader") as caught:
        to_numpy(batches(), out)
    expected = Point(np.repeat(np.arange(3), 4).reshape(6, 2), [0, 0, 1, 1, 2, 2])
    assert_same(caught.value.partial, expected)


def test_an_error_in_a_worker_carries_what_was_drained() -> None:
    loader = DataLoader(FailingDataset(), 2, num_workers=2)
    try:  # pytest.raises would keep the workers' queues until some collection of garbage
        to_numpy(loader)
    except ValueError as error:
        message, partial = str(error), error.partial
    assert "sample 7" in message
    assert_same(partial, np.arange(6))


class FailingDataset(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index == 7:
            raise ValueError("sample 7")
        return index


class Sealed(Exception):
    """An error that takes no attributes."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)


def test_errors_that_take_no_attributes_come_through() -> None:
    def batches() -> Iterator[Any]:
        yield np.zeros(2)
        raise Sealed

    with pytest.raises(Sealed):
        to_numpy(batches())


def test_a_batch_is_no_loader() -> None:
    for batch in (pinfeed.Collate(pinfeed.Jagged())([[1], [2, 3]]), pinfeed.pad([[1], [2, 3]])):
        with pytest.raises(TypeError, match="to_numpy: loader must be an iterable of batches"):
            to_numpy(batch)


def test_a_file_without_a_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"out: expected a name before \.npy"):
        to_numpy([np.zeros(2)], tmp_path / ".npy")
    assert list(tmp_path.iterdir()) == []
