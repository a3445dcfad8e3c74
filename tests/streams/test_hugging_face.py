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
from pinfeed.packing import PackedStream
from streams import all_parts, keep

COUNT = 200


def stream(shards, count=COUNT):
    tokens = [[i] * (i % 7) for i in range(count)]
    table = datasets.Dataset.from_dict({"i": range(count), "tokens": tokens})
    return table.to_iterable_dataset(shards)


def numbers(samples):
    return [int(sample["i"]) for sample in samples]


SOURCES = {
    "plain": lambda plain: plain,
    "shuffled": lambda plain: plain.shuffle(seed=1, buffer_size=50),
    "a function": lambda plain: lambda: plain,
    "a function, shuffled": lambda plain: lambda: plain.shuffle(seed=1, buffer_size=50),
    "mapped": lambda plain: plain.map(dict),
    "batches of all samples": lambda plain: (
        lambda: ({"i": i} for batch in plain.iter(8) for i in batch["i"])
    ),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("workers", "shards"), [(0, 1), (0, 7), (2, 1), (2, 7)])
def test_every_sample_once_in_every_epoch(workers, shards, source):
    count = 4000 if (workers, shards, source) == (2, 7, "shuffled") else COUNT
    dataset = StreamDataset(SOURCES[source](stream(shards, count)))
    loader = DataLoader(dataset, 16, num_workers=workers, collate_fn=keep)
    epochs = [numbers(itertools.chain(*loader)) for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(count))] * 2
    # It shuffles by the stream's epoch, unless a function returned it.
    assert (epochs[0] == epochs[1]) == (source != "shuffled")


@pytest.mark.parametrize("workers", [0, 2])
def test_every_row_of_a_packed_stream(workers):
    packed = PackedStream(StreamDataset(stream(5), 10), seq_length=8, key="tokens", window=50)
    loader = DataLoader(packed, None, num_workers=workers, collate_fn=keep)
    expected = [i for i in range(COUNT) if i % 7]
    assert sorted(numbers(itertools.chain(*loader))) == expected


@pytest.mark.parametrize("shards", [3, 4])
def test_ranks(shards, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    source = stream(shards)
    for undecided in (source, lambda: source):
        message = "pass rank=0, world_size=1, else pass rank and world"
        check(lambda: list(StreamDataset(undecided, uneven="keep")), TypeError, message)  # noqa: B023
    parts = all_parts(source, 2, 2)
    assert sorted(numbers(itertools.chain(*parts.values()))) == list(range(COUNT))
    result = []
    for rank in range(2):
        split = StreamDataset(split_dataset_by_node(source, rank, 2), rank=0, world_size=1)
        result += itertools.chain(*DataLoader(split, 9, num_workers=2, collate_fn=keep))
    assert sorted(numbers(result)) == list(range(COUNT))


def test_a_state_and_formats():
    def make(form):
        return StreamDataset(stream(4).shuffle(seed=2, buffer_size=9).with_format(form), 20)

    whole = list(make(None))
    for form, kind in ((None, int), ("numpy", np.int64), ("torch", torch.Tensor)):
        dataset = make(form)
        head = list(itertools.islice(iter(dataset), 77))
        resumed = make(form)
        resumed.load_state_dict(dataset.state_dict())
        samples = head + list(resumed)
        assert numbers(samples) == numbers(whole)
        assert {type(sample["i"]) for sample in samples} == {kind}
        assert [list(sample["tokens"]) for sample in samples] == [s["tokens"] for s in whole]
    (first, *_) = StreamDataset(stream(4).with_format("arrow"))
    assert first.to_pylist() == [{"i": 0, "tokens": []}]


def test_a_dataset_split_by_node_is_not_divided_among_ranks():
    split = split_dataset_by_node(stream(4), 1, 2)
    message = "split_dataset_by_node has sharded over 2 ranks; pass rank=0, world_size=1"
    for source in (split, lambda: split):
        given = StreamDataset(source, uneven="keep", rank=1, world_size=2)
        check(lambda: list(given), TypeError, message)  # noqa: B023
        result = numbers(StreamDataset(source, rank=0, world_size=1))
        assert result == numbers(split)
