"""Pack compared with a plain reference, from any source and dataset, and with transformers' collator."""

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

import pinfeed
from messages import check
from pinfeed import ArrayDataset, Collate, IndexedDataset, Keep, Pack, RaggedArray, StreamDataset
from pinfeed.packing import PackedStream
from pinfeed.samplers import PackSampler

MARKS = ("position_ids", "document_ids", "seq_idx", "attention_mask", "cu_seqlens", "max_seqlen")
ALL_MARKS = dict.fromkeys(MARKS, True)


def reference(documents, batch, fill, first, start):
    """Returns the packed rows as lists; `first` may be None."""
    packing = batch.packing
    keys = ("entry", *MARKS[:4])
    out = {key: [] for key in keys} | {"ends": [0], "longest": 0}
    items = list(zip(*(column.tolist() for column in packing[2:5]), batch, strict=True))
    for row in range(packing.rows):
        begin, end = row * packing.seq_length, (row + 1) * packing.seq_length
        columns = {key: [] for key in keys}
        here = [item for item in items if begin <= item[2] < end]
        number = 0
        for token_start, length, _, index in here:
            tokens = list(documents[index][token_start : token_start + length])
            if first is not None:
                tokens[0] = first
            padded_length = -(-length // packing.multiple_of) * packing.multiple_of
            columns["entry"] += tokens + [fill] * (padded_length - length)
            columns["position_ids"] += range(start, start + padded_length)
            columns["document_ids"] += [number] * padded_length
            columns["seq_idx"] += [number] * padded_length
            columns["attention_mask"] += [True] * length + [False] * (padded_length - length)
            out["ends"].append(begin + len(columns["entry"]))
            out["longest"] = max(out["longest"], padded_length)
            number += 1
        tail = packing.seq_length - len(columns["entry"])
        if tail:
            columns["entry"] += [fill] * tail
            columns["position_ids"] += range(start, start + tail)
            columns["document_ids"] += [-1] * tail
            columns["seq_idx"] += [number] * tail
            columns["attention_mask"] += [False] * tail
            out["ends"].append(end)
            out["longest"] = max(out["longest"], tail)
        for key in keys:
            out[key].append(columns[key])
    return out


def power_of_two(number):
    return 1 << (number - 1).bit_length()


def assert_batch(batch, expected, packing):
    for key in ("entry", *MARKS[:4]):
        assert batch[key].tolist() == expected[key], key
    dtypes = [torch.int64, torch.int32, torch.int32, torch.bool]
    assert [batch[key].dtype for key in MARKS[:4]] == dtypes
    ends = expected["ends"]
    size = (
        packing.rows * (min(packing.max_documents, packing.seq_length) + 1)
        if packing.max_documents
        else power_of_two(len(ends) - 1)
    )
    assert batch["cu_seqlens"].tolist() == ends + ends[-1:] * (size + 1 - len(ends))
    assert batch["cu_seqlens"].dtype == torch.int32
    assert batch["max_seqlen"] == min(power_of_two(expected["longest"]), packing.seq_length)
    assert type(batch["max_seqlen"]) is int


settings = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 3),
        "strategy": st.sampled_from(["best_fit", "first_fit"]),
        "overflow": st.sampled_from(["truncate", "drop"]),
        "max_documents": st.integers(1, 20) | st.none(),
        "documents_multiple_of": st.sampled_from([1, 2, 4]),
        "seed": st.integers(0, 99),
    }
) | st.fixed_dictionaries({"batch_size": st.integers(1, 3), "strategy": st.just("wrapped")})

SOURCES = ("ragged", "tensor", "file", "split", "arrays", "tensors", "lists")


