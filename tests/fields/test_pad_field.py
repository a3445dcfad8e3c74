"""Pad in a Collate compared with `pinfeed.functional.pad`, in every structure of fields, and with extra keys."""

import collections
import pickle
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
from messages import check
from pinfeed import Collate, Jagged, Pack, Pad, Stack
from samples import Bag, Point, Record, TaggedDict, assert_same
from sequences import assert_same_padded, batches

pytestmark = pytest.mark.kernels


SAMPLES = [[5, 6, 7], [8]]
VALUES, LENGTHS = torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([3, 1])
MASK = torch.tensor([[True, True, True], [True, False, False]])


@given(batches())
def test_a_field_equals_the_function(batch):
    result = Collate(Pad(**batch.keywords))(batch.samples)
    assert_same_padded(result, batch._replace(is_tensor=True))


# An entry, and its expected content.


@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: [x], lambda x: (x,), lambda x: Point(x, 1)]
)
def test_lengths_of_entries_outside_dicts(wrap):
    fields = wrap(Pad())
    fields = fields._replace(y=None) if isinstance(fields, Point) else fields
    batch = Collate(fields)([wrap(sample) for sample in SAMPLES])
    entry = batch if isinstance(batch, pinfeed.Padded) else batch[0]
    assert_same(entry, pinfeed.Padded(VALUES, LENGTHS))


@pytest.mark.parametrize(
    ("keywords", "entry"),
    [
        ({}, VALUES),
        ({"lengths": None}, VALUES),
        ({"lengths": False}, VALUES),
        ({"lengths": True}, pinfeed.Padded(VALUES, LENGTHS)),
        ({"mask": True}, pinfeed.Padded(VALUES, mask=MASK)),
        ({"mask": True, "lengths": True}, pinfeed.Padded(VALUES, LENGTHS, MASK)),
    ],
)
def test_outputs_of_an_entry_in_a_dict(keywords, entry):
    batch = Collate({"x": Pad(**keywords)})([{"x": sample} for sample in SAMPLES])
    assert_same(batch, {"x": entry})


def test_one_field_in_several_positions():
    field = Pad()
    collate = Collate({"a": field, "b": (field, Record(field, {"c": field}))})
    batch = collate([{"a": s, "b": (s, Record(s, {"c": s}))} for s in SAMPLES])
    padded = pinfeed.Padded(VALUES, LENGTHS)
    assert_same(batch, {"a": VALUES, "b": [padded, Record(padded, {"c": VALUES})]})
    assert_same(Collate(field)(SAMPLES), padded)


# Extra keys.


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, TaggedDict, Bag])
def test_lengths_and_mask_in_extra_keys(kind):
    fields = {"a": kind({"x": Pad(lengths="n", mask="where"), "y": Pad(lengths="m", mask=True)})}
    batch = Collate(fields)([{"a": kind({"x": s, "y": s, "z": 1})} for s in SAMPLES])["a"]
    assert type(batch) is kind
    assert set(batch) == {"x", "n", "where", "y", "m", "z"}
    assert_same([batch[key] for key in ("x", "n", "where")], [VALUES, LENGTHS, MASK])
    assert_same([batch[key] for key in ("y", "m")], [pinfeed.Padded(VALUES, mask=MASK), LENGTHS])


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.uint8, torch.bool])
def test_dtypes_of_masks(dtype):
    field = Pad(mask="mask", mask_dtype=dtype, lengths=False)
    expected = MASK.to(dtype)
    assert_same(Collate({"x": field})([{"x": sample} for sample in SAMPLES])["mask"], expected)
    jagged = Collate(Jagged())(SAMPLES)
    assert_same(field.apply(jagged, jagged, pinfeed.FieldContext("entry")).extras["mask"], expected)
    assert f"mask_dtype={dtype}" in repr(field)


def test_extra_keys_follow_their_entry():
    batch = Collate({"x": Pad(lengths="n", mask="m")})([{"w": 1, "x": [1], "y": 2}])
    assert list(batch) == ["w", "x", "n", "m", "y"]


