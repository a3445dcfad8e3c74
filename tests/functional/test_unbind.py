"""unbind: the inverse of Collate, and errors for ambiguous batches."""

import re
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pinfeed import Collate, Jagged, JaggedBatch, Keep, Pad, Padded, Stack
from pinfeed.functional import unbind
from samples import STRUCTURES, Bag, Couple, FrozenRecord, Point, Record

# An entry of sample i, and its field.
ENTRIES = {
    "number": (lambda i: i, None),
    "vector": (lambda i: np.full(3, i), None),
    "pair": (lambda i: torch.full((2,), i), None),
    "empty": (lambda i: np.zeros((0, 2)), None),
    "text": (lambda i: f"{i}", None),
    "bytes": (lambda i: f"{i}".encode(), None),
    "jagged": (lambda i: np.full(i % 3, i), Jagged()),
    "padded": (lambda i: [i] * (i % 3 + 1), Pad(lengths=True)),
    "kept number": (lambda i: i, Keep()),
    "kept array": (lambda i: np.full(2, i), Keep()),
    "kept list": (lambda i: [i, i + 1], Keep()),
    "kept dict": (lambda i: {"a": np.full(2, i)}, Keep()),
}
CONTAINERS = {
    **{name: build for name, build in STRUCTURES.items() if name not in ("plain", "nested")},
    "one": lambda x, _: (x,),
    "nothing": lambda *_: [],
    "no keys": lambda *_: {},
}
structures = st.recursive(
    st.sampled_from(sorted(ENTRIES)),
    lambda child: st.tuples(st.sampled_from(sorted(CONTAINERS)), child, child),
    max_leaves=5,
)


def build(structure, make):
    if isinstance(structure, str):
        return make(structure)
    container, x, y = structure
    return CONTAINERS[container](build(x, make), build(y, make))


def entry(name, sample):
    return ENTRIES[name][0](sample)


def as_batched(node):
    """Returns the sample that unbind should return: tuples become lists, arrays and numbers tensors."""
    if isinstance(node, Bag | dict):
        return {key: as_batched(value) for key, value in node.items()}
    if isinstance(node, Record | FrozenRecord | Point):
        return type(node).__name__, as_batched(node.x), as_batched(node.y)
    if isinstance(node, list | tuple | Couple):
        return [as_batched(value) for value in node]
    return np.asarray(node).tolist() if not isinstance(node, str | bytes) else node


@given(structure=structures, count=st.integers(1, 4))
@example(structure=("tuple", ("tuple", "number", "number"), ("tuple", "number", "number")), count=3)
@example(
    structure=("tuple", ("dataclass", "number", "pair"), ("dataclass", "text", "pair")), count=2
)
@example(structure=("dict", ("tuple", "text", "number"), "number"), count=2)
@example(structure=("tuple", "text", "number"), count=2)
def test_samples_come_back_or_an_ambiguity_raises(structure, count):
    # A batch that is a list as a whole is a structure if possible.
    assume(structure not in ("kept array", "kept list", "kept dict"))
    samples = [build(structure, partial(entry, sample=i)) for i in range(count)]
    batch = Collate(build(structure, lambda name: ENTRIES[name][1]))(samples)
    try:
        result = unbind(batch)
    except ValueError as error:
        if not re.match(
            "unbind: (entry .* no other entry tells which|batch must contain)", str(error)
        ):
            raise
    else:
        assert as_batched(result) == as_batched(samples)


TOGETHER = {
    "tuples": [("a", 1), ("b", 2)],
    "tuples of dataclasses": [(Record(1, 2), Record("a", np.ones(2)))] * 3,
    "tuples of tuples": [((1, 2), (3, 4, 5))] * 4,
    "text in tuples under a key": [{"x": ("a", 5), "y": 1}, {"x": ("b", 6), "y": 2}, {"x": ("c", 7), "y": 3}],
    "empty parts": [(1, [], {}), (2, [], {})],
    "one sample": [{"x": np.ones(3), "y": "a"}],
}  # fmt: skip


@pytest.mark.parametrize("samples", TOGETHER.values(), ids=TOGETHER)
def test_samples_come_back(samples):
    assert as_batched(unbind(Collate()(samples))) == as_batched(samples)


AMBIGUOUS = [
    {"x": [torch.ones(2), torch.ones(2)]},
    [[torch.ones(3), torch.ones(3)], [torch.ones(3), torch.ones(3)]],
    {"x": [("a", "b"), torch.ones(2)]},
    {"y": torch.ones(2), "x": [np.ones(2), np.ones(2)]},
    {"x": [{"a": np.ones(2)}, {"a": np.ones(2)}]},
    ([], {}),
]
NOT_OFFSETS = JaggedBatch(torch.arange(10), torch.tensor([0, -5, 10]))
BAD = [
    *((batch, ValueError, "(entry .* no other entry tells which|batch must contain)") for batch in AMBIGUOUS),
    ({"a": torch.zeros(2), "b": torch.zeros(3)}, ValueError, r"entry \['b'\] has 3 samples, but entry \['a'\] has 2;"),
    *(({"a": entry}, TypeError, r"entry \['a'\] must be an array with a batch axis") for entry in (torch.tensor(1), None, "text", 3)),
    ({"x": Padded(np.zeros((2, 3)))}, TypeError, "expected lengths, or a Padded with lengths"),
    ({"x": Padded(np.zeros((2, 3)), np.array([1, 9]))}, ValueError, "lengths of sample 1"),
    ({"a": [np.arange(3)] * 2}, ValueError, r"entry \['a'\] is a list of 2 items, .* no other entry tells which \(samples: 3 or 2\)"),
    ({"pair": [torch.arange(3)] * 3, "x": np.arange(3)}, ValueError, r"entry \['pair'\] is a list of 3 items, either"),
    *((NOT_OFFSETS._replace(offsets=torch.tensor(offsets)), ValueError, "offsets must not decrease .* from 0 to 10") for offsets in ([0, -5, 10], [0, 5, 100], [-1, 10], [5, 2])),
]  # fmt: skip


