"""Fields that read another entry (`from_key`), and optional entries (`allow_missing`)."""

import collections
import pickle

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import pinfeed
from messages import check
from pinfeed import Collate, Pack, Pad, Stack
from samples import TaggedDict, assert_same

IDS = [[5, 6, 7], [8]]
SAMPLES = [{"input_ids": ids, "label": i} for i, ids in enumerate(IDS)]
KINDS = [dict, collections.OrderedDict, collections.UserDict, TaggedDict]


def rows(samples):
    """Returns the samples as `Rows`."""
    columns = {key: [sample[key] for sample in samples] for key in samples[0]}
    arrays = {
        key: pinfeed.RaggedArray.from_sequences(column)
        if isinstance(column[0], list)
        else np.array(column)
        for key, column in columns.items()
    }
    return pinfeed.ArrayDataset(arrays).__getitems__(range(len(samples)))


@pytest.mark.parametrize("kind", [*KINDS, rows])
def test_fields_that_read_another_entry(kind):
    samples = rows(SAMPLES) if kind is rows else [kind(sample) for sample in SAMPLES]
    collate = Collate(
        {
            "input_ids": Pad(pad_value=0, side="left", mask="mask"),
            "labels": Pad(pad_value=-100, side="left").from_key("input_ids"),
            "score": Stack(torch.float32).from_key("label"),
        }
    )
    batch = pickle.loads(pickle.dumps(collate))(samples)
    expected = {
        "input_ids": torch.tensor([[5, 6, 7], [0, 0, 8]]),
        "mask": torch.tensor([[True] * 3, [False, False, True]]),
        "labels": torch.tensor([[5, 6, 7], [-100, -100, 8]]),
        "score": torch.tensor([0.0, 1.0]),
    }
    assert_same(dict(batch), expected)
    if kind is not rows:
        assert type(batch) is kind


KEYS = st.sampled_from("abcd")


@example(["a", "c"], {"a": "b"})  # the entry a of samples is not in the batch
@given(
    st.lists(KEYS, min_size=1, unique=True),
    st.dictionaries(st.sampled_from("abcdef"), st.none() | st.sampled_from("abcdx")),
)
@example(["a", "c"], {"a": "b"})
def test_missing_entries(keys, made_of):
    """Samples have ``keys``; ``made_of`` maps each batch entry to its source."""
    samples = [{key: ord(key) + 1000 * i for key in keys} for i in range(2)]
    fields = {
        key: Stack().allow_missing() if source is None else Stack().from_key(source).allow_missing()
        for key, source in made_of.items()
    }
    read_from_others = {key: source for key, source in made_of.items() if source in keys}
    plain = {
        key: key
        for key in keys
        if (key in made_of and made_of[key] is None)
        or (key not in made_of and key not in read_from_others.values())
    }
    expected = {
        key: torch.tensor([ord(source), ord(source) + 1000])
        for key, source in (plain | read_from_others).items()
    }
    for given_samples in (samples, rows(samples)):
        assert_same(
            dict(sorted(Collate(fields)(given_samples).items())), dict(sorted(expected.items()))
        )


def test_documents_and_their_labels():
    fields = {
        "input_ids": Pack(seq_length=None),
        "labels": Pack(seq_length=None, first_token=-100).from_key("input_ids"),
    }
    batch = Collate(fields)(SAMPLES)
    assert batch["labels"].tolist() == [[-100, 6, 7, -100]]
    assert list(batch) == ["input_ids", "label", "labels"]


@pytest.mark.parametrize("absent", ["missing", "None", "present"])
@pytest.mark.parametrize("kind", KINDS)
def test_labels_in_training_only(kind, absent):
    collate = Collate(
        {"input_ids": Pad(pad_value=0), "labels": Pad(pad_value=-100, like=False).allow_missing()}
    )
    labels = {"missing": {}, "None": {"labels": None}, "present": {"labels": [1]}}[absent]
    batch = collate([kind({"input_ids": ids} | labels) for ids in IDS])
    expected = {"labels": [[1], [1]]} if absent == "present" else {}
    assert {key: entry.tolist() for key, entry in batch.items()} == {
        "input_ids": [[5, 6, 7], [8, 0, 0]]
    } | expected


def test_one_collate_trains_and_predicts():
    collate = Collate({"labels": Stack().from_key("label").allow_missing()})
    for keys in (["id", "label"], ["id"], ["id", "label"]):
        batch = collate([dict.fromkeys(keys, 1)])
        assert list(batch) == ["id", "labels"][: len(keys)]


def make(fields):
    return lambda samples=SAMPLES: Collate(fields)(samples)


LABELS = make({"label": Stack().allow_missing()})

# The call, the error, and words of its message.
BAD = {
    "no key": (lambda: Pad().from_key(0), TypeError, "from_key: key must be a string, got 0"),
    "of, in a tuple": (lambda: Collate((Pad().from_key("a"),)), ValueError, "fields[0] has from_key()"),
    "optional, bare": (lambda: Collate(Stack().allow_missing()), ValueError, "allow_missing()", "dicts"),
    "no source": (make({"labels": Pad().from_key("tokens")}),
        ValueError, "fields['labels'] is read from 'tokens'", "['input_ids', 'label']", "add .allow_missing()"),
    "not optional": (make({"labels": Pad()}), ValueError, "got 'labels'; did you mean 'label'?"),
    "None among labels": (lambda: LABELS([{"label": 1}, {"label": 2}, {"label": None}]),
        ValueError, "entry ['label'] of sample 2: expected an entry as in sample 0, got None"),
    "labels among None": (lambda: LABELS([{"label": None}, {"label": None}, {"label": 1}]),
        ValueError, "entry ['label'] of sample 2: expected None as in sample 0, got an entry"),
    "missing in some": (lambda: LABELS([{"label": 1}, {}]), ValueError, "sample 1", "['label']"),
    "an entry of a device": (lambda: pinfeed.DeviceLoader([], fields={"x": Stack().from_key("y")}), TypeError, "fields['x']", "pass it to Collate"),
    "a key of two entries": (make({"input_ids": Pad(mask="labels"), "labels": Stack().from_key("label")}),
        ValueError, "two fields for the key 'labels'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_specs_and_samples(case):
    check(*BAD[case])


def test_hints_of_errors_work():
    batch = make({"labels": Pad().from_key("tokens").allow_missing(), "input_ids": Pad()})()
    assert list(batch) == ["input_ids", "label"]