TWO = r"fields.* has two fields for the key '[xym]'; leave one out, or choose another"
NO_DICT = r"fields.* adds the keys \['[mn]'\], which needs a dict"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": Pad(mask="y"), "y": None}, TWO),
        ({"x": Pad(mask="x")}, TWO),
        ({"x": Pad(mask="m", lengths="m")}, TWO),
        ({"x": Pad(mask="m"), "y": Pad(mask="m")}, TWO),
        ({"x": Pad(mask="m"), "y": Pad(lengths="m")}, TWO),
        ({"a": {"x": Pad(mask="m"), "m": Pad()}}, TWO),
        (Pad(mask="m"), NO_DICT),
        ((Pad(lengths="n"),), NO_DICT),
        (Point(Pad(mask="m"), None), NO_DICT),
        ({"a": [Pad(mask="m")]}, NO_DICT),
    ],
    ids=str,
)
def test_extra_keys_outside_a_dict(fields, message):
    with pytest.raises(ValueError, match=message):
        Collate(fields)


def test_an_extra_key_that_samples_have():
    collate = Collate({"x": Pad(mask="y")})
    message = r"entry \['x'\] adds the key 'y', but samples have an entry under that key"
    with pytest.raises(ValueError, match=message):
        collate([{"x": [1], "y": 2}])
    rows = pinfeed.ArrayDataset({"x": np.ones((3, 2)), "y": np.ones(3)}).__getitems__([0])
    with pytest.raises(ValueError, match=message):
        collate(rows)
    # In other dicts the key is free.
    batch = Collate({"a": {"x": Pad(mask="y")}})([{"a": {"x": [1]}, "y": 2}])
    assert list(batch["a"]) == ["x", "y"]


# Errors of Pad about keywords, before any samples; other keywords are checked like pad's.
BAD = [
    ({"side": "top"}, ValueError, "side"),
    ({"pad_value": 256, "dtype": np.uint8}, ValueError, "pad_value"),
    ({"mask_dtype": "int65", "mask": True}, TypeError, "mask_dtype"),
    ({"mask_dtype": torch.int64}, ValueError, "mask_dtype"),
    *(({key: wrong}, TypeError, f"{key} must be True, False or the key of a dict") for key in ("lengths", "mask") for wrong in ("", 1, b"m", ("m",))),
]  # fmt: skip


@pytest.mark.parametrize(("keywords", "error", "message"), BAD)
def test_keywords_are_checked_early(keywords, error, message):
    with pytest.raises(error, match=f"^Pad: {message}"):
        Pad(**keywords)


# Rows of datasets, which are read in place.


def test_rows_of_single_values():
    rows = pinfeed.ArrayDataset(np.arange(3)).__getitems__([0, 1])
    with pytest.raises(ValueError, match="expected samples with at least one axis"):
        Collate(Pad())(rows)


# Samples that are lists of sequences.


SEQUENCES = st.lists(st.integers(-9, 9), max_size=5)


@given(
    st.integers(1, 3).flatmap(
        lambda count: st.lists(st.lists(SEQUENCES, min_size=count, max_size=count), min_size=1)
    ),
    st.sampled_from(["right", "left"]),
    st.sampled_from([None, 3]),
    st.sampled_from([None, 2]),
    st.sampled_from([list, tuple, np.array, torch.tensor]),
)
def test_lists_of_sequences(samples, side, max_length, multiple_of, convert):
    """Each list is padded like its sequences."""
    keywords = {"side": side, "max_length": max_length, "multiple_of": multiple_of}
    field = Pad(pad_value=-1, **keywords, lengths="lengths", mask="mask", dtype=torch.int64)
    sequences = [sequence for sample in samples for sequence in sample]
    expected = pinfeed.functional.pad(sequences, -1, **keywords, mask=True, dtype=torch.int64)
    nested = [[convert(sequence) for sequence in sample] for sample in samples]
    batch = Collate({"x": field})([{"x": sample} for sample in nested])
    shape = (len(samples), len(samples[0]))
    for entry, part in zip(("x", "lengths", "mask"), expected, strict=True):
        assert torch.equal(batch[entry], part.view(*shape, *part.shape[1:]))


CHOICES = [[[1, 2], [3]], [[4], []]]