@pytest.mark.parametrize(("batch", "error", "message"), BAD, ids=range(len(BAD)))
def test_bad_batches(batch, error, message):
    with pytest.raises(error, match=f"^unbind: {message}"):
        unbind(batch)


def test_views():
    batch = {"x": torch.zeros(2, 3), "y": [torch.zeros(2)]}
    unbind(batch)[1]["x"][0] = 7
    assert batch["x"][1, 0] == 7


def test_targets_of_detection():
    """A list of dicts, for torchvision's models."""
    fields = {"boxes": Jagged(), "labels": Jagged(), "masks": Pad(lengths="n")}
    samples = [
        {
            "boxes": np.full((count, 4), i, np.float32),
            "labels": np.arange(count),
            "masks": np.ones((count, 2)),
            "image_id": i,
            "name": f"{i}.jpg",
        }
        for i, count in enumerate((2, 0, 3))
    ]
    batch = Collate(fields)(samples)
    batch["masks"] = Padded(batch["masks"], batch.pop("n"))
    targets = unbind(batch)
    assert [list(target) for target in targets] == [list(sample) for sample in samples]
    for target, sample in zip(targets, samples, strict=True):
        for name, value in sample.items():
            if name == "name":
                assert target[name] == value
            else:
                assert type(target[name]) is torch.Tensor
                np.testing.assert_array_equal(target[name], value)
    images, again = zip(*unbind((torch.zeros(3, 2), batch)), strict=True)
    assert [image.shape for image in images] == [(2,)] * 3
    assert [target["image_id"] for target in again] == [0, 1, 2]
    pairs = unbind([np.arange(2), Point(torch.arange(2), ["a", "b"])])
    assert pairs == [[0, Point(0, "a")], [1, Point(1, "b")]]


@pytest.mark.parametrize("lengths", [[1, 2], [3, 1], [1, 1]], ids=str)
@pytest.mark.parametrize("more", [{}, {"y": 1}], ids=str)
def test_offsets_under_another_key(lengths, more):
    """Both samples have three items."""
    samples = [{"ids": [5] * length, **more} for length in lengths]
    batch = Collate({"ids": Jagged(offsets="cu_seqlens")})(samples)
    with pytest.raises(
        ValueError, match=r"\['cu_seqlens'\] has the offsets of entry .*\['ids'\]; put"
    ):
        unbind({"a": batch})
    both = JaggedBatch(batch.pop("ids"), batch.pop("cu_seqlens"))
    assert [[*sample["ids"]] for sample in unbind(batch | {"ids": both})] == [
        [5] * length for length in lengths
    ]
    other = Collate({"ids": Jagged(offsets="o")})([{"ids": [5] * 3, "y": 1}, {"ids": [], "y": 2}])
    with pytest.raises(ValueError, match=r"\['o'\] has the offsets of entry \['ids'\]"):
        unbind(other)


def test_numbers_that_resemble_offsets():
    for key in ("image_id", "label", "start"):
        batch = {"x": torch.zeros(3, 2), key: torch.tensor([0, 1, 2])}
        assert [sample[key] for sample in unbind(batch)] == [0, 1, 2]
    assert len(unbind({"x": torch.zeros(2, 2), "label": torch.tensor([0, 2])})) == 2


def test_unbind_of_objects_without_other_entries():
    """A list of arrays can have one per sample; other entries determine the number of samples."""
    arrays = [np.arange(3), np.arange(3)]
    samples = unbind({"a": arrays, "name": ["x", "y"]})
    assert [sample["a"] is array for sample, array in zip(samples, arrays, strict=True)] == [
        True
    ] * 2
    assert [sample["name"] for sample in samples] == ["x", "y"]
    pairs = unbind(arrays)  # tuples become lists in batches
    assert pairs == [[i, i] for i in range(3)]


def test_unbind_of_objects_that_are_arrays():
    arrays = [np.arange(2), np.arange(3), np.arange(5)]
    notes = [{"a": 1}, {"b": 2}, {}]
    keep = Keep()
    samples = [{"meta": arrays[i], "note": notes[i], "x": i} for i in range(3)]
    batch = Collate({"meta": keep, "note": keep})(samples)
    assert [list(target) for target in unbind(batch)] == [["meta", "note", "x"]] * 3
    for target, array, note in zip(unbind(batch), arrays, notes, strict=True):
        assert target["meta"] is array
        assert target["note"] is note
    parts = unbind({"pair": [torch.arange(3), torch.arange(3)], "x": np.arange(3)})
    assert [part["pair"] for part in parts] == [[0, 0], [1, 1], [2, 2]]


def test_unbind_of_tuples_that_begin_with_objects():
    keep, stacked = Keep(), Stack()
    collate = Collate({"pair": (keep, stacked), "x": stacked})
    samples = [{"pair": (name, n), "x": 5} for name, n in zip("abc", (1, 2, 3), strict=True)]
    parts = [[*one["pair"]] for one in unbind(collate(samples))]
    assert parts == [["a", 1], ["b", 2], ["c", 3]]
    with pytest.raises(ValueError, match="one for each sample or parts"):
        unbind(collate(samples[:2]))  # two parts of two samples
    pairs = [("a", 1), ("b", 2), ("c", 3)]
    batch = Collate((keep, stacked))(pairs)
    assert [(*one,) for one in unbind(batch)] == pairs
