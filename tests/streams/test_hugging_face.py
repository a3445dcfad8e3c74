"""Hugging Face IterableDatasets, which distribute samples to workers themselves."""

import itertools

import datasets
import numpy as np
import pytest
import torch
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

from messages import check
from pinfeed import StreamDataset
from streams import keep, parts_of, stream

COUNT = 200


def hugging_face(shards, count=COUNT):
    tokens = [[i] * (i % 7) for i in range(count)]
    table = datasets.Dataset.from_dict({"i": range(count), "tokens": tokens})
    return table.to_iterable_dataset(shards)


def numbers(samples):
    return [int(sample["i"]) for sample in samples]


@pytest.mark.parametrize("shards", [3, 4])
def test_ranks(shards, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    source = hugging_face(shards)
    for undecided in (source, lambda: source):
        message = "pass rank=0, world_size=1, else pass rank and world"
        check(lambda: list(StreamDataset(undecided, uneven="keep")), TypeError, message)  # noqa: B023
    parts = parts_of(stream(source), 2, 2)
    assert sorted(numbers(itertools.chain(*parts.values()))) == list(range(COUNT))
    result = []
    for rank in range(2):
        split = StreamDataset(split_dataset_by_node(source, rank, 2), rank=0, world_size=1)
        result += itertools.chain(*DataLoader(split, 9, num_workers=2, collate_fn=keep))
    assert sorted(numbers(result)) == list(range(COUNT))


def test_formats():
    for form, kind in ((None, int), ("numpy", np.int64), ("torch", torch.Tensor)):
        samples = list(StreamDataset(hugging_face(4).with_format(form)))
        assert numbers(samples) == list(range(COUNT))
        assert {type(sample["i"]) for sample in samples} == {kind}
        assert [[*sample["tokens"]] for sample in samples] == [[i] * (i % 7) for i in range(COUNT)]
    (first, *_) = StreamDataset(hugging_face(4).with_format("arrow"))
    assert first.to_pylist() == [{"i": 0, "tokens": []}]


def test_a_dataset_split_by_node_is_not_divided_among_ranks():
    split = split_dataset_by_node(hugging_face(4), 1, 2)
    message = "split_dataset_by_node has sharded over 2 ranks; pass rank=0, world_size=1"
    for source in (split, lambda: split):
        given = StreamDataset(source, uneven="keep", rank=1, world_size=2)
        check(lambda: list(given), TypeError, message)  # noqa: B023
        result = numbers(StreamDataset(source, rank=0, world_size=1))
        assert result == numbers(split)