# Samples, the field, the error, and words of its message.
BAD_CHOICES = {
    "their number": ([*CHOICES, [[1]]], Pad(lengths=False),
        ValueError, "sample 2: expected 2 sequences as in sample 0, got 1; extend", "sample + [[]]"),
    "a dtype": ([*CHOICES, [[1], [0.5]]], Pad(lengths=False), TypeError, "sample 2[1]: expected dtype int64 as in sample 0, got float32"),
    "lengths": (CHOICES, Pad(), ValueError, "sequences need keys", "Pad(lengths=False)"),
    "a mask": (CHOICES, Pad(lengths=False, mask=True), ValueError, "mask='mask')"),
    "axes": (CHOICES, Pad(axes=0), TypeError, "np.asarray(list) converts nested lists"),
    "deeper": ([[[[1]]]], Pad(lengths=False), TypeError, "sample 0[0]", "nested lists"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CHOICES)
def test_lists_of_sequences_that_do_not_fit(case):
    samples, field, error, *words = BAD_CHOICES[case]
    check(lambda: Collate(field)(samples), error, "Collate: ", *words)
    filled = Collate(Pad(lengths=False))([*CHOICES, [[1], []]])  # the suggested fix
    assert filled.tolist() == [[[1, 2], [3, 0]], [[4, 0], [0, 0]], [[1, 0], [0, 0]]]


def test_empty_samples_are_padded_to_multiple_of():
    for options, width in (
        ({"max_length": 8, "multiple_of": 8}, 8),
        ({"multiple_of": 8}, 8),
        ({"max_length": 8}, 0),
    ):
        assert Collate(Pad(**options))([[], []]).values.shape == (2, width)


class Text(NamedTuple):
    input_ids: Any
    labels: Any


# Fields of one dict, and words of the warning if all lengths are equal; None: no warning.
PADDINGS = {
    "sides": ({"ids": Pad(pad_value=0, side="left"), "labels": Pad(pad_value=-100)}, "'ids' has side='left' and 'labels' has side='right'"),
    "the third": ({"ids": Pad(pad_value=0), "mask": Pad(pad_value=0), "labels": Pad(pad_value=-100, side="left")}, "'ids' has side='right' and 'labels' has"),
    "a limit": ({"ids": Pad(pad_value=0, max_length=8), "labels": Pad(pad_value=-100)}, "'ids' has max_length=8 and 'labels' has max_length=None"),
    "deeper": ({"text": {"ids": Pad(pad_value=0), "labels": Pad(pad_value=-100, side="left")}}, r"entry \['text'\]\['labels'\]: 'ids'"),
    "of one source": ({"ids": Pad(pad_value=0), "labels": Pad(pad_value=-100, side="left").from_key("ids")}, "'labels' has side='left'"),
    "equal": ({"ids": Pad(pad_value=0, side="left", max_length=8), "labels": Pad(pad_value=-100, side="left", max_length=8)}, None),
    "two limits": ({"ids": Pad(pad_value=0, max_length=8), "labels": Pad(pad_value=-100, max_length=4)}, "'ids' has max_length=8 and 'labels' has max_length=4"),
    "multiples": ({"ids": Pad(pad_value=0, multiple_of=8), "labels": Pad(pad_value=-100)}, "'ids' has multiple_of=8 and 'labels' has multiple_of=None"),
    "a mask of tokens": ({"input_ids": Pad(), "attention_mask": Pad(side="left")}, r"entry \['attention_mask'\]: .*side='left'"),
    "a Jagged": ({"ids": Pad(pad_value=0, max_length=8), "labels": Jagged()}, "'labels' has max_length=None.*; pass the same max_length to both"),
    "two of Jagged": ({"ids": Jagged(max_length=8), "labels": Jagged(max_length=8, side="left")}, "'labels' has side='left'"),
    "a Pack": ({"ids": Pack(seq_length=None), "labels": Jagged(max_length=4)}, "'labels' has max_length=4"),
    "a tuple": ((Pad(pad_value=0), Pad(pad_value=-100, side="left")), r"entry \[1\]: '0' has side='right' and '1' has side='left'.*; pass the same side to both, or"),
    "separate ones of a tuple": ((Pad(pad_value=0), Pad(side="left", like=False)), None),
    "a named tuple": (Text(Pad(pad_value=0), Pad(pad_value=-100, side="left")), r"entry \.labels: 'input_ids' has side='right'.*; pass the same side"),
    "labels of boxes": ({"labels": Jagged(), "tokens": Jagged()}, None),
    "other axes": ({"frames": Pad(axes=0, max_length=8), "labels": Pad(pad_value=-100)}, None),
    "dicts of their own": ({"prompt": {"ids": Pad(pad_value=0, side="left")}, "answer": {"ids": Pad(pad_value=0)}}, None),
    "another field": ({"ids": Pad(pad_value=0, side="left"), "labels": Jagged()}, None),
    "as the warning says": ({"ids": Pad(pad_value=0, side="left", max_length=8), "labels": Pad(pad_value=-100, like="ids")}, None),
    "within one of them": ({"prompt_ids": Pad(pad_value=0, side="left"), "prompt_mask": Pad(pad_value=0)}, "pass like='prompt_ids'"),
    "tokens and targets": ({"tokens": Pad(pad_value=0, side="left"), "targets": Pad(pad_value=-100)}, "pass like='tokens'"),
    "or": ({"ids": Pad(pad_value=0, side="left"), "answer": Pad(pad_value=-100, like=False)}, None),
}  # fmt: skip


def tokens(fields, length):
    """Returns a sample for these fields, with one length for all entries or one per key."""
    if isinstance(fields, dict):
        of = lambda key: length[key] if isinstance(length, dict) else length
        return {key: tokens(field, of(key)) for key, field in fields.items()}
    if isinstance(fields, tuple):
        values = [tokens(field, length) for field in fields]
        return type(fields)(*values) if hasattr(fields, "_fields") else tuple(values)
    return [1] * length


@pytest.mark.parametrize(("fields", "words"), PADDINGS.values(), ids=PADDINGS)
def test_different_paddings_in_one_dict(fields, words, recwarn):
    collate = Collate(fields)
    for lengths in ([5, 5], [3, 12], [4, 5]):
        collate([tokens(fields, length) for length in lengths])
    result = [str(warning.message) for warning in recwarn]
    assert len(result) == (words is not None)
    if words is not None:
        assert re.search(words, result[0])


LEFT, RIGHT = {"side": "left", "max_length": 2}, {"side": "right", "max_length": 2}
# Fields, lengths of the samples of a batch or of each entry, and whether one batch warns: all rows have one length.
CUTS = {
    "labels": ({"input_ids": Pad(**LEFT), "labels": Pad(**RIGHT)}, [4, 3], True),
    "labels first": ({"labels": Pad(**RIGHT), "input_ids": Pad(**LEFT)}, [4, 3], True),
    "a mask": ({"input_ids": Pad(**LEFT), "attention_mask": Pad(**RIGHT)}, [4, 4], True),
    "other names": ({"ids": Pad(**LEFT), "classes": Pad(**RIGHT)}, [2, 3], True),
    "one row": ({"ids": Pad(**LEFT), "classes": Pad(**RIGHT)}, [9], True),
    "of one source": ({"ids": Pad(**LEFT), "labels": Pad(**RIGHT).from_key("ids")}, [4, 3], True),
    "of Jagged": ({"ids": Jagged(**LEFT), "labels": Jagged(**RIGHT)}, [4, 3], True),
    "a tuple": ((Pad(**LEFT), Pad(**RIGHT)), [4, 3], True),
    "one of two Jagged": ({"input_ids": Jagged(max_length=2), "labels": Jagged()}, [3, 3], True),
    "labels alone": ({"input_ids": Jagged(), "labels": Jagged(max_length=2)}, [4, 3], True),
    "one is a Jagged": ({"input_ids": Pad(max_length=2), "labels": Jagged()}, [4], True),
    "one of other names": ({"ids": Jagged(max_length=2), "classes": Pad()}, [4, 3], True),
    "other names of one length": ({"ids": Jagged(max_length=2), "classes": Pad()}, [4, 4], False),
    "labels of the text": (
        {"input_ids": Jagged(max_length=2), "labels": Jagged()},
        [{"input_ids": 4, "labels": 3}, {"input_ids": 3, "labels": 3}], False,
    ),
    "a multiple": ({"ids": Pad(side="left", multiple_of=8), "labels": Pad(multiple_of=8)}, [3, 3], True),
    "a full multiple": ({"ids": Pad(side="left", multiple_of=3), "labels": Pad(multiple_of=3)}, [3, 3], False),
    "one side": ({"input_ids": Pad(**LEFT), "labels": Pad(**LEFT)}, [4, 3], False),
    "exactly": ({"input_ids": Pad(**LEFT), "labels": Pad(**RIGHT)}, [2, 2], False),
    "like=False": ({"input_ids": Pad(**LEFT), "labels": Pad(**RIGHT, like=False)}, [4, 3], False),
    "a prompt and its completion": (
        {"prompt_ids": Pad(**LEFT), "completion_ids": Pad(**RIGHT)},
        [{"prompt_ids": 4, "completion_ids": 5}, {"prompt_ids": 3, "completion_ids": 6}], False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("as_rows", [False, True])
@pytest.mark.parametrize("case", CUTS)
def test_rows_of_one_length_cut_on_different_sides(case, as_rows, recwarn):
    fields, lengths, warns = CUTS[case]
    if as_rows and isinstance(fields, tuple):
        fields = dict(zip("ab", fields, strict=True))
    given = array_rows if as_rows else list
    collate = Collate(fields)
    collate(given([tokens(fields, 2)]))
    assert not recwarn  # no row is cut, and one row has no others to be padded like
    for _ in range(3):
        collate(given([tokens(fields, length) for length in lengths]))
    messages = [str(warning.message) for warning in recwarn]
    assert len(messages) == warns
    assert all("different columns, or missing; pass " in text for text in messages)


def test_lists_of_sequences_cut_on_different_sides(recwarn):
    fields = {"input_ids": Pad(**LEFT), "labels": Pad(**RIGHT)}
    fitting, cut = [[1, 2], [3, 4]], [[1, 2, 3], [4, 5]]
    collate = Collate(fields)
    collate([dict.fromkeys(fields, fitting)])
    assert not recwarn
    collate([dict.fromkeys(fields, cut)])
    assert len(recwarn) == 1


def test_paddings_of_a_device_loader_that_differ():
    fields = {"ids": Pad(pad_value=0, side="left"), "labels": Pad(pad_value=-100)}
    jagged = Collate({"ids": Jagged(), "labels": Jagged()})
    batches = [jagged([tokens(fields, length) for length in (3, 5)])]
    with pytest.warns(UserWarning, match="'ids' has side='left' and 'labels' has side='right'"):
        assert len(list(pinfeed.DeviceLoader(batches, device="cpu", fields=fields))) == 1
    cut = {"ids": Pad(**LEFT), "labels": Pad(**RIGHT)}
    batches = [jagged([tokens(fields, 4) for _ in range(2)])]
    with pytest.warns(UserWarning, match="'ids' has side='left' and 'labels' has side='right'"):
        assert len(list(pinfeed.DeviceLoader(batches, device="cpu", fields=cut))) == 1


@pytest.mark.parametrize("given", [list, lambda samples: array_rows(samples)])
def test_joined_labels_of_other_lengths(given):
    ids, labels = [[1, 2, 3], []], [[4, 5], [6]]
    samples = given([{"input_ids": i, "labels": l} for i, l in zip(ids, labels, strict=True)])
    pack = Pack(seq_length=None, pad_value=-100)
    words = "expected length 3 as in ['input_ids'], got 2; store", "such as -100", "from_key()"
    for _ in range(2):
        check(lambda: Collate({"input_ids": pack, "labels": pack})(samples), ValueError, *words)
    for fields in (
        {"input_ids": pack, "targets": pack.from_key("labels")},  # as the hint says
        {"input_ids": Jagged(), "labels": Jagged()},  # of a whole text
    ):
        assert len(Collate(fields)(samples)) == 2


# Two entries padded on different sides or to different limits: independent sequences.
OWN = {
    "a prompt and its completion": {"prompt_ids": Pad(side="left"), "completion_ids": Pad()},
    "a decoder": {"input_ids": Pad(side="left"), "decoder_input_ids": Pad()},
    "speech": {"input_values": Pad(max_length=4), "labels": Pad(pad_value=-100)},
    "the past and the future": {"past": Pad(side="left"), "future": Pad()},
    "names of any kind": {"x": Pad(side="left"), "y": Pad(max_length=6)},
    "answers": {"text": Pad(side="left"), "text_pair": Pad(), "labels": Pad(max_length=9)},
}


@pytest.mark.parametrize("fields", OWN.values(), ids=OWN)
def test_different_paddings_of_independent_sequences(fields, recwarn):
    collate = Collate(fields)
    for lengths in ([(5, 5, 1), (5, 5, 1)], [(3, 12, 2), (8, 7, 9)], [(4, 2, 1), (4, 5, 2)]):
        collate([tokens(fields, dict(zip(fields, some, strict=False))) for some in lengths])
    assert not recwarn


TOKENS = [{"input_ids": [], "labels": []}, {"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}]
SHORTER = [*TOKENS, {"input_ids": [8, 9], "labels": [9]}]


def array_rows(samples):
    """Returns the samples as Rows of arrays."""
    arrays = {
        key: pinfeed.RaggedArray.from_sequences([np.array(s[key], np.int64) for s in samples])
        for key in samples[0]
    }
    return pinfeed.ArrayDataset(arrays).__getitems__(range(len(samples)))


@pytest.mark.parametrize("given", [list, array_rows])
@pytest.mark.parametrize("labels_first", [False, True])
def test_labels_like_their_tokens(given, labels_first):
    options = {"side": "left", "max_length": 5, "multiple_of": 4}
    fields = {
        "input_ids": Pad(pad_value=0, **options, mask="mask"),
        "labels": Pad(pad_value=-100, like="input_ids", lengths="n"),
    }
    if labels_first:
        fields = dict(reversed(fields.items()))
    collate = pickle.loads(pickle.dumps(Collate(fields)))
    for samples in (TOKENS, TOKENS[::-1], [{key: [1] * 9 for key in fields}]):
        batch = collate(given(samples))
        for key, fill in (("input_ids", 0), ("labels", -100)):
            expected = pinfeed.functional.pad(
                [np.array(s[key], np.int64) for s in samples], fill, **options
            )
            assert torch.equal(batch[key], torch.from_numpy(expected.values))
        assert torch.equal(batch["n"], batch["mask"].sum(1))
    words = "expected length 2 as in ['input_ids'], got 1; store a value for every item"
    check(lambda: collate(given(SHORTER)), ValueError, words, "such as -100", "like=False")
    filled = [*TOKENS, {"input_ids": [8, 9], "labels": [-100, 9]}]  # the suggested fix
    assert collate(given(filled))["labels"].shape == (3, 4)


# Fields, and whether labels with other lengths than their tokens warn.
LABELS = {
    "of their own": ({"input_ids": Pad(pad_value=0), "labels": Pad(pad_value=-100)}, True),
    "first": ({"labels": Pad(pad_value=-100), "input_ids": Pad(pad_value=0)}, True),
    "of one object": (dict.fromkeys(["input_ids", "labels"], Pad(pad_value=0, lengths=False)), True),
    "a decoder's": ({"input_ids": Pad(pad_value=0), "labels": Pad(pad_value=-100, like=False)}, False),
    "an encoder's": ({"input_ids": Pad(pad_value=0, like=False), "labels": Pad(pad_value=-100)}, False),
    "made of them": ({"input_ids": Pad(pad_value=0), "labels": Pad(pad_value=-100).from_key("input_ids")}, False),
    "no tokens": ({"labels": Pad(pad_value=-100)}, False),
    "of words": ({"tokens": Pad(), "ner_tags": Pad(pad_value=-100)}, True),
    "a text's": ({"input_ids": Pad(), "genre_tags": Pad()}, False),
    "another name": ({"input_ids": Pad(pad_value=0), "labels": Pad(pad_value=-100, like="labels_mask"), "labels_mask": Pad(pad_value=0)}, False),
}  # fmt: skip


@pytest.mark.parametrize("given", [list, array_rows])
@pytest.mark.parametrize(("fields", "warns"), LABELS.values(), ids=LABELS)
def test_labels_of_other_lengths_warn_once(fields, warns, given, recwarn):
    tokens = {"input_ids", "tokens"}
    make = lambda samples: given(
        [{key: s["input_ids" if key in tokens else "labels"] for key in fields} for s in samples]
    )
    collate = Collate(fields)
    same = [{"input_ids": s["input_ids"], "labels": s["input_ids"]} for s in TOKENS]
    collate(make(same))
    assert not recwarn
    for _ in range(2):
        collate(make(SHORTER))
    result = [str(warning.message) for warning in recwarn]
    assert len(result) == warns
    assert all(" of sample" in text and "like=False" in text for text in result)


def test_labels_truncated_shorter_than_their_tokens():
    same = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}]
    fields = {
        "input_ids": Pad(pad_value=0, max_length=3),
        "labels": Pad(pad_value=-100, max_length=2),
    }
    with pytest.warns(UserWarning, match="expected length 3 .* got 2; .* set the same max_length"):
        Collate(fields)(same)
    Collate({**fields, "labels": Pad(pad_value=-100, max_length=3)})(same)  # the suggested fix


def test_like_in_lists_of_sequences_and_batches_without_tokens():
    labels = Pad(pad_value=-100, like="input_ids").allow_missing()
    collate = Collate({"input_ids": Pad(pad_value=0).allow_missing(), "labels": labels})
    assert collate([{"labels": [1]}])["labels"].tolist() == [[1]]
    assert list(collate([{"input_ids": [1]}])) == ["input_ids"]
    nested = [{"input_ids": [[1, 2], [3]], "labels": [[1, 2], [3]]}]
    assert collate(nested)["labels"].tolist() == [[[1, 2], [3, -100]]]
    nested[0]["labels"] = [[1, 2], []]
    words = "sample 0: expected length [2, 1] as in ['input_ids'], got "
    check(lambda: collate(nested), ValueError, f"{words}[2, 0]")
    nested[0]["labels"] = [[1, 2]]
    check(lambda: collate(nested), ValueError, f"{words}[2]")


# The call, the error, and words of its message.
BAD_LIKES = {
    "a number": (lambda: Pad(like=1), TypeError, "like must be False, None or the key of a dict, got 1"),
    "nothing": (lambda: Pad(like=""), TypeError, "got ''"),
    "a side too": (lambda: Pad(like="ids", side="left"), ValueError, "like='ids' takes side from", "leave out side"),
    "a limit too": (lambda: Pad(like="ids", max_length=4), ValueError, "leave out max_length"),
    "itself": (lambda: Collate({"ids": Pad(like="ids")}), ValueError, "another Pad()"),
    "another field": (lambda: Collate({"ids": Jagged(), "x": Pad(like="ids")}), ValueError, "fields['x']: like must be", "the key of Jagged()"),
    "a chain": (lambda: Collate({"a": Pad(), "b": Pad(like="a"), "c": Pad(like="b")}), ValueError, "the key of Pad(like='a')"),
    "in no dict": (lambda: Collate((Pad(), Pad(like="ids"))), ValueError, "depends on the key 'ids' of the same dict", "make the samples dicts"),
    "of a device": (lambda: pinfeed.DeviceLoader([], fields={"ids": Pad(), "x": Pad(like="ids")}), TypeError, "must not have from_key(), allow_missing() or like="),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_LIKES)
def test_bad_values_of_like(case):
    make, error, *words = BAD_LIKES[case]
    check(make, error, *words)


def test_frames_as_nested_lists():
    samples = [[[1, 2], [3, 4]], [[5, 6]], []]
    expected = "expected 2 sequences as in sample 0, got 1; "
    array = "np.array(sample, np.int64).reshape(-1, 2)"
    words = f"{expected}{array} makes an array of frames; if they are sequences, extend"
    check(lambda: Collate(Pad(lengths=False))(samples), ValueError, words)
    check(lambda: Collate(Pad(lengths=False))(samples[::2]), ValueError, array)
    padded = Collate(Pad())([eval(array, {"np": np, "sample": sample}) for sample in samples])
    assert padded.values.tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]], [[0, 0], [0, 0]]]
    assert padded.lengths.tolist() == [2, 1, 0]


