"""to_tensorflow: error messages."""

import re

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import pinfeed
from programs import run_program

X = torch.zeros(2, 3)
Y = torch.zeros(2, dtype=torch.int64)
CONVERT = (
    "; all batches need the dtypes of the first: Stack(dtype) in the Collate converts an entry"
)
FIRST = {"x": X, "pair": (X, Y), "none": None}
JAGGED = pinfeed.JaggedBatch(X, torch.tensor([0, 2]))
ENTRIES = "expected the entries [['x'], ['pair'][0], ['pair'][1], ['none']] of the signature, got "
VARIES = "if it varies, pass signature= with tf.TensorSpec((None, None), tf.float32)"

# The first batch, the second one, the error type, and its message after "batch 1: ".
# A dict as the second batch contains the changes to the first.
CHANGES = [
    (FIRST, {"x": X.double()}, TypeError, "expected float32, got float64" + CONVERT),
    (FIRST, {"x": np.zeros((2, 3), "i2")}, TypeError, "expected float32, got int16" + CONVERT),
    (FIRST, {"pair": (X[..., None], Y)}, ValueError, "expected shape (None, 3), got (2, 3, 1)"),
    (FIRST, {"pair": (X, Y[0])}, ValueError, "expected shape (None,), got ()"),
    (FIRST, {"x": X[:, :2]}, ValueError, f"expected shape (None, 3), got (2, 2); {VARIES}"),
    (FIRST, {"x": ["a", "b"]}, TypeError, "expected numbers, got ['a', 'b']"),
    (FIRST, {"x": JAGGED}, TypeError, "expected a tensor or an ndarray, got JaggedBatch"),
    (FIRST, {"none": X}, ValueError, "expected None as in the signature, got a Tensor"),
    (FIRST, {"x": None}, TypeError, "expected a tensor or an ndarray, got NoneType"),
    (FIRST, [X, None], ValueError, f"{ENTRIES}[[0], [1]]"),
    (FIRST, X, ValueError, f"{ENTRIES}[the batch itself]"),
    (JAGGED, X, TypeError, "expected a JaggedBatch as in the signature, got Tensor"),
    (JAGGED, JAGGED._replace(values=X.double()), TypeError, "expected float32, got float64" + CONVERT),
    (JAGGED, JAGGED._replace(values=X[:, :1]), ValueError, f"expected shape (None, 3), got (2, 1); {VARIES}"),
    (JAGGED, JAGGED._replace(offsets=Y.float()), TypeError, "RaggedArray: offsets: expected int64 or int32, got float32"),
    (["a"], [1], TypeError, "expected strings as in the signature, got list"),
    (["a"], ["a", 1], TypeError, "expected only strings, got a int among them; convert it with str()"),
    (["a"], "a", ValueError, "expected shape (None,), got ()"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "batch", "kind", "message"), CHANGES)
def test_batches_that_differ_raise(first, batch, kind, message, tf):
    where = "to_tensorflow: "
    if isinstance(batch, dict):
        where += rf"entry \['{next(iter(batch))}'\].* of "
        batch = first | batch
    elements = iter(pinfeed.to_tensorflow(one for one in (first, batch)))
    next(elements)
    pattern = f"{kind.__name__}: {where}batch 1: {re.escape(message)}\n"
    with pytest.raises(tf.errors.OpError, match=pattern):
        next(elements)


CHANNELS = "channels_last: expected True, False, or names of entries, got"
SPEC = "expected a tf.TensorSpec or a tf.RaggedTensorSpec, got"
ENTRY = "batch 0: expected a tensor, an ndarray, numbers, strings or a container"
MASKED, MIXED = np.ma.masked_array([1, 2], True), np.array(["a", 1], object)
NO_LOADER = "loader: expected an iterable of batches, got"

