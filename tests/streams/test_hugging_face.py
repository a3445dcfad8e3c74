"""Hugging Face IterableDatasets: what deals out its samples to workers is not dealt out again."""

import itertools

import datasets
import numpy as np
import pytest
import torch
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

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


@pytest.mark.parametrize("shards", [1, 7])
@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_once_in_every_epoch(workers, shards):
    count = 4000 if workers and shards > 1 else COUNT
    plain = stream(shards, count)
    for shuffled in (plain, plain.shuffle(seed=1, buffer_size=50)):
        for source in (shuffled, lambda shuffled=shuffled: shuffled):
            dataset = StreamDataset(source)
            loader = DataLoader(dataset, 16, num_workers=workers, collate_fn=keep)
            epochs = [numbers(itertools.chain(*loader)) for _ in range(2)]
            assert [sorted(epoch) for epoch in epochs] == [list(range(count))] * 2
            # Its own shuffling is of the stream's epoch, unless a function returned it.
            assert (epochs[0] == epochs[1]) == (shuffled is plain or source is not shuffled)


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
        with pytest.raises(TypeError, match="pass rank=0, world_size=1, else pass rank and world"):
            list(StreamDataset(undecided, uneven="keep"))
    parts = all_parts(source, 2, 2)
    assert sorted(numbers(itertools.chain(*parts.values()))) == list(range(COUNT))
    split = [
        StreamDataset(split_dataset_by_node(source, rank, 2), rank=0, world_size=1)
        for rank in range(2)
    ]
    found = [
        numbers(itertools.chain(*DataLoader(d, 9, num_workers=2, collate_fn=keep))) for d in split
    ]
    assert sorted(itertools.chain(*found)) == list(range(COUNT))


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


def test_what_the_page_says_of_other_iterators():
    options = {"num_workers": 2, "collate_fn": keep}
    batches = DataLoader(StreamDataset(stream(4).map(dict)), 16, **options)
    assert sorted(numbers(itertools.chain(*batches))) == list(range(COUNT))


def test_batches_of_all_samples_are_dealt_out_to_workers():
    def read():
        return (sample for batch in stream(4).iter(8) for sample in batch["i"])

    loader = DataLoader(StreamDataset(read), 16, num_workers=2, collate_fn=keep)
    assert sorted(itertools.chain(*loader)) == list(range(COUNT))


def test_what_was_split_by_node_is_not_dealt_out_to_ranks():
    split = split_dataset_by_node(stream(4), 1, 2)
    for source in (split, lambda: split):
        with pytest.raises(
            TypeError, match="was sharded by split_dataset_by_node; pass rank=0, world_size=1"
        ):
            list(StreamDataset(source, uneven="keep", rank=1, world_size=2))
        found = numbers(StreamDataset(source, rank=0, world_size=1))
        assert found == numbers(split)