def row(count, kind):
    return kind([list(range(5, 5 + count))])


ROW_FIELDS = [Pad(mask="mask"), Pad(), Jagged(), Pack(seq_length=None)]


@pytest.mark.parametrize(
    "kind", [list, np.array, torch.tensor, lambda row: np.array(row, np.int32)]
)
@pytest.mark.parametrize("counts", [(3, 3), (3, 2)])
@pytest.mark.parametrize("field", ROW_FIELDS)
def test_tokens_of_shape_1_by_length(kind, counts, field):
    collate = Collate({"input_ids": field})
    samples = [{"input_ids": row(count, kind)} for count in counts]
    words = "sample 0: expected a row of tokens", "; pass sample[0]"
    check(lambda: collate(samples), ValueError, *words)
    batch = collate([{"input_ids": sample["input_ids"][0]} for sample in samples])
    values = batch["input_ids"]
    if isinstance(field, pinfeed.Jagged):
        assert values.lengths.tolist() == list(counts)
    elif isinstance(field, pinfeed.Pack):
        assert values.numel() == sum(counts)
    else:
        assert values.shape == (2, 3)
        assert values[1].tolist() == [5, 6, 7 if counts[1] == 3 else 0]


@pytest.mark.parametrize("pad", [pinfeed.functional.pad, pinfeed.Collate(pinfeed.Pad())])
@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_rows_of_shape_1_by_length_without_keys(pad, kind):
    with pytest.warns(UserWarning, match=r"shape \(1, 3\); for tokens, pass sample\[0\].* axes=0"):
        assert pad([kind([[5, 6, 7]])] * 2).values.shape == (2, 1, 3)
    with pytest.raises(ValueError, match=r"a row of tokens, got shape \(1, 3\); pass sample\[0\]"):
        pad([kind([[5, 6, 7]]), kind([[5, 6]])])
    assert pad([kind([5, 6, 7]), kind([5, 6])]).values.shape == (2, 3)