@given(
    st.lists(st.integers(0, 14), min_size=1, max_size=30).filter(
        lambda n: any(0 < i < 13 for i in n)
    ),
    settings,
    st.sampled_from(SOURCES),
    st.sampled_from([np.int32, np.int64, np.uint16]),
    st.sampled_from([None, "int64", "int32"]),
    st.sampled_from([None, 7]),
    st.integers(0, 3),
)
def test_rows(tmp_path_factory, lengths, options, kind, stored, dtype, first, start):
    documents = [np.arange(100 * i, 100 * i + n).astype(stored) for i, n in enumerate(lengths)]
    ragged = RaggedArray.from_sequences(documents, dtype=stored)
    data = {
        "ragged": lambda: ArrayDataset(ragged),
        "tensor": lambda: ArrayDataset(RaggedArray(torch.from_numpy(ragged.values.astype(np.int64)), ragged.offsets)),
        "file": lambda: ArrayDataset(saved(ragged, tmp_path_factory.mktemp("packed"))),
        "split": lambda: ArrayDataset(ragged.split(100)),
        "arrays": lambda: IndexedDataset(documents),
        "tensors": lambda: IndexedDataset([torch.from_numpy(d.astype(np.int64)) for d in documents]),
        "lists": lambda: IndexedDataset([d.tolist() for d in documents]),
    }[kind]()  # fmt: skip
    sampler = PackSampler(lengths, seq_length=12, **options)
    pack = {"seq_length": 12, "pad_value": 5, "first_token": first, "dtype": dtype}
    fields = {"entry": Pack(**pack, position_start=start, **ALL_MARKS)}
    both = Collate(Pack(**pack)), Collate(Pack(**pack, flat=True))
    for indices in sampler:
        samples = data.__getitems__(pickle.loads(pickle.dumps(indices)))
        expected = reference(documents, indices, 5, first, start)
        rows, flat = (collate(samples) for collate in both)
        assert rows.tolist() == expected["entry"]
        assert flat.tolist() == [[*itertools.chain(*expected["entry"])]]
        kept_64 = kind in ("tensor", "tensors", "lists")
        expected_dtype = torch.int64 if kept_64 else torch.from_numpy(np.zeros(1, stored)).dtype
        assert rows.dtype == (expected_dtype if dtype is None else getattr(torch, dtype))
        in_dict = DictOf(data).__getitems__(indices)
        assert_batch(Collate(fields)(in_dict), expected, indices.packing)


def saved(ragged, folder):
    ragged.save(folder / "tokens")
    return str(folder / "tokens")


