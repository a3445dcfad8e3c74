"""PackedStream: windows against PackSampler, every document once, states, bad input."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from messages import check
from pinfeed import Collate, Pack, StreamDataset
from pinfeed.packing import PackedStream
from pinfeed.samplers import PackSampler

LENGTHS = [5, 0, 3, 8, 1, 7, 2, 2, 6, 4, 8, 1, 3, 0, 5, 5]


def documents(lengths):
    return [[100 * i + token for token in range(n)] for i, n in enumerate(lengths)]


settings = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 3),
        "strategy": st.sampled_from(["best_fit", "first_fit"]),
        "max_documents": st.integers(1, 4) | st.none(),
        "documents_multiple_of": st.sampled_from([1, 2, 4]),
        "shuffle": st.booleans(),
        "seed": st.integers(0, 9),
    }
) | st.fixed_dictionaries({"batch_size": st.integers(1, 3), "strategy": st.just("wrapped")})


@given(
    st.lists(st.integers(0, 8), max_size=40),
    settings,
    st.integers(1, 12),
    st.sampled_from([0, 1, 5]),
    st.integers(0, 2),
    st.integers(1, 3),
)
def test_windows_are_planned(lengths, settings, window, buffer, epoch, world_size):
    seen = []
    for rank in range(world_size):
        ranks = {"uneven": "keep", "rank": rank, "world_size": world_size}
        source = StreamDataset(documents(lengths), shuffle_buffer=buffer, **ranks)
        stream = PackedStream(source, seq_length=8, window=window, **settings)
        stream.set_epoch(epoch)
        own = list(stream.stream)
        stream.set_epoch(epoch)
        batches = list(stream)
        expected = []
        for number, start in enumerate(range(0, len(own), window)):
            samples = own[start : start + window]
            if any(samples):
                sampler = PackSampler([*map(len, samples)], seq_length=8, **settings)
                sampler.set_epoch((epoch << 32) + number)
                for batch in sampler:
                    expected.append(([samples[i] for i in batch], batch.packing))
        assert len(batches) == len(expected)
        for batch, (samples, packing) in zip(batches, expected, strict=True):
            assert [*batch] == samples
            assert all(map(equal, batch.packing, packing))
            for document, start, length in zip(batch, *batch.packing[2:4], strict=True):
                seen += document[start : start + length]
    assert sorted(seen) == [token for document in documents(lengths) for token in document]


def equal(one, other):
    return (one == other).all() if hasattr(one, "all") else one == other


BAD = [
    ({"stream": [[1]]}, TypeError, r"stream must be a StreamDataset.*, got list; wrap it"),
    ({"window": 0}, ValueError, "window must be at least 1, got 0"),
    ({"strategy": "best"}, ValueError, "strategy must be one of .*, got 'best'"),  # by PackSampler
]


@pytest.mark.parametrize(("changes", "error", "message"), BAD)
def test_bad_arguments(changes, error, message):
    good = {"stream": StreamDataset([[1]]), "seq_length": 4}
    with pytest.raises(error, match=f"^PackedStream: {message}"):
        PackedStream(**good | changes)
    assert len([*PackedStream(StreamDataset([[1]]), seq_length=4)]) == 1  # the first fix


def packed(samples, **options):
    return PackedStream(StreamDataset(samples), **{"seq_length": 2} | options)


DICTS = [{"tokens": [1, 2, 3]}, {"tokens": [4]}]
TOKENS_OF = "expected a document's tokens"


@pytest.mark.parametrize(
    ("samples", "options", "error", "words"),
    [
        (DICTS, {}, TypeError, "key: expected the key of the tokens, got None for samples with the keys ['tokens']; pass key="),
        (DICTS, {"key": "ids"}, TypeError, f"{TOKENS_OF} under the key 'ids', got ['tokens']: 'ids'"),
        (DICTS, {"key": 0}, TypeError, f"{TOKENS_OF} under the key 0, got ['tokens']: 0"),
        ([1], {}, TypeError, f"{TOKENS_OF}, got int: object of type"),
        (DICTS, {"key": "tokens"}, ValueError, "at most seq_length=2 tokens, got one of 3; cut or drop"),
    ],
)  # fmt: skip
def test_documents_that_do_not_fit(samples, options, error, words):
    check(lambda: next(iter(packed(samples, **options))), error, words)


def test_a_loader_of_batches_and_wrapped_documents():
    loader = DataLoader(packed(DICTS, seq_length=4, key="tokens"), 1, collate_fn=Collate())
    with pytest.raises(TypeError, match=r"batches of a PackedStream; .* with batch_size=None"):
        next(iter(loader))
    wrapped = packed(DICTS, key="tokens", batch_size=2, strategy="wrapped", shuffle=False)
    collate = Collate({"tokens": Pack(seq_length=2)})
    (batch,) = DataLoader(wrapped, batch_size=None, collate_fn=collate)
    assert batch["tokens"].tolist() == [[1, 2], [3, 4]]


STATE = packed([[1]], seq_length=4).state_dict()
LAST_OF_TWO = {"uneven": "keep", "rank": 1, "world_size": 2}


@pytest.mark.parametrize(
    ("stream", "changes", "state", "error", "words"),
    [
        ({}, {"seq_length": 5}, STATE, ValueError, "is from another stream: seq_length is 4 in the state and 5 here"),
        ({"shuffle_buffer": 2, "seed": 1}, {}, STATE,
            ValueError, "StreamDataset: the state is from another stream: shuffle_buffer"),
        (LAST_OF_TWO, {}, STATE,  # other ranks have other windows
            ValueError, "rank is 0 in the state and 1 here, world_size is 1 in the state and 2"),
        ({}, {}, {key: STATE[key] for key in STATE if key != "windows"}, ValueError, "got one without windows"),
        ({}, {}, [], TypeError, "state must be the state of this worker, got a list; load the list into a Dev"),
        ({}, {}, STATE | {"consumed": -1}, ValueError, "state['consumed'] must be at least 0, got -1"),
    ],
)  # fmt: skip
def test_states_of_other_streams(stream, changes, state, error, words):
    loading = PackedStream(StreamDataset([[1]], **stream), **{"seq_length": 4} | changes)
    check(lambda: loading.load_state_dict(state), error, words)
    assert repr(loading).startswith("PackedStream(StreamDataset(")


# Ranks with equal progress.


def even_streams(lengths, uneven, world_size, size, buffer=3, workers=0, **settings):
    """Returns the batches of all ranks."""
    streams = []
    for rank in range(world_size):
        ranks = {"rank": rank, "world_size": world_size}
        source = StreamDataset(documents(lengths), buffer, uneven=uneven, **ranks)
        streams.append(PackedStream(source, seq_length=8, window=7, batch_size=size, **settings))
    return streams


def tokens_of(batches):
    return [
        token
        for batch in batches
        for document, start, length in zip(batch, *batch.packing[2:4], strict=True)
        for token in document[start : start + length]
    ]


@given(
    st.lists(st.integers(0, 8), max_size=40),
    st.sampled_from(["drop", "repeat"]),
    st.sampled_from(["best_fit", "first_fit", "wrapped"]),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(0, 2),
    st.integers(0, 5),
)
def test_ranks_get_equally_many_batches_and_can_move(
    lengths, uneven, strategy, worlds, sizes, epoch, taken
):
    options = {"lengths": lengths, "uneven": uneven, "strategy": strategy}
    before = even_streams(world_size=worlds[0], size=sizes[0], **options)
    whole = []
    for stream in before:
        stream.set_epoch(epoch)
        whole.append(list(stream))
    assert len({len(batches) for batches in whole}) == 1
    every = sorted(token for document in documents(lengths) for token in document)
    result = [token for batches in whole for token in tokens_of(batches)]
    if uneven == "drop":
        assert len(set(result)) == len(result)
    else:
        assert sorted(set(result)) == every

    result, states = [], []
    for stream in before:
        stream.set_epoch(epoch)
        result += tokens_of(itertools.islice(stream, taken))
        states.append(json.loads(json.dumps(stream.state_dict())))
    assert states == [states[0] | {"batch_size": sizes[0]}] * len(states)
    after = even_streams(world_size=worlds[1], size=sizes[1], **options)
    counts = set()
    for stream in after:
        stream.load_state_dict(states[0])
        rest = list(stream)
        counts.add(len(rest))
        result += tokens_of(rest)
    assert len(counts) == 1
    if uneven == "drop":
        assert len(set(result)) == len(result)
    else:
        assert sorted(set(result)) == every
    fresh = even_streams(world_size=worlds[1], size=sizes[1], **options)
    for stream, other in zip(after, fresh, strict=True):
        other.set_epoch(epoch + 1)
        assert tokens_of(stream) == tokens_of(other)


@pytest.mark.parametrize("uneven", ["drop", "repeat"])
def test_workers_of_ranks_get_equally_many_batches(uneven):
    counts, tokens = [], []
    for stream in even_streams(LENGTHS * 3, uneven, 2, 2):
        loader = DataLoader(stream, None, collate_fn=tokens_by_batch, num_workers=2)
        batches = list(loader)
        counts.append((len(batches), len(list(loader))))  # of two epochs
        tokens += itertools.chain(*batches)
    assert len(set(counts)) == 1
    missing = sum(LENGTHS * 3) - len(set(tokens))
    assert missing == 0 if uneven == "repeat" else len(set(tokens)) == len(tokens)


def tokens_by_batch(batch):
    return tokens_of([batch])
