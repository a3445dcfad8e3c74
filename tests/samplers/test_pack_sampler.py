"""PackSampler: plans compared with plain Python, each document once, ranks, states."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, SequentialSampler

from pinfeed import ArrayDataset, Collate, Keep, Pack, RaggedArray
from pinfeed.samplers import PackSampler
from pinfeed.samplers.pack import PackLosses

SEQ_LENGTH = 12
length_lists = st.lists(st.integers(0, SEQ_LENGTH), min_size=1, max_size=40).filter(any)


def rows_of(batch):
    """Returns documents, first tokens and lengths of each row, and checks their offsets."""
    packing = batch.packing
    assert batch == packing.documents.tolist()
    rows = [[] for _ in range(packing.rows)]
    end = 0
    for document, start, length, place in zip(
        *(column.tolist() for column in packing[:1] + packing[2:5]), strict=True
    ):
        row = place // packing.seq_length
        assert place == (end if rows[row] else row * packing.seq_length)
        assert length > 0
        room = -(-length // packing.multiple_of) * packing.multiple_of
        end = place + room
        assert end <= (row + 1) * packing.seq_length
        rows[row].append((document, start, length))
    return rows


def epoch_rows(sampler):
    return [row for batch in sampler for row in rows_of(batch) if row]


def packed_by_rule(lengths, order, most, is_better):
    """Puts each document into the best row by the rule, or into a new one."""
    rows = []
    rooms = []
    for document in order:
        length = lengths[document]
        fits = [r for r in range(len(rows)) if rooms[r] >= length and len(rows[r]) < most]
        if length == 0:
            continue
        if fits:
            row = min(fits, key=lambda r: is_better(rooms[r], r))
        else:
            row = len(rows)
            rows.append([])
            rooms.append(SEQ_LENGTH)
        rows[row].append(document)
        rooms[row] -= length
    return rows


@given(length_lists, st.integers(1, 4) | st.none(), st.integers(0, 9), st.integers(0, 3))
def test_first_fit_equals_the_rule(lengths, most, seed, epoch):
    kept = PackSampler(
        lengths, seq_length=SEQ_LENGTH, strategy="first_fit", max_documents=most, shuffle=False
    )
    rows = [[document for document, _, _ in row] for row in epoch_rows(kept)]
    assert rows == packed_by_rule(lengths, range(len(lengths)), most or 99, lambda _, row: row)
    shuffled = PackSampler(
        lengths, seq_length=SEQ_LENGTH, strategy="first_fit", max_documents=most, seed=seed
    )
    shuffled.set_epoch(epoch)
    documents = [document for row in epoch_rows(shuffled) for document, _, _ in row]
    assert sorted(documents) == [i for i, length in enumerate(lengths) if length]


@given(length_lists, st.integers(0, 9), st.integers(0, 3))
def test_best_fit_equals_the_rule(lengths, seed, epoch):
    """Rows with equal space are interchangeable, so only the row lengths are compared."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    expected = packed_by_rule(lengths, order, 99, lambda room, row: room)
    for shuffle in (True, False):
        sampler = PackSampler(lengths, seq_length=SEQ_LENGTH, seed=seed, shuffle=shuffle)
        sampler.set_epoch(epoch)
        rows = epoch_rows(sampler)
        assert len(rows) == len(expected) == len(sampler)
        assert sampler.padding_fraction == 1 - sum(lengths) / (len(rows) * SEQ_LENGTH)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any), st.booleans())
def test_wrapped_rows_cover_the_stream(lengths, shuffle):
    sampler = PackSampler(lengths, seq_length=SEQ_LENGTH, strategy="wrapped", shuffle=shuffle)
    # Rows are in any order: a piece that isn't the first continues where another one ended.
    rows = epoch_rows(sampler)
    taken = sorted(
        (document, token)
        for row in rows
        for document, start, length in row
        for token in range(start, start + length)
    )
    assert taken == [(i, token) for i, length in enumerate(lengths) for token in range(length)]
    full = [row for row in rows if sum(length for _, _, length in row) == SEQ_LENGTH]
    assert len(full) == sum(lengths) // SEQ_LENGTH
    if not shuffle:
        stream = [document for row in rows for document, _, length in row for _ in range(length)]
        assert stream == np.repeat(np.arange(len(lengths)), lengths).tolist()


options = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 3),
        "strategy": st.sampled_from(["best_fit", "first_fit"]),
        "overflow": st.sampled_from(["truncate", "drop"]),
        "max_documents": st.integers(1, 5) | st.none(),
        "documents_multiple_of": st.sampled_from([1, 2, 3, 4]),
        "shuffle": st.booleans(),
        "seed": st.integers(0, 2**70),
        "balance": st.sampled_from(["count", "tokens", "attention"]),
    }
)


@given(st.lists(st.integers(0, 15), min_size=1, max_size=60), options, st.integers(1, 5), st.data())
def test_every_document_once(lengths, settings, world_size, data):
    def sampler(rank):
        return PackSampler(
            lengths, seq_length=SEQ_LENGTH, rank=rank, world_size=world_size, **settings
        )

    is_dropped = settings["overflow"] == "drop"
    kept = [i for i, n in enumerate(lengths) if n and not (is_dropped and n > SEQ_LENGTH)]
    assume(kept)
    alone = PackSampler(lengths, seq_length=SEQ_LENGTH, **settings | {"batch_size": 1})
    if len(alone) < world_size:
        with pytest.raises(ValueError, match=f"{len(alone)} rows of documents leave one of"):
            sampler(0)
        return
    ranks = [sampler(rank) for rank in range(world_size)]
    epoch = data.draw(st.integers(0, 3))
    drawn = []
    for one in ranks:
        one.set_epoch(epoch)
        drawn.append([rows_of(batch) for batch in one])
        assert len(drawn[-1]) == len(one) == len(ranks[0])
        assert all(any(rows) for rows in drawn[-1])
        assert one.dropped == ranks[0].dropped
    rows = [row for batches in drawn for batch in batches for row in batch if row]
    most = settings["max_documents"] or 99
    assert all(len(row) <= most for row in rows)
    times = Counter(tuple(row) for row in rows)
    assert sum(times.values()) - len(times) < world_size  # repeated rows
    once = [piece for row in times for piece in row]
    assert sorted(once) == [(i, 0, min(lengths[i], SEQ_LENGTH)) for i in kept]
    too_long = [n for n in lengths if n > SEQ_LENGTH]
    lost = sum(n if is_dropped else n - SEQ_LENGTH for n in too_long)
    assert ranks[0].dropped == PackLosses(
        len(too_long) if is_dropped else 0, lost, lengths.count(0)
    )
    slots = len(ranks[0]) * world_size * settings["batch_size"] * SEQ_LENGTH
    assert ranks[0].padding_fraction == 1 - (sum(lengths) - lost) / slots


@pytest.mark.parametrize(
    ("balance", "power", "rows", "most"),
    [
        ("tokens", 1, 1, 0.2),
        ("tokens", 1, 4, 0.02),
        ("attention", 2, 1, 0.7),
        ("attention", 2, 4, 0.12),
    ],
)
def test_ranks_are_balanced(balance, power, rows, most):
    lengths = np.random.default_rng(0).lognormal(3, 1, 5000).astype(int).clip(1, 512)

    def spread(balance):
        """Returns the ratio of the highest to the lowest cost of a rank, over all full steps."""
        costs = [
            [sum(int(n) ** power for n in batch.packing.lengths) for batch in sampler]
            for sampler in (
                PackSampler(
                    lengths,
                    batch_size=rows,
                    seq_length=512,
                    max_documents=5,
                    balance=balance,
                    rank=rank,
                    world_size=4,
                )
                for rank in range(4)
            )
        ]
        whole = np.array(costs)[:, :-1]
        return float((whole.max(0) - whole.min(0)).sum() / whole.mean(0).sum())

    assert spread(balance) < most < spread("count") / 4


