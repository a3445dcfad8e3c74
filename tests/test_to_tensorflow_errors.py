"""to_tensorflow: what is wrong, where, and what to do about it."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import pinfeed
from samples import run_python

X = torch.zeros(2, 3)
FIRST = {"x": X, "pair": (X, torch.zeros(2, dtype=torch.int64)), "none": None}


def changed(**parts: Any) -> dict[str, Any]:
    return FIRST | parts


LEAVES = "batch 1: expected the leaves [['x'], ['pair'][0], ['pair'][1], ['none']], got "

# What comes as batch 1, the type of the error, and its message after "to_tensorflow: ".
CHANGES: list[tuple[Any, type[Exception], str]] = [
    (
        changed(x=X.double()),
        TypeError,
        "leaf ['x'] of batch 1: expected float32, got float64",
    ),
    (
        changed(x=np.zeros((2, 3), np.int16)),
        TypeError,
        "leaf ['x'] of batch 1: expected float32, got int16",
    ),
    (
        changed(pair=(X[..., None], FIRST["pair"][1])),
        ValueError,
        "leaf ['pair'][0] of batch 1: expected shape (None, 3), got (2, 3, 1)",
    ),
    (
        changed(pair=(X, torch.tensor(0))),
        ValueError,
        "leaf ['pair'][1] of batch 1: expected shape (None,), got ()",
    ),
    (
        changed(x=X[:, :2]),
        ValueError,
        (
            "leaf ['x'] of batch 1: expected shape (None, 3), got (2, 2); if that varies, say so: "
            "signature= with tf.TensorSpec((None, None), tf.float32)"
        ),
    ),
    (
        changed(x=["a", "b"]),
        TypeError,
        "leaf ['x'] of batch 1: expected numbers, got ['a', 'b']",
    ),
    (
        changed(x=pinfeed.JaggedBatch(X, torch.tensor([0, 2]))),
        TypeError,
        "leaf ['x'] of batch 1: expected a tensor or an ndarray, got JaggedBatch",
    ),
    (changed(none=X), ValueError, "leaf ['none'] of batch 1: expected None, got a Tensor"),
    (
        changed(x=None),
        TypeError,
        "leaf ['x'] of batch 1: expected a tensor or an ndarray, got NoneType",
    ),
    (
        changed(x=[X, X]),
        ValueError,
        LEAVES + "[['x'][0], ['x'][1], ['pair'][0], ['pair'][1], ['none']]",
    ),
    ({"x": X, "none": None}, ValueError, LEAVES + "[['x'], ['none']]"),
    (
        OrderedDict(x=X, couple=FIRST["pair"], none=None),
        ValueError,
        LEAVES + "[['x'], ['couple'][0], ['couple'][1], ['none']]",
    ),
    (
        changed(pair=(X, X, X)),
        ValueError,
        LEAVES + "[['x'], ['pair'][0], ['pair'][1], ['pair'][2], ['none']]",
    ),
    (X, ValueError, LEAVES + "[the batch itself]"),
]


@pytest.mark.parametrize(("batch", "kind", "message"), CHANGES, ids=range(len(CHANGES)))
def test_a_batch_that_differs(batch: Any, kind: type[Exception], message: str) -> None:
    elements = iter(pinfeed.to_tensorflow(one for one in (FIRST, batch)))
    next(elements)
    with pytest.raises(kind, match=f"^{re.escape('to_tensorflow: ' + message)}$"):
        next(elements)


def test_other_leaves_that_differ() -> None:
    jagged = pinfeed.JaggedBatch(X, torch.tensor([0, 2]))
    for first, second, kind, message in [
        (jagged, X, TypeError, "expected a JaggedBatch, got Tensor"),
        (jagged, jagged._replace(values=X.double()), TypeError, "expected float32, got float64"),
        (jagged, jagged._replace(values=X[:, :1]), ValueError, "expected shape (None, 3)"),
        (jagged, jagged._replace(offsets=torch.tensor([0.0, 2])), TypeError, "expected int64"),
        (["a"], [1], TypeError, "expected strings, got list"),
        (["a"], ["a", 1], TypeError, "expected strings, got a int among them"),
        (["a"], "a", ValueError, "expected shape (None,), got ()"),
    ]:
        with pytest.raises(kind, match=re.escape(message)) as caught:
            list(pinfeed.to_tensorflow(one for one in (first, second)))
        assert str(caught.value).startswith("to_tensorflow: batch 1: ")


@pytest.mark.parametrize(
    "offsets", [[0, 3], [-1, 2], [2, 0], [0, 2, 1, 2], [], [0, 2**62]], ids=repr
)
def test_offsets_that_point_elsewhere(offsets: list[int]) -> None:
    batch = pinfeed.JaggedBatch(X, torch.tensor(offsets, dtype=torch.int64))
    with pytest.raises(ValueError, match="to_tensorflow: batch 0: expected offsets"):
        list(pinfeed.to_tensorflow([batch]))


def test_offsets_of_a_part() -> None:
    batch = pinfeed.JaggedBatch(torch.arange(6), torch.tensor([1, 2, 5]))
    assert next(iter(pinfeed.to_tensorflow([batch]))).to_list() == [[1], [2, 3, 4]]


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (object(), "expected a tensor, an ndarray, numbers, strings or a container of them"),
        ([], "a container of them, got an empty list; leave it out"),
        (torch.zeros(2).to_sparse(), "expected a dense tensor, got torch.sparse_coo"),
        (torch.zeros(2, device="meta"), "a tensor on the meta device has no values"),
        (torch.zeros(2).to(torch.float8_e5m2), "TensorFlow has no torch.float8_e5m2; convert it"),
        (np.zeros(2, "M8[s]"), "TensorFlow has no datetime64[s]; convert it"),
        (np.zeros(2, "i4,f4"), "TensorFlow has no"),
        (np.ma.masked_array([1, 2], [True, False]), "the mask of a masked array would be lost"),
        ([1, 2**80], "expected integers that int64 can hold"),
        ([2**63 + 5], "expected integers that int64 can hold"),
        ([2**63 + 5, 1], "expected integers that int64 can hold"),
        ([True, -(2**63) - 1], "expected integers that int64 can hold"),
        ([np.uint64(2**63), -1], "expected integers that int64 can hold"),
        ([1, "a"], "expected numbers, got [1, 'a']"),
        (np.array(["a", 1], object), "expected strings, got a int among them"),
    ],
    ids=lambda argument: type(argument).__name__,
)
def test_a_leaf_that_tensorflow_cannot_have(leaf: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)) as caught:
        list(pinfeed.to_tensorflow([{"a": [leaf]}]))
    assert "['a'][0]" in str(caught.value)


def test_keys_that_tensorflow_cannot_sort() -> None:
    with pytest.raises(TypeError, match=r"keys \[1, 'a'\]; TensorFlow takes only keys that can be"):
        pinfeed.to_tensorflow([{1: X, "a": X}])


@pytest.mark.parametrize("loader", [[], (), iter([]), (x for x in ())])
@pytest.mark.parametrize("in_memory", [False, True])
def test_an_empty_loader(loader: Any, in_memory: bool) -> None:
    with pytest.raises(ValueError, match="loader yielded no batch, and nothing else says what"):
        pinfeed.to_tensorflow(loader, in_memory=in_memory)


def test_an_empty_loader_with_a_signature(tf: ModuleType) -> None:
    signature = {"x": tf.TensorSpec((None, 3))}
    assert list(pinfeed.to_tensorflow([], signature=signature).prefetch(1)) == []


def test_batches_without_arrays() -> None:
    with pytest.raises(ValueError, match="expected at least one array in a batch, got none"):
        pinfeed.to_tensorflow([{"a": None}])


@pytest.mark.parametrize("loader", [X, X.numpy(), "abc", {"x": X}, 3, TensorDataset(X)])
def test_what_is_no_loader(loader: Any) -> None:
    with pytest.raises(TypeError, match="to_tensorflow: loader must be an iterable of batches"):
        pinfeed.to_tensorflow(loader)


@pytest.mark.parametrize(
    ("keywords", "kind", "message"),
    [
        ({"in_memory": 1}, TypeError, "in_memory must be True or False, got 1"),
        ({"max_samples": 0}, ValueError, "max_samples must be positive, got 0"),
        ({"max_samples": 1.5}, TypeError, "max_samples must be an integer or None, got 1.5"),
        ({"channels_last": 3}, TypeError, "channels_last must be True, False, or names of leaves"),
        ({"channels_last": [1]}, TypeError, "channels_last must be True, False, or names of"),
        (
            {"channels_last": ["pair.2"]},
            ValueError,
            "channels_last names 'pair.2', but the leaves are ['x', 'pair.0', 'pair.1']",
        ),
        ({"channels_last": "x"}, ValueError, "channels_last names 'x', which must have a batch"),
        ({"channels_last": True}, ValueError, "is for leaves of uint8 or floats with 4 axes"),
        ({"signature": 3}, TypeError, "signature: expected a tf.TensorSpec or a tf.Ragged"),
        ({"signature": {"x": X}}, TypeError, "signature['x']: expected a tf.TensorSpec or a"),
        ({"signature": 3, "in_memory": True}, ValueError, "signature is for batches that are yet"),
    ],
    ids=repr,
)
def test_arguments(keywords: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match="to_tensorflow: .*" + re.escape(message)):
        pinfeed.to_tensorflow([FIRST], **keywords)


def test_signatures_that_no_batch_fits(tf: ModuleType) -> None:
    spec = tf.TensorSpec((None, 3))
    for signature in ({"x": spec}, (spec, spec, spec), spec):
        with pytest.raises(ValueError, match="batch 0: expected the leaves "):
            list(pinfeed.to_tensorflow([FIRST], signature=signature))
    for ragged in (
        tf.RaggedTensorSpec((None, None, None), ragged_rank=2),
        tf.RaggedTensorSpec((None, None), ragged_rank=1, row_splits_dtype=tf.int32),
    ):
        with pytest.raises(
            ValueError, match=r"signature: expected a tf\.RaggedTensorSpec of known"
        ):
            pinfeed.to_tensorflow([X], signature=ragged)


def test_a_fixed_number_of_samples(tf: ModuleType) -> None:
    dataset = pinfeed.to_tensorflow([X, X[:1]], signature=tf.TensorSpec((2, 3)))
    with pytest.raises(ValueError, match=re.escape("batch 1: expected shape (2, 3), got (1, 3)")):
        list(dataset)


class Long:
    """Yields three batches, and says something else."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([X, X, X])

    def __len__(self) -> int:
        return self.length