# The loader, keywords, the error type, and its message after "to_tensorflow: ".
REFUSED = [
    (X, {}, TypeError, f"{NO_LOADER} Tensor"),
    (X.numpy(), {}, TypeError, f"{NO_LOADER} ndarray"),
    ("abc", {}, TypeError, f"{NO_LOADER} str"),
    ({"x": X}, {}, TypeError, f"{NO_LOADER} dict"),
    (3, {}, TypeError, f"{NO_LOADER} int"),
    (pinfeed.functional.pad([[1], [2, 3]]), {}, TypeError, f"{NO_LOADER} Padded"),
    (TensorDataset(X), {}, TypeError, f"{NO_LOADER} TensorDataset; wrap it in a DataLoader"),
    (iter([]), {}, ValueError, "loader: expected at least one batch, which determines the signature"),
    ([{"a": None}], {}, ValueError, "expected at least one array in a batch, got none"),
    ([FIRST], {"in_memory": 1}, TypeError, "in_memory must be True or False, got 1"),
    ([FIRST], {"channels_last": 3}, TypeError, f"{CHANNELS} 3"),
    ([FIRST], {"channels_last": [1]}, TypeError, f"{CHANNELS} [1]"),
    ([FIRST], {"channels_last": ["pair.2"]}, ValueError, "channels_last: expected entries of a batch, ["),
    ([FIRST], {"channels_last": "x"}, ValueError, "channels_last: expected entries of at least 3 axes, (N, C, ...), got 'x' with"),
    ([FIRST], {"channels_last": True}, ValueError, "channels_last=True: expected an entry of uin"),
    ([FIRST], {"signature": 3}, TypeError, f"signature: {SPEC} 3"),
    ([FIRST], {"signature": {"x": X}}, TypeError, f"signature['x']: {SPEC}"),
    ([FIRST], {"signature": 3, "in_memory": True}, ValueError, "signature: expected None with in_memory"),
    # Entries that TensorFlow doesn't support.
    ([{"a": [object()]}], {}, TypeError, "entry ['a'][0] of batch 0: expected a tensor, an ndarray"),
    ([[]], {}, TypeError, f"{ENTRY} of them, got an empty list; leave it out"),
    ([X.to_sparse()], {}, TypeError, "batch 0: expected a dense tensor, got torch.sparse_coo"),
    ([X.to("meta")], {}, TypeError, "batch 0: expected a tensor with values, got one on the meta device"),
    ([X.to(torch.float8_e5m2)], {}, TypeError, "batch 0: TensorFlow has no torch.float8_e5m2"),
    ([np.zeros(2, "M8[s]")], {}, TypeError, "batch 0: TensorFlow has no datetime64[s]; conv"),
    ([np.zeros(2, "i4,f4")], {}, TypeError, "batch 0: TensorFlow has no"),
    ([MASKED], {}, TypeError, "batch 0: expected an array without a mask"),
    ([[1, 2**80]], {}, TypeError, "batch 0: TensorFlow has no object"),
    ([[1, "a"]], {}, TypeError, "batch 0: expected numbers, got [1, 'a']"),
    ([MIXED], {}, TypeError, "batch 0: expected only strings, got a int among them"),
]  # fmt: skip


@pytest.mark.parametrize(("loader", "keywords", "kind", "message"), REFUSED)
def test_bad_loaders_and_arguments(loader, keywords, kind, message):
    with pytest.raises(kind, match=f"^{re.escape('to_tensorflow: ' + message)}"):
        list(pinfeed.to_tensorflow(loader, **keywords))


def test_an_empty_loader_with_a_signature(tf):
    signature = {"x": tf.TensorSpec((None, 3))}
    assert list(pinfeed.to_tensorflow([], signature=signature).prefetch(1)) == []


def ragged(tf, **options):
    return tf.RaggedTensorSpec((None,) * (1 + options.get("ragged_rank", 1)), **options)


# A loader, its signature, the error type, and its message after "to_tensorflow: ".
RANK = "signature: expected a tf.RaggedTensorSpec of known"
UNFIT = {
    "shape": ([X, X[:1]], lambda tf: tf.TensorSpec((2, 3)), None, "batch 1: expected shape (2, 3), got (1, 3)"),
    "a key": ([FIRST], lambda tf: {"x": tf.TensorSpec((None, 3))}, None, "batch 0: expected the entries "),
    "a tuple": ([FIRST], lambda tf: (tf.TensorSpec((None, 3)),) * 3, None, "batch 0: expected the entries "),
    "one entry": ([FIRST], lambda tf: tf.TensorSpec((None, 3)), None, "batch 0: expected the entries "),
    "two ragged axes": ([X], lambda tf: ragged(tf, ragged_rank=2), ValueError, RANK),
    "int32 offsets": ([X], lambda tf: ragged(tf, row_splits_dtype=tf.int32), ValueError, RANK),
} | {
    f"offsets {offsets}": ([JAGGED._replace(offsets=torch.tensor(offsets, dtype=torch.int64))],
        lambda tf: None, None, "batch 0: RaggedArray: offsets")
    for offsets in ([0, 3], [-1, 2], [2, 0], [0, 2, 1, 2], [], [0, 2**62])
}  # fmt: skip


@pytest.mark.parametrize("case", UNFIT)
def test_signatures_and_offsets_that_do_not_fit(case, tf):
    batches, signature, error, message = UNFIT[case]
    with pytest.raises(error or tf.errors.OpError, match=re.escape(f"to_tensorflow: {message}")):
        list(pinfeed.to_tensorflow(batches, signature=signature(tf)))


class Long:
    """Yields three batches, and reports another length."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return iter([X, X, X])

    def __len__(self):
        return self.length


def test_a_wrong_length(tf):
    for length in (2, 4):
        with pytest.raises(tf.errors.OpError, match=f"was expected to contain {length} elements"):
            list(pinfeed.to_tensorflow(Long(length)))


def test_a_deleted_dataset(tf):
    variant = tf.data.experimental.to_variant(pinfeed.to_tensorflow([X]))
    dataset = tf.data.experimental.from_variant(variant, tf.TensorSpec((None, 3)))
    with pytest.raises(
        tf.errors.OpError, match="the dataset was freed before its loop; keep a reference to it"
    ):
        list(dataset)


def test_without_tensorflow():
    message = run_program("missing_library", "tensorflow", "pinfeed", "to_tensorflow")
    assert "tensorflow is not installed: pip install '.[tensorflow]' in a" in message
