"""Batches and fields that don't fit: the error says which leaf of which sample, and what came."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import pinfeed
from pinfeed import Collate, Image, Keep, Stack
from samples import Bag, Couple, FrozenRecord, Point, Record

LARGE = (200, 500)


@pytest.mark.parametrize("samples", [{"x": np.zeros(3)}, 5, None, "text"])
def test_what_is_no_batch(samples: Any) -> None:
    with pytest.raises(TypeError, match="Collate: expected a sequence of samples, got"):
        Collate()(samples)


@pytest.mark.parametrize(
    ("leaves", "error", "message"),
    [
        ([np.zeros(2), np.zeros(2), np.zeros(3)], ValueError, "sample 2: expected shape (2,) as in sample 0, got (3,)"),
        ([np.zeros((2, 1)), np.zeros(2)], ValueError, "sample 1: expected shape (2, 1) as in sample 0, got (2,)"),
        ([torch.zeros(2), torch.zeros(3)], ValueError, "sample 1: expected shape (2,) as in sample 0, got (3,)"),
        ([torch.zeros(LARGE), torch.zeros(3)], ValueError, "sample 1: expected shape (200, 500) as in sample 0, got (3,)"),
        ([torch.zeros(LARGE), 5], TypeError, "sample 1: expected a NumPy array or a torch tensor, got int"),
        ([np.array(["a"])], TypeError, "sample 0: expected a numeric or bool dtype"),
        ([None, None], TypeError, "sample 0: expected arrays, numbers or strings, got None; "),
        ([1, None], TypeError, "sample 1: expected int as in sample 0, got None"),
    ],
)  # fmt: skip
def test_leaves_that_differ(leaves: list[Any], error: Any, message: str) -> None:
    with pytest.raises(error, match="^Collate: " + re.escape(message)):
        Collate()(leaves)
    with pytest.raises(error, match=r"^Collate: leaf \['a'\]\[1\] of " + re.escape(message)):
        Collate()([{"a": (0, leaf)} for leaf in leaves])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors(layout: Any) -> None:
    """As a batch they are their parts; as a sample they are refused, in words that are no torch's."""
    parts = [torch.arange(3), torch.arange(2)]
    nested = torch.nested.nested_tensor(parts, layout=layout)
    expected = Collate(pinfeed.Pad())(parts)
    assert all(
        found is right is None or torch.equal(found, right)
        for found, right in zip(Collate(pinfeed.Pad())(nested), expected, strict=True)
    )
    for refuse in (
        lambda: Collate({"x": pinfeed.Pad()})([{"x": nested}] * 2),
        lambda: Collate({"x": pinfeed.Jagged()})([{"x": nested}] * 2),
        lambda: pinfeed.pad([nested, nested]),
        lambda: pinfeed.pad(nested),
        lambda: pinfeed.ArrayDataset(nested),
    ):
        with pytest.raises(TypeError, match=r"expected a dense tensor, got a nested one; .*unbind"):
            refuse()
    assert torch.equal(pinfeed.pad(list(nested.unbind())).values, expected.values)


class Columns(torch.utils.data.Dataset[Any]):
    """A dataset whose batches are columns."""

    def __init__(self, columns: Any) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return 4

    def __getitems__(self, indices: list[int]) -> Any:
        return self.columns


@pytest.mark.parametrize("columns", [{"x": torch.arange(4)}, (torch.arange(4), torch.arange(4))])
def test_columns_instead_of_samples(columns: Any) -> None:
    dataset = Columns(columns)
    loader = torch.utils.data.DataLoader(dataset, 4, collate_fn=Collate())
    with pytest.raises(TypeError, match=r"__getitems__ (has to )?return a list of samples"):
        next(iter(loader))
    loader = torch.utils.data.DataLoader(pinfeed.IndexedDataset(dataset), 4, collate_fn=Collate())
    with pytest.raises(
        TypeError, match=r"expected 4 samples of Columns.__getitems__, got a .*, not col"
    ):
        next(iter(loader))