@pytest.mark.parametrize(("length", "got"), [(2, "more"), (4, "3")])
def test_a_wrong_length(length: int, got: str, tf: ModuleType) -> None:
    dataset = pinfeed.to_tensorflow(Long(length))
    message = re.escape(f"expected {length} batches, as len(loader) says, got {got}")
    with pytest.raises(ValueError, match=message):
        list(dataset)
    with pytest.raises(tf.errors.OpError, match=message):
        list(dataset.prefetch(1))


def test_samples_that_cannot_be_counted() -> None:
    batch = {"x": X, "y": torch.zeros(5)}
    message = "batch 0: with max_samples, the first axis of every leaf must count the same samples"
    with pytest.raises(ValueError, match=message):
        list(pinfeed.to_tensorflow([batch], max_samples=3))
    with pytest.raises(ValueError, match=message):
        list(pinfeed.to_tensorflow([torch.tensor(1)], max_samples=3))


def test_in_a_tf_function(tf: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="must be called where TensorFlow executes eagerly"):
        tf.function(lambda: pinfeed.to_tensorflow([X]))()


def test_a_dataset_that_is_gone(tf: ModuleType) -> None:
    variant = tf.data.experimental.to_variant(pinfeed.to_tensorflow([X]))
    dataset = tf.data.experimental.from_variant(variant, tf.TensorSpec((None, 3)))
    with pytest.raises(tf.errors.OpError, match="keep the dataset while something iterates it"):
        list(dataset)


def test_without_tensorflow() -> None:
    run_python(
        """
        import sys
        sys.modules["tensorflow"] = None
        import pinfeed, torch
        try:
            pinfeed.to_tensorflow([torch.zeros(2)])
        except ImportError as error:
            assert str(error) == "tensorflow is not installed: pip install pinfeed[tensorflow]"
        else:
            raise AssertionError
    """.replace("\n        ", "\n")
    )


def test_a_batch_is_no_loader_and_floats_must_fit() -> None:
    with pytest.raises(TypeError, match="loader must be an iterable of batches"):
        pinfeed.to_tensorflow(pinfeed.pad([[1], [2, 3]]))
    with pytest.raises(ValueError, match="expected numbers that float32 can hold"):
        pinfeed.to_tensorflow([[1e300, 1.0]])