class DictOf(Dataset[Any]):
    """Wraps the samples of a dataset in dicts; Rows stay Rows."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __getitems__(self, indices):
        samples = self.dataset.__getitems__(indices)
        if isinstance(samples, pinfeed.Rows):
            return pinfeed.Rows(
                {"entry": samples.sources}, samples.indices, packing=samples.packing
            )
        copied = copy.copy(samples)
        copied.samples = [{"entry": sample} for sample in samples]
        return copied


def test_flat_ids_count_through_all_rows():
    tokens = RaggedArray.from_sequences([[1, 2, 3], [4, 5], [6]])
    sampler = PackSampler(tokens, batch_size=2, seq_length=4, shuffle=False)
    collate = Collate({"entry": Pack(seq_length=4, flat=True, **ALL_MARKS)})
    (indices,) = sampler
    batch = collate(ArrayDataset({"entry": tokens}).__getitems__(indices))
    assert {
        key: getattr(entry, "tolist", lambda entry=entry: entry)() for key, entry in batch.items()
    } == {
        "entry": [[1, 2, 3, 6, 4, 5, 0, 0]],
        "position_ids": [[0, 1, 2, 0, 0, 1, 0, 1]],
        "document_ids": [[0, 0, 0, 1, 2, 2, -1, -1]],
        "seq_idx": [[0, 0, 0, 1, 2, 2, 3, 3]],
        "attention_mask": [[True] * 6 + [False] * 2],
        "cu_seqlens": [0, 3, 4, 6, 8],
        "max_seqlen": 4,
    }


def test_tokens_with_several_values():
    frames = RaggedArray(np.arange(24, dtype=np.float32).reshape(6, 2, 2), np.array([0, 2, 3, 6]))
    (indices,) = PackSampler(frames, batch_size=2, seq_length=4, shuffle=False)
    batch = Collate(Pack(seq_length=4, pad_value=0.5, first_token=9))(
        ArrayDataset(frames).__getitems__(indices)
    )
    expected = np.full((2, 4, 2, 2), 0.5, np.float32)
    expected[0, :3], expected[0, 3], expected[1, :2] = frames[2], frames[1], frames[0]
    for row, position in ((0, 0), (0, 3), (1, 0)):
        expected[row, position] = 9
    assert batch.tolist() == expected.tolist()


TOKENS = [[*range(10 * i, 10 * i + n)] for i, n in enumerate([3, 2, 1, 4, 2, 2, 3])]


class WithoutItems(Dataset[Any]):
    """Accepts only Python integers, one at a time."""

    def __getitem__(self, index):
        assert type(index) is int
        return {"id": f"document {index}", "tokens": TOKENS[index]}

    def __len__(self):
        return len(TOKENS)


def datasets():
    ragged = RaggedArray.from_sequences(TOKENS)
    arrays = ArrayDataset({"tokens": ragged, "id": np.arange(7)})
    halves = [
        ArrayDataset({"tokens": ragged[a:b], "id": np.arange(a, b)}) for a, b in ((0, 3), (3, 7))
    ]
    return {
        "without __getitems__": IndexedDataset(WithoutItems()),
        "array": arrays,
        "array, packed": IndexedDataset(arrays),
        "subset": IndexedDataset(Subset(arrays, range(7))),
        "subset of others": IndexedDataset(Subset(WithoutItems(), range(7))),
        "concat": IndexedDataset(ConcatDataset(halves)),
    }


def hugging_face():
    columns = {"tokens": TOKENS, "id": [*range(7)]}
    return pytest.importorskip("datasets").Dataset.from_dict(columns)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("name", [*datasets(), "arrow", "hugging face"])
def test_any_dataset_keeps_its_rows(name, workers):
    dataset = datasets().get(name)
    if dataset is None:
        actual = hugging_face()
        dataset = ArrayDataset.from_arrow(actual) if name == "arrow" else IndexedDataset(actual)
    sampler = PackSampler([*map(len, TOKENS)], batch_size=2, seq_length=5, seed=1)
    expected = list(sampler)
    sampler.set_epoch(0)
    collate = Collate({"tokens": Pack(seq_length=5, pad_value=-1), "id": Keep()})
    options = {"batch_sampler": sampler, "num_workers": workers}
    loader = DataLoader(dataset, collate_fn=collate, **options)
    for batch, indices in zip(loader, expected, strict=True):
        assert batch["tokens"].tolist() == reference(TOKENS, indices, -1, None, 0)["entry"]
        assert [int(str(key).split()[-1]) for key in batch["id"]] == indices


def test_samples_without_row_information():
    arrays = ArrayDataset(RaggedArray.from_sequences(TOKENS))
    sampler = PackSampler([*map(len, TOKENS)], batch_size=2, seq_length=5)
    collate = Collate(Pack(seq_length=5))
    loader = DataLoader(Subset(arrays, range(7)), batch_sampler=sampler, collate_fn=collate)
    words = (
        "Collate: Pack needs the rows that a PackSampler planned",
        "DataLoader(dataset, batch_sampler=PackSampler(lengths, seq_length=5), ...)",
        "needs IndexedDataset(dataset)",
    )
    check(lambda: next(iter(loader)), ValueError, *words)
    check(lambda: collate(TOKENS), ValueError, *words)
    packed = IndexedDataset(loader.dataset)
    next(iter(DataLoader(packed, batch_sampler=sampler, collate_fn=collate)))
    assert (len(packed), packed[2].tolist()) == (7, [20])
    stream = PackedStream(StreamDataset(TOKENS), seq_length=5)
    with pytest.raises(ValueError, match="a PackedStream needs batch_size=None"):
        next(iter(DataLoader(stream, collate_fn=collate)))
    next(iter(DataLoader(stream, batch_size=None, collate_fn=collate)))


@pytest.mark.parametrize("as_rows", [True, False])
def test_lengths_that_differ_from_the_samples(as_rows):
    lengths = [*map(len, TOKENS)]
    lengths[4] += 1
    sampler = PackSampler(lengths, batch_size=8, seq_length=5, shuffle=False)
    data = ArrayDataset(RaggedArray.from_sequences(TOKENS)) if as_rows else IndexedDataset(TOKENS)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=Collate(Pack(seq_length=5)))
    words = "(index 4): expected 3 tokens as in PackSampler(lengths), got 2"
    check(lambda: next(iter(loader)), ValueError, "Collate: sample ", words)


def test_a_source_that_changes_after_planning():
    ragged = RaggedArray.from_sequences(TOKENS)
    (indices,) = PackSampler(ragged, batch_size=8, seq_length=5)
    ragged.offsets[2] -= 1
    with pytest.raises(ValueError, match=r"expected \d tokens as in PackSampler\(lengths\)"):
        Collate(Pack(seq_length=5))(ArrayDataset(ragged).__getitems__(indices))
    ragged.offsets[2] = 999
    with pytest.raises(ValueError, match="offsets must not decrease and must be from 0 to 17"):
        Collate(Pack(seq_length=5))(ArrayDataset(ragged).__getitems__(indices))


def test_a_seq_length_that_differs_from_the_sampler():
    data = ArrayDataset(RaggedArray.from_sequences(TOKENS))
    (indices,) = PackSampler([*map(len, TOKENS)], batch_size=8, seq_length=5)
    words = "expected seq_length=5 for Pack, like the PackSampler's, got 4"
    check(lambda: Collate(Pack(seq_length=4))(data.__getitems__(indices)), ValueError, words)
    joined = Collate(Pack(seq_length=None))(data.__getitems__(indices))
    assert joined.tolist() == [[token for i in indices for token in TOKENS[i]]]


def packed(*samples, **options):
    return lambda: Collate(Pack(**{"seq_length": None} | options))(list(samples))


def copied(**arguments):
    return lambda: Pack(**{"seq_length": 4} | arguments)


HALF, MARKED = np.broadcast_to(np.uint8(0), 2**30), Pack(seq_length=4, position_ids=True)
BAD = {
    "no length": (copied(seq_length=0), ValueError, "Pack: seq_length must be at least 1, got 0"),
    "a float": (copied(seq_length=2.0), TypeError, "Pack: seq_length must be an integer, got 2.0"),
    "text": (copied(pad_value="a"), TypeError, "Pack: pad_value must be a number"),
    "a large token": (copied(first_token=300, dtype="uint8"), ValueError, "Pack: first_token"),
    "a pad value": (packed(np.zeros(2, np.uint16), pad_value=-1), ValueError, "Collate: pad_value must be"),
    "a dtype": (copied(dtype="words"), TypeError, "Pack: dtype must be a torch or NumPy dtype, got 'words'"),
    "a flag": (copied(flat=1), TypeError, "Pack: flat must be True or False, got 1"),
    "no key": (copied(cu_seqlens=()), TypeError, "Pack: cu_seqlens must be True, False, the key ", "got ()"),
    "a start": (copied(position_start="0"), TypeError, "Pack: position_start must be an integer, got '0'"),
    "shapes": (packed(np.zeros((2, 3)), np.zeros((2, 4))), ValueError, "sample 1: expected the shape of sample 0 except axis 0"),
    "too many tokens": (packed(HALF, HALF), ValueError, "a batch must have fewer than 2**31 tokens, because cu_seqlens is"),
    "in no dict": (lambda: Collate(MARKED), ValueError, "Collate: fields: Pack adds the keys ['position_ids'], which needs a dict"),
    "two for a key": (lambda: Collate({"a": MARKED, "b": MARKED}), ValueError, "two fields for the key 'position_ids'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_and_samples(case):
    check(*BAD[case])


@pytest.mark.parametrize("damage", [{"max_documents": 1}, {"max_documents": -1}, {"rows": 1}])
def test_a_plan_with_more_documents_than_declared(damage):
    """Regression: its documents were written past the end of cu_seqlens."""
    tokens = RaggedArray.from_sequences([[i] for i in range(4000)])
    dataset = ArrayDataset({"x": tokens})
    sampler = PackSampler(tokens, batch_size=2, seq_length=500, shuffle=False)
    batch = next(iter(sampler))
    batch.packing = batch.packing._replace(**damage)
    collate = Collate({"x": Pack(seq_length=500, cu_seqlens=True)})
    with pytest.raises(ValueError, match=r"create a new PackSampler|row plan is damaged"):
        collate(dataset.__getitems__(batch))


@pytest.mark.parametrize("dtype", [None, "int64"])
@pytest.mark.parametrize("kind", ["memory", "file", "list"])
def test_many_tokens_in_several_threads(tmp_path, kind, dtype):
    """Batches are large enough for several threads and streaming stores; also rows of files."""
    rng = np.random.default_rng(0)
    lengths = rng.lognormal(6, 1, 4000).astype(int).clip(1, 60_000)
    values = rng.integers(0, 60_000, lengths.sum()).astype(np.uint16)
    ragged = RaggedArray(values, np.append(0, np.cumsum(lengths)))
    data = {
        "memory": lambda: ArrayDataset({"entry": ragged}),
        "file": lambda: ArrayDataset({"entry": saved(ragged, tmp_path)}),
        "list": lambda: IndexedDataset([{"entry": document} for document in ragged]),
    }[kind]()
    sampler = PackSampler(lengths, batch_size=16, seq_length=60_000, documents_multiple_of=8)
    collate = Collate(
        {"entry": Pack(seq_length=60_000, pad_value=7, first_token=9, dtype=dtype, **ALL_MARKS)}
    )
    threads = pinfeed.get_num_threads()
    try:
        pinfeed.set_num_threads(3)
        indices = next(iter(sampler))
        batch = collate(data.__getitems__(indices))
        assert_batch(batch, reference([*ragged], indices, 7, 9, 0), indices.packing)
    finally:
        pinfeed.set_num_threads(threads)
