"""Hugging Face IterableDatasets: what deals out its samples to workers is not dealt out again."""

import itertools

import datasets
import numpy as np
import pytest
import torch
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

from pinfeed import PackedStream, StreamDataset
from streams import all_parts, as_worker, keep

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
        with pytest.raises(TypeError, match="give rank=0, world_size=1, and else rank and world"):
            list(StreamDataset(undecided))
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


def one_by_one(dataset):
    yield from dataset


# Ways to read a dataset through other iterators.
BEHIND = {
    "iter": iter,
    "generator expression": lambda dataset: (sample for sample in dataset),
    "generator": one_by_one,
    "map": lambda dataset: map(dict, dataset),
    "islice of filter": lambda dataset: itertools.islice(filter(None, dataset), COUNT),
    "chain of a generator": lambda dataset: itertools.chain([], one_by_one(dataset)),
}


@pytest.mark.parametrize("way", BEHIND)
def test_what_other_iterators_read_is_dealt_out_once(way):
    read = BEHIND[way]
    for dataset in (
        StreamDataset(lambda: read(stream(4))),
        StreamDataset([0, 1], open_shard=lambda shard: read(stream(4).shard(2, shard))),
    ):
        assert sorted(numbers(dataset)) == list(range(COUNT))
        with as_worker(0, 2), pytest.raises(TypeError, match=DEALT_OUT):
            list(dataset)


DEALT_OUT = "deals out its samples to the 2 workers by itself"


def test_what_the_hint_says_of_other_iterators():
    options = {"num_workers": 2, "collate_fn": keep}
    with pytest.raises(TypeError, match=DEALT_OUT):
        list(DataLoader(StreamDataset(lambda: map(dict, stream(4))), 16, **options))
    batches = DataLoader(StreamDataset(stream(4).map(dict)), 16, **options)
    assert sorted(numbers(itertools.chain(*batches))) == list(range(COUNT))


def test_batches_of_all_samples_are_dealt_out_to_workers():
    def read():
        return (sample for batch in stream(4).iter(8) for sample in batch["i"])

    loader = DataLoader(StreamDataset(read), 16, num_workers=2, collate_fn=keep)
    assert sorted(itertools.chain(*loader)) == list(range(COUNT))


@pytest.mark.parametrize("way", BEHIND)
def test_what_was_split_by_node_is_not_dealt_out_to_ranks(way):
    split = split_dataset_by_node(stream(4), 1, 2)
    for source in (split, lambda: split, lambda: BEHIND[way](split)):
        with pytest.raises(TypeError, match="dealt it out already; give rank=0, world_size=1"):
            list(StreamDataset(source, rank=1, world_size=2))
        found = numbers(StreamDataset(source, rank=0, world_size=1))
        assert found == numbers(split)
    both = [
        numbers(StreamDataset(lambda: BEHIND[way](stream(4)), rank=rank, world_size=2))
        for rank in range(2)
    ]
    assert sorted(itertools.chain(*both)) == list(range(COUNT))