def test_an_error_without_a_long_tail() -> None:
    """What torch appends to its own messages is for its developers."""
    with pytest.raises(TypeError) as caught:
        Collate()([np.zeros((200, 500)), torch.zeros(200, 500).double().to_sparse()])
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([{"x": 1}, {"y": 1}], "sample 1: expected keys ['x'] as in sample 0, got ['y']"),
        (
            [{"x": 1}, {"x": 1, "y": 2}],
            "sample 1: expected keys ['x'] as in sample 0, got ['x', 'y']",
        ),
        ([{"x": 1}, {"x": 2}, 5], "sample 2: expected a dict as in sample 0, got int"),
        ([{"x": 1}, [1]], "sample 1: expected a dict as in sample 0, got list"),
        ([(1, 2), (1,)], "sample 1: expected 2 items as in sample 0, got 1"),
        ([[1], [1], [1, 2]], "sample 2: expected 1 items as in sample 0, got 2"),
        ([(1, 2), 5], "sample 1: expected a tuple as in sample 0, got int"),
        ([(1, 2), "ab"], "sample 1: expected a tuple as in sample 0, got str"),
        ([[1, 2], np.zeros(2)], "sample 1: expected a list as in sample 0, got ndarray"),
        ([Point(1, 2), {"x": 1}], "sample 1: expected a Point as in sample 0, got dict"),
        (
            [Record(1, 2), FrozenRecord(1, 2)],
            "sample 1: expected a Record as in sample 0, got Froz",
        ),
        ([Bag({"x": 1}), Bag({})], "sample 1: expected keys ['x'] as in sample 0, got []"),
        ([Couple([1]), Couple([])], "sample 1: expected 1 items as in sample 0, got 0"),
    ],
)
def test_structures_that_differ(samples: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match="Collate: " + re.escape(message)):
        Collate()(samples)
    nested = [{"a": [0, sample]} for sample in samples]
    with pytest.raises(ValueError, match=re.escape("Collate: leaf ['a'][1] of " + message)):
        Collate()(nested)


@pytest.mark.parametrize(
    "fields",
    [5, "Image", Stack, Image, torch.float32, {"a": 5}, ["x"], lambda x: x, {"a": {"b": Keep}}],
)
def test_fields_that_hold_no_field(fields: Any) -> None:
    with pytest.raises(TypeError, match=r"Collate: fields.* must be a Field such as"):
        Collate(fields)


def test_a_field_without_parentheses() -> None:
    with pytest.raises(TypeError, match=r"fields\['a'\].*create it with parentheses"):
        Collate({"a": Image})
    samples = {"collate_fn": Collate, "batch_size": 2}
    for dataset in (pinfeed.ArrayDataset(np.zeros((2, 3))), [{"x": np.zeros(3)}] * 2):
        loader = torch.utils.data.DataLoader(dataset, **samples)
        with pytest.raises(TypeError, match=r"got ndarray; .* with parentheses: collate_fn=Coll"):
            next(iter(loader))


@pytest.mark.parametrize("rows", [False, True], ids=["samples", "Rows"])
@pytest.mark.parametrize(
    ("fields", "sources"),
    [
        ({"z": Stack()}, {"x": 1, "y": 2}),
        ({"x": Stack(), "z": Stack()}, {"x": 1, "y": 2}),
        ((Stack(),), (1, 2)),
        ((Stack(), Stack(), Stack()), (1, 2)),
        ((Stack(),), {"x": 1}),
        ({"x": Stack()}, (1, 2)),
        ((Stack(), Stack()), 1),
        ({"x": Stack()}, 1),
        (Point(Stack(), Stack()), {"x": 1, "y": 2}),
        ({"x": {"z": Stack()}}, {"x": {"y": 1}}),
        ({"x": {"z": Stack()}}, {"x": 1}),
    ],
)
def test_fields_that_do_not_mirror_the_sample(fields: Any, sources: Any, rows: bool) -> None:
    dataset = pinfeed.ArrayDataset(arrays_in(sources))
    samples: Any = dataset.__getitems__([0, 1])
    with pytest.raises(
        ValueError, match=r"Collate: fields.*fields must mirror the structure of samples"
    ):
        Collate(fields)(samples if rows else list(samples))


def arrays_in(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: arrays_in(child) for key, child in node.items()}
    if isinstance(node, tuple):
        return tuple(arrays_in(child) for child in node)
    return np.zeros((3, 2))


def test_dtypes_that_torch_lacks() -> None:
    """A dataset may hold long doubles (Keep takes them), a batch can't."""
    rows = pinfeed.ArrayDataset({"x": np.zeros((3, 2), np.longdouble)}).__getitems__([0, 1])
    assert Collate({"x": Keep()})(rows)["x"][0].dtype == np.longdouble
    for samples in (rows, list(rows)):
        with pytest.raises(TypeError, match=r"Collate: leaf \['x'\].*float128"):
            Collate()(samples)
