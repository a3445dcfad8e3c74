"""ArrayDataset: sources and indices that are refused, files that change."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pinfeed
from array_sources import Make, npy, values
from pinfeed.sources.ragged import RaggedArray
from samples import Point


def cut_npy(folder: Path, size: int) -> Path:
    path = folder / "cut.npy"
    np.save(path, values())
    content = path.read_bytes()
    path.write_bytes(content[:size])
    return path


def text_file(folder: Path) -> Path:
    path = folder / "text.npy"
    path.write_text("1, 2, 3\n" * 100)
    return path


class Dangerous:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a file was unpickled",))


def pickled_npy(folder: Path) -> Path:
    path = folder / "objects.npy"
    np.save(path, np.array([Dangerous(), None], object), allow_pickle=True)
    return path


def plain_pickle(folder: Path) -> Path:
    path = folder / "plain.npy"
    path.write_bytes(pickle.dumps(Dangerous()))
    return path


def npz(folder: Path) -> Path:
    path = folder / "arrays.npz"
    np.savez(path, values())
    return path


REFUSED: tuple[tuple[Make, type[Exception], str], ...] = (
    (lambda _: np.array([{}, []], object), TypeError, "item 0: expected str or bytes, got dict"),
    (lambda _: np.array([["a"]]), ValueError, r"items must have shape \(N,\), got \(1, 1\)"),
    (lambda _: np.zeros(3, [("a", "i4")]), TypeError, "numeric or bool dtype"),
    (lambda _: np.zeros(3, ">f4"), TypeError, "byte order, got dtype >f4.*newbyteorder"),
    (lambda _: np.ma.masked_array([1, 2], [0, 1]), TypeError, "array without a mask, .* be lost"),
    (lambda _: np.zeros(()), ValueError, "counts samples, got a 0-d array"),
    (lambda _: torch.tensor(1.0), ValueError, "counts samples, got a 0-d array"),
    (lambda _: torch.zeros(3, device="meta"), TypeError, r"on the CPU, got one on meta.*\.cpu"),
    (lambda _: torch.eye(3).to_sparse(), TypeError, "dense tensor"),
    (lambda _: 5, TypeError, r"expected an ndarray.*a RaggedArray.*got int; np.full"),
    (lambda _: None, TypeError, "expected an ndarray.*got NoneType"),
    (lambda _: b"values.npy", TypeError, "expected an ndarray.*got bytes"),
    (lambda folder: folder / "missing.npy", FileNotFoundError, "missing.npy"),
    (lambda folder: folder, ValueError, r"is a directory without \.npy files"),
    (lambda folder: cut_npy(folder, 40), ValueError, "cut.npy is no complete .npy file"),
    (lambda folder: cut_npy(folder, 129), ValueError, "cut.npy is no complete .npy file"),
    (lambda folder: cut_npy(folder, -1), ValueError, "cut.npy is no complete .npy file"),
    (lambda folder: cut_npy(folder, 0), ValueError, "cut.npy is no complete .npy file"),
    (lambda folder: text_file(folder), ValueError, "text.npy is no complete .npy file"),
    (lambda folder: pickled_npy(folder), ValueError, "objects.npy is no complete .npy file"),
    (lambda folder: plain_pickle(folder), ValueError, "plain.npy is no complete .npy file"),
    (lambda folder: npz(folder), ValueError, "arrays.npz is no complete .*; open_npz"),
    (lambda folder: npy(folder, np.zeros(3, ">f4")), TypeError, "values.npy: .*byte order, got dt"),
)


@pytest.mark.parametrize(("make", "error", "message"), REFUSED)
def test_sources_that_are_refused(
    make: Make, error: type[Exception], message: str, tmp_path: Path
) -> None:
    source = make(tmp_path)
    with pytest.raises(error, match=message):
        pinfeed.ArrayDataset(source)
    if not issubclass(error, OSError):
        with pytest.raises(error, match=r"ArrayDataset: leaf \['a'\]\[1\]: .*" + message):
            pinfeed.ArrayDataset({"a": [np.zeros(3), source]})


def test_different_lengths() -> None:
    with pytest.raises(ValueError, match=r"got 3 in leaf \['a'\] and 4 in leaf \['b'\]\.y"):
        pinfeed.ArrayDataset({"a": np.zeros(3), "b": Point(np.zeros(3), torch.zeros(4))})
    ragged = RaggedArray(np.zeros(4), np.array([0, 1, 4]))
    with pytest.raises(ValueError, match=r"got 4 in leaf \[0\] and 2 in leaf \[1\]"):
        pinfeed.ArrayDataset((np.zeros(4), ragged))


@pytest.mark.parametrize("structure", [{}, [], (), {"a": {}, "b": []}])
def test_no_array_at_all(structure: Any) -> None:
    with pytest.raises(ValueError, match="at least one array, got an empty structure"):
        pinfeed.ArrayDataset(structure)
    with pytest.raises(
        ValueError, match="Rows: sources must hold at least one array, got "
    ) as error:
        pinfeed.Rows(structure, [0])
    assert str(error.value).endswith(repr(structure))


@pytest.mark.parametrize("index", [1.5, None, (1, 2), range(2), torch.arange(2)])
def test_what_is_no_index(index: Any) -> None:
    expected = (
        "ArrayDataset: expected an integer, a slice, a key, or a list or an ndarray of integers"
    )
    with pytest.raises(TypeError, match=f"^{expected}, got {type(index).__name__}$"):
        pinfeed.ArrayDataset(values())[index]


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        ([11], IndexError, "ArrayDataset: indices: index 11 at position 0 is out of range for 11"),
        ([0.5], TypeError, "ArrayDataset: indices: expected integers, got float"),
        (
            np.ones(3, bool),
            IndexError,
            r"ArrayDataset: indices: .* mask of shape \(11,\), got \(3,\)",
        ),
    ],
)
def test_what_selects_no_samples(indices: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        pinfeed.ArrayDataset(values()).select(indices)


@pytest.mark.parametrize("arrays", [values(), {"x": values()}])
def test_what_is_no_key(arrays: Any) -> None:
    with pytest.raises(KeyError, match=r"a key of its samples, got 'y'; samples have .* int32"):
        pinfeed.ArrayDataset(arrays)["y"]