ROW = np.array([[5, 6, 7]])
# A sample, the fields, and the path that the warning names; None: no warning.
STACKED = {
    "ids": ({"input_ids": ROW}, None, "['input_ids']"),
    "a tensor": ({"label": 1, "token_ids": torch.tensor(ROW)}, None, "['token_ids']"),
    "once": ({"input_ids": ROW, "attention_mask": ROW}, None, "['input_ids']"),
    "the other": ({"input_ids": ROW, "attention_mask": ROW}, {"input_ids": Pad(axes=0)}, "['attention_mask']"),
    "deeper": ({"text": {"input_ids": ROW}, "label": 1}, {"label": Stack()}, "['text']['input_ids']"),
    "as the warning says": ({"input_ids": ROW[0]}, None, None),
    "an axis to keep": ({"input_ids": ROW}, {"input_ids": Stack()}, None),
    "several rows": ({"input_ids": np.repeat(ROW, 2, 0)}, None, None),
    "floats": ({"token_scores": ROW * 0.5}, None, None),
    "a pair": ({"token_span": ROW[:, :2]}, None, None),
    "other keys": ({"boxes": ROW, "x": ROW}, None, None),
}  # fmt: skip


@pytest.mark.parametrize("as_rows", [False, True])
@pytest.mark.parametrize("case", STACKED)
def test_stacked_rows_of_shape_1_by_length_warn_once(case, as_rows, recwarn):
    sample, fields, path = STACKED[case]
    samples = [sample] * 2
    if as_rows:
        stacked = torch.utils.data.default_collate(samples)
        samples = pinfeed.ArrayDataset(stacked).__getitems__([0, 1])
    collate = Collate(fields)
    for _ in range(2):
        collate(samples)
    messages = [str(warning.message) for warning in recwarn]
    assert len(messages) == (path is not None)
    if path is not None:
        words = f"Collate: entry {path}: samples of shape (1, 3) make batches of shape (B, 1, 3); for tokens, pass sample[0]"
        assert messages[0].startswith(words)


