"""RaggedArray.split: long sequences as pieces over the same memory."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pinfeed import ArrayDataset, Collate, ConcatArray, Jagged, Pack, RaggedArray, to_numpy
from pinfeed.samplers import PackSampler


def pieces_of(sequence, max_length, overlap):
    """Returns the pieces one by one, until one reaches the end."""
    pieces = [sequence[:max_length]]
    start = 0
    while start + max_length < len(sequence):
        start += max_length - overlap
        pieces.append(sequence[start : start + max_length])
    return pieces


sizes = st.integers(1, 9).flatmap(lambda most: st.tuples(st.just(most), st.integers(0, most - 1)))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), sizes, st.booleans(), st.data())
def test_pieces(lengths, size, as_tensor, data):
    max_length, overlap = size
    values = np.arange(3 + sum(lengths))  # three of them belong to no sequence
    offsets = np.cumsum([3, *lengths])
    ragged = RaggedArray(torch.from_numpy(values) if as_tensor else values, offsets)
    expected = [pieces_of(list(sequence), max_length, overlap) for sequence in ragged]
    flat = [piece for pieces in expected for piece in pieces]
    split = ragged.split(max_length, overlap)
    assert [list(piece) for piece in split] == flat
    assert split.lengths.tolist() == [len(piece) for piece in flat]
    assert split.documents.tolist() == [i for i, p in enumerate(expected) for _ in p]
    chosen = data.draw(st.lists(st.integers(0, len(flat) - 1), min_size=1, max_size=9))
    rows = ArrayDataset(split).__getitems__(chosen)
    for batch in (Collate(Jagged())(rows), Collate(Jagged())(list(rows))):
        assert [part.tolist() for part in batch.unbind()] == [flat[i] for i in chosen]


@pytest.mark.parametrize("overlap", [0, 1])
def test_no_sequences_have_no_pieces(overlap):
    split = RaggedArray(np.arange(3), np.zeros(1, np.int64)).split(2, overlap)
    assert len(split) == 0
    assert [*split] == split.lengths.tolist() == split.documents.tolist() == []


def test_nothing_is_copied_and_files_pickle_small(tmp_path):
    RaggedArray.from_sequences([[*range(100_000)]] * 3, dtype=np.int32).save(tmp_path / "tokens")
    ragged = RaggedArray.open(tmp_path / "tokens")
    for overlap in (0, 2):
        split = ragged.split(70, overlap)
        assert np.shares_memory(split[100], ragged.values)
        sent = pickle.dumps(split)
        assert len(sent) < 2000 + 40 * len(split) < ragged.values.nbytes / 4
        assert pickle.loads(sent)[-1].tolist() == split[-1].tolist()


def test_as_an_entry_of_a_dataset():
    ragged = RaggedArray.from_sequences([[1, 2, 3, 4, 5], [], [6]])
    split = ragged.split(2)
    dataset = ArrayDataset({"tokens": split, "label": np.array([7, 8, 9])[split.documents]})
    assert repr(split) == "RaggedArray(5 sequences of int64 (*,), 6 values)"
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=2, collate_fn=Collate({"tokens": Jagged()})
    )
    arrays = to_numpy(loader)
    assert arrays["label"].tolist() == [7, 7, 7, 8, 9]
    assert [list(sequence) for sequence in arrays["tokens"]] == [[1, 2], [3, 4], [5], [], [6]]


def test_pieces_of_many_files(tmp_path):
    """A corpus in several files is split per file, and packed together."""
    documents = [[1, 2, 3, 4, 5], [6], [], [7, 8, 9], [10, 11, 12, 13]]
    for name, part in (("a", documents[:2]), ("b", documents[2:])):
        RaggedArray.from_sequences(part).save(tmp_path / name)
    files = [RaggedArray.open(tmp_path / name) for name in ("a", "b")]
    pieces = ConcatArray([files[0].split(2), files[1][1:].split(2)])
    expected = [[1, 2], [3, 4], [5], [6], [7, 8], [9], [10, 11], [12, 13]]
    assert [list(piece) for piece in pieces] == expected
    assert pieces.lengths.tolist() == [len(piece) for piece in expected]
    sampler = PackSampler(pieces, batch_size=2, seq_length=4)
    for sent in (pieces, pickle.loads(pickle.dumps(pieces))):
        batches = map(ArrayDataset(sent).__getitems__, sampler)
        tokens = torch.cat(
            [Collate(Pack(seq_length=4, pad_value=-1))(rows).flatten() for rows in batches]
        )
        assert sorted(tokens[tokens >= 0].tolist()) == [*range(1, 14)]
    with pytest.raises(TypeError, match=r"part 1: expected .* a RaggedArray, .* got SourceSubset"):
        ConcatArray([files[0], files[1].split(2, 1)])


def test_selections_of_pieces(tmp_path):
    pieces = RaggedArray.from_sequences([[1, 2, 3, 4, 5], [], [6]]).split(2)
    for part, numbers in (
        (pieces[1:], [1, 2, 3, 4]),
        (pieces[::-2], [4, 2, 0]),
        (pieces[pieces.lengths > 1], [0, 1]),
    ):
        documents = pickle.loads(pickle.dumps(part)).documents
        assert documents.tolist() == pieces.documents[numbers].tolist()
    pieces.save(tmp_path / "pieces")
    assert [list(piece) for piece in RaggedArray.open(tmp_path / "pieces")] == [*map(list, pieces)]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "split: max_length must be at least 1, got 0"),
        ((2.0,), TypeError, "split: max_length must be an integer, got 2.0"),
        ((2, 2), ValueError, "split: overlap must be less than max_length=2, got 2"),
        ((2, -1), ValueError, "split: overlap must be at least 0, got -1"),
    ],
)
def test_bad_arguments(arguments, error, message):
    ragged = RaggedArray.from_sequences([[1, 2, 3]])
    with pytest.raises(error, match=message):
        ragged.split(*arguments)