GOOD = {"lengths": [3, 2, 1], "seq_length": 4}
BAD = [
    ({"lengths": iter([1, 2])}, TypeError, "lengths must have one length per document, got a list_iterator; pass a list"),
    ({"lengths": [1, -2]}, ValueError, "lengths must be from 0 to .*, got -2 at index 1"),
    (
        {"lengths": [3, 9, 4, 5, 8, 6]},
        ValueError,
        "documents must have at most seq_length=4 tokens, but 4 have more: document 1 has 9 tokens, "
        + r"document 4 has 8 tokens, document 5 has 6 tokens; cut them with Ragged"
        + r"Array.split\(4\), or pass overflow='truncate' or 'drop'",
    ),
    ({"lengths": [0, 0]}, ValueError, "0 rows of documents leave one of 1 ranks without a batch"),
    ({"rank": 0, "world_size": 3}, ValueError, "2 rows of documents leave one of 3 ranks without a batch; use fewer ranks or more documents"),
    ({"seq_length": 0}, ValueError, "seq_length must be at least 1, got 0"),
    ({"batch_size": 2**29}, ValueError, r"batch_size × seq_length must be less than 2\*\*31"),
    ({"strategy": "best"}, ValueError, "strategy must be one of .*, got 'best'"),
    ({"overflow": "cut"}, ValueError, "overflow must be one of .*, got 'cut'"),
    ({"balance": None}, ValueError, "balance must be one of .*, got None"),
    ({"max_documents": 0}, ValueError, "max_documents must be at least 1, got 0"),
    ({"documents_multiple_of": 3}, ValueError, "seq_length must be a multiple of documents_mul"),
    ({"strategy": "wrapped", "max_documents": 2}, ValueError, "strategy='wrapped' supports neither max_documents"),
    ({"strategy": "wrapped", "lengths": [2**62]}, ValueError, r"lengths must have a sum less than 2\*\*62"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "error", "message"), BAD)
def test_bad_arguments(changes, error, message):
    with pytest.raises(error, match=f"^PackSampler: {message}"):
        PackSampler(**GOOD | changes)


@pytest.mark.parametrize("lengths", [[2**31 - 1, 2], [2**30, 2**30 - 1]])
def test_rows_of_many_tokens(lengths):
    """A table with an entry per token would be larger than the batch."""
    sampler = PackSampler(lengths, seq_length=2**31 - 1, strategy="first_fit", shuffle=False)
    assert next(iter(sampler)).indices.tolist()[0] == 0
    few = PackSampler([5, 6], seq_length=2**31 - 1)  # best-fit tables end with the documents
    assert [len(batch.indices) for batch in few] == [2]


def test_the_fix_for_documents_that_are_too_long():
    tokens = RaggedArray.from_sequences([[1, 2, 3, 4, 5], [6], []])
    with pytest.raises(ValueError, match=r"RaggedArray\.split\(4\)"):
        PackSampler(tokens, seq_length=4)
    pieces = tokens.split(4)
    loader = DataLoader(
        ArrayDataset({"input_ids": pieces, "document": pieces.documents}),
        batch_sampler=PackSampler(pieces, batch_size=2, seq_length=4, shuffle=False),
        collate_fn=Collate({"input_ids": Pack(seq_length=4), "document": Keep()}),
    )
    (batch,) = loader
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4], [5, 6, 0, 0]]
    assert batch["document"] == [0, 0, 1]


def test_columns_of_documents():
    """The hint in the error works."""
    datasets, pandas = pytest.importorskip("datasets"), pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    documents = [[1, 2], [3], [4, 5, 6]]
    table = datasets.Dataset.from_dict({"input_ids": documents})
    expected = epoch_rows(PackSampler([2, 1, 3], seq_length=4))
    for column in (
        documents,
        table["input_ids"],
        table.with_format("numpy")["input_ids"],
        table.with_format("torch")["input_ids"],
        np.array([np.array(document) for document in documents], object),
        pandas.Series(documents),
        pyarrow.array(documents),
    ):
        with pytest.raises(
            ValueError, match=r"got samples in a \w+; pass \[len\(d\) for d in samples"
        ):
            PackSampler(column, seq_length=4)
        assert epoch_rows(PackSampler([len(d) for d in column], seq_length=4)) == expected
    with pytest.raises(ValueError, match=r"a column of .*ArrayDataset.from_arrow\(dataset\)"):
        PackSampler(table["input_ids"], seq_length=4)
    column = ArrayDataset.from_arrow(table)["input_ids"]
    assert epoch_rows(PackSampler(column, seq_length=4)) == expected


def test_a_sampler_that_a_trainer_recreates():
    sampler = SequentialSampler(range(3))
    with pytest.raises(
        TypeError, match=r"drop_last'; all .*use_distributed_sampler=False.*predict"
    ):
        PackSampler(sampler, batch_size=2, drop_last=False)
    with pytest.raises(TypeError, match=r"got a SequentialSampler.*use_distributed_sampler=False"):
        PackSampler(sampler, batch_size=2, seq_length=4)