IDS_OF_1, AUDIO = [np.arange(9)[None]] * 2, [np.zeros((1, count), np.float32) for count in (3, 2)]
BOX, COUNTS = [np.array([[1, 2, 3, 4]])] * 2, [np.arange(count)[None] for count in (3, 2)]
# A call for samples of shape (1, n) that are not tokens, and the shape of the batch.
NO_TOKENS = {
    "a pair": (lambda: pinfeed.functional.pad([np.array([[1, 2]])] * 2).values, (2, 1, 2)),
    "one row": (lambda: pinfeed.functional.pad(IDS_OF_1[:1]).values, (1, 1, 9)),
    "bytes": (lambda: pinfeed.functional.pad([np.ones((1, 9), "u1")] * 2).values, (2, 1, 9)),
    "an axis": (lambda: pinfeed.functional.pad(IDS_OF_1, axes=0).values, (2, 1, 9)),
    "an axis of a field": (lambda: Collate(Pad(axes=0))(IDS_OF_1).values, (2, 1, 9)),
    "joined": (lambda: Collate((Jagged(),))([(row,) for row in IDS_OF_1])[0].values, (2, 9)),
    "audio": (lambda: Collate(Pad(lengths=False))(AUDIO), (2, 1, 3)),
    "boxes": (lambda: Collate({"boxes": Pad()})([{"boxes": box} for box in BOX])["boxes"], (2, 1, 4)),
    "an axis of tokens": (lambda: Collate({"input_ids": Pad(axes=1)})([{"input_ids": ids} for ids in COUNTS])["input_ids"], (2, 1, 3)),
}  # fmt: skip


@pytest.mark.parametrize(("call", "shape"), NO_TOKENS.values(), ids=NO_TOKENS)
def test_rows_that_are_not_tokens(call, shape):
    assert call().shape == shape
