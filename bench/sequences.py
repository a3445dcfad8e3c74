"""Sequences of different lengths: padded, concatenated, packed."""

import copy
import importlib
import itertools
import struct
from functools import partial

import numpy as np
import torch

import pinfeed
from bench import data
from bench.data import by_torch, difference, entry_is, lengths_of, padded, zero_if
from bench.harness import built, compare, filling, other, ours, reference, workload
from bench.targets import ELSEWHERE, at_least, at_most

SEQ_LENGTH, ROWS = 8192, 4
SCATTERED = "both wait for a tensor's object, storage and numbers, at three addresses"
COPY, COPY_ALL = "copy the same bytes", "copy the same bytes, all outputs"
CALL = "the native call takes 12 µs, the copy 8, and Python around it 11"
MORE_OUTPUTS = "the call takes some 20 µs, and has four more outputs"
ALSO_LABELS = "it also writes labels and an int64 mask, 2.7× the memory"


@workload(
    at_least(6, "torch `pad_sequence`"),
    at_least(2, "NumPy `concatenate`", "`pad` of ndarrays"),
    usual="torch `pad_sequence`",
)
def pad():
    """256 sequences of 1–511 tokens, padded."""
    arrays = data.sequences(256, 511)
    tensors, expected = [*map(torch.from_numpy, arrays)], padded(arrays)
    out, collate = torch.zeros_like(expected), pinfeed.Collate(pinfeed.Pad())

    def masked():
        lengths, array = np.array([*map(len, arrays)]), out.numpy()
        array.fill(0)
        array[np.arange(array.shape[1]) < lengths[:, None]] = np.concatenate(arrays)
        return array, lengths

    return compare(
        filling(out),
        ours("`pad`, pooled", lambda: pinfeed.functional.pad(tensors)),
        ours("`pad(out=)`", lambda: pinfeed.functional.pad(tensors, out=out)),
        ours("`Collate(Pad())`", lambda: collate(tensors)),
        ours("`pad` of ndarrays", lambda: pinfeed.functional.pad(arrays)),
        other("torch `pad_sequence`", lambda: by_torch(tensors)),
        other("NumPy `concatenate` + mask into `out`", masked),
        expected=(expected, lengths_of(arrays)),
        outputs=[out],
    )


@workload(
    at_least(100, "transformers", why=(54, "reading 65,000 Python ints one by one takes 450 µs")),
    at_least(2),
)
def pad_lists():
    """256 lists of 1–511 ints, padded."""
    arrays = data.sequences(256, 511)
    lists, expected = [array.tolist() for array in arrays], padded(arrays)
    out, lengths = np.zeros(expected.shape, np.int64), partial(lengths_of, arrays)

    def masked():
        out.fill(0)
        numbers = np.fromiter(itertools.chain.from_iterable(lists), np.int64)
        out[np.arange(out.shape[1]) < lengths().numpy()[:, None]] = numbers
        return out, lengths()

    def packed():
        out.fill(0)
        for i, numbers in enumerate(lists):
            struct.pack_into(f"{len(numbers)}q", out, i * out.strides[0], *numbers)
        return out, lengths()

    def transformers():
        theirs = importlib.import_module("transformers")
        tokenizer = theirs.ByT5Tokenizer()
        tokenizer.model_input_names = ["input_ids"]  # without its mask: the faster form
        collate = theirs.DataCollatorWithPadding(tokenizer)
        samples = [{"input_ids": numbers} for numbers in lists]
        return lambda: (collate(samples)["input_ids"], lengths())

    return compare(
        reference("fill the output (`out.fill`)", lambda: out.fill(1)),
        ours("`pad`, pooled", lambda: pinfeed.functional.pad(lists)),
        other("NumPy `fromiter` + mask into `out`", masked),
        other("NumPy's `out` as a buffer for `struct.pack_into`", packed),
        other("torch `tensor` + `pad_sequence`", lambda: by_torch([*map(torch.tensor, lists)])),
        other("transformers `DataCollatorWithPadding`, without its mask", built(transformers)),
        expected=(expected, lengths()),
        outputs=[torch.from_numpy(out)],
    )


@workload(at_least(9, "torch `pad_sequence`", why=(2.8, SCATTERED)))
def pad_cold():
    """256 of 20,000 sequences of 1–511 tokens, not in the CPU's caches, padded."""
    tensors = [*map(torch.from_numpy, data.sequences(20_000, 511))]
    draw, chosen = data.Draw(len(tensors)), []

    def choose():
        draw.again()
        chosen[:] = [tensors[i] for i in draw.array.tolist()]
        data.empty_caches()

    def error(batch):
        return difference(batch, (padded([*map(torch.Tensor.numpy, chosen)]), lengths_of(chosen)))

    return compare(
        filling(torch.zeros(256, 511, dtype=torch.int64)),
        ours("`pad`, pooled", lambda: pinfeed.functional.pad(chosen)),
        other("torch `pad_sequence`", lambda: by_torch(chosen)),
        expected=error,
        prepare=choose,
    )


@workload(
    at_most(1.35, "`pad`, pooled", "fill the padded output", why=(1.71, ELSEWHERE)),
    at_least(1.7, "torch `pad_sequence`", "`pad`, pooled", why=(1.14, ELSEWHERE)),
    at_most(1.2, "`Collate(Jagged())`", "copy the same values", why=(1.36, ELSEWHERE)),
    at_most(1.2, "`JaggedBatch.from_padded`", "copy the same values", why=(1.37, ELSEWHERE)),
    at_most(1.2, "`unpad`", "copy the same values"),
)
def frames():
    """64 sequences of (1–1499, 80) float32: padded, joined with offsets, and back."""
    arrays = data.sequences(64, 1499, 80, dtype=np.float32)
    tensors, in_rows, lengths = [*map(torch.from_numpy, arrays)], padded(arrays), lengths_of(arrays)
    joined, offsets = torch.cat(tensors), torch.from_numpy(data.offsets_of(lengths.numpy()))
    out, target = torch.zeros_like(in_rows), torch.zeros_like(joined)
    collate = pinfeed.Collate(pinfeed.Jagged())

    def cat(rows):
        begin = torch.zeros(len(rows) + 1, dtype=torch.int64)
        torch.cumsum(lengths_of(rows), 0, out=begin[1:])
        return torch.cat(rows, out=target), begin

    def jagged(make, *args):
        def run():
            batch = make(*args)
            return batch.values, batch.offsets

        return run

    unpad = partial(pinfeed.functional.unpad, in_rows, lengths)
    from_padded = jagged(pinfeed.JaggedBatch.from_padded, in_rows, lengths)
    rows = {"expected": (in_rows, lengths)}
    return compare(
        reference("fill the padded output (`out.fill_`)", lambda: out.fill_(1)),
        reference("copy the same values (`copy_`)", lambda: target.copy_(joined)),
        ours("`pad`, pooled", lambda: pinfeed.functional.pad(tensors), **rows),
        ours("`Collate(Jagged())`", jagged(collate, tensors)),
        ours("`JaggedBatch.from_padded`", from_padded),
        ours("`unpad`, a list of views", unpad, expected=tensors),
        other("torch `pad_sequence`", lambda: by_torch(tensors), **rows),
        other("torch `cat(out=)`", lambda: cat(tensors)),
        expected=(joined, offsets),
        outputs=[out, target],
    )


# transformers' collators: the entries of a feature beside tokens and mask, as values for one text.
COLLATORS = {
    "DataCollatorWithPadding": ("label", len),
    "DataCollatorForTokenClassification": ("labels", list),
    "DataCollatorForSeq2Seq": ("labels", list),
    "DataCollatorForLanguageModeling": (None, None),
    "DataCollatorWithFlattening": ("labels", list),
}
ON_ROWS = "`DataCollatorForLanguageModeling` on an ArrayDataset"


@workload(
    *(at_least(10, f"transformers `{name}`", f"`{name}`") for name in COLLATORS),
    at_most(2, ON_ROWS, "`Collate(Pad())`", why=(2.8, ALSO_LABELS)),
)
def collators():
    """256 features of 1–511 tokens as lists of ints, for transformers' models."""
    texts = [(array % 250 + 3).tolist() for array in data.sequences(256, 511)]
    modules = "transformers", "pinfeed.integrations.transformers"
    theirs, mine = map(importlib.import_module, modules)

    def collator(module, name):
        if name == "DataCollatorWithFlattening":
            return getattr(module, name)(return_flash_attn_kwargs=True)
        options = {"mlm": False} if name == "DataCollatorForLanguageModeling" else {}
        return getattr(module, name)(theirs.ByT5Tokenizer(), **options)

    def as_tensors(batch):
        return {key: torch.as_tensor(value) for key, value in batch.items()}

    alternatives = []
    for name, (key, label) in COLLATORS.items():
        features = [{"input_ids": text, "attention_mask": [1] * len(text)} for text in texts]
        if key is not None:
            features = [feature | {key: label(feature["input_ids"])} for feature in features]
        expected = {"expected": as_tensors(collator(theirs, name)(features))}
        alternatives.append(ours(f"`{name}`", partial(collator(mine, name), features), **expected))
        run = partial(collator(theirs, name), features)
        alternatives.append(other(f"transformers `{name}`", run, **expected))

    ragged = pinfeed.RaggedArray.from_sequences([*map(np.array, texts)])
    rows = pinfeed.ArrayDataset({"input_ids": ragged}).__getitems__(np.arange(len(texts)))
    pad = pinfeed.Collate({"input_ids": pinfeed.Pad(lengths=False, mask="attention_mask")})
    language = collator(mine, "DataCollatorForLanguageModeling")
    return compare(
        *alternatives,
        ours("`Collate(Pad())` of the same", partial(pad, rows)),
        ours(ON_ROWS, partial(language, rows)),
        expected=entry_is("input_ids", padded([*map(np.array, texts)])),
    )


@workload(
    at_most(1, "`PackSampler`", unit="s"), at_most(1.05, "batch 100,000", "the epoch's first batch")
)
def pack_plan():
    """Rows of 8192 tokens planned for 10,000,000 documents, and resumed."""
    lengths = data.document_lengths(10_000_000, 6, SEQ_LENGTH)
    least, out = -(-int(lengths.sum()) // SEQ_LENGTH), np.empty_like(lengths)
    plan = partial(pinfeed.samplers.PackSampler, lengths, seq_length=SEQ_LENGTH)
    sampler = plan(batch_size=ROWS)
    sampler.set_epoch(1)
    state = sampler.state_dict()

    def resumed(yielded):
        expected = [*sampler.batch(1, yielded)]

        def run():
            other = copy.copy(sampler)  # without its plan
            other.load_state_dict(state | {"consumed": yielded * ROWS})
            return [*next(iter(other))]

        return {"run": run, "expected": lambda batch: zero_if(batch == expected)}

    return compare(
        reference("copy the lengths", lambda: np.copyto(out, lengths)),
        ours("`PackSampler`", lambda: len(plan())),
        ours("the epoch's first batch", **resumed(0)),
        ours("batch 100,000", **resumed(100_000)),
        # At most 1 % more rows than necessary.
        expected=lambda rows: max(rows / least - 1.01, 0.0),
    )


@workload(
    at_most(1.3, "tokens alone", COPY, why=(5.4, CALL)),
    at_most(2, "with all outputs", COPY_ALL, why=(3.6, MORE_OUTPUTS)),
)
def pack_fill():
    """4 × 8192 int64 tokens of documents in memory, packed."""
    offsets = data.offsets_of(data.document_lengths(2_000, 6, SEQ_LENGTH))
    tokens = np.random.default_rng(1).integers(0, 50_000, offsets[-1])
    ragged = pinfeed.RaggedArray(tokens, offsets)
    sampler = pinfeed.samplers.PackSampler(ragged, batch_size=ROWS, seq_length=SEQ_LENGTH)
    indices = next(iter(sampler))
    samples = pinfeed.ArrayDataset({"input_ids": ragged}).__getitems__(indices)
    marks = ("position_ids", "document_ids", "seq_idx", "attention_mask", "cu_seqlens")

    def by_pinfeed(**options):
        fields = {"input_ids": pinfeed.Pack(seq_length=SEQ_LENGTH, **options)}
        return partial(pinfeed.Collate(fields), samples)

    def copies(run):
        source = torch.ones(sum(entry.nbytes for entry in run().values()), dtype=torch.uint8)
        return partial(torch.empty_like(source).copy_, source)

    def by_numpy():
        """Copies documents into rows in turn, at the sampler's positions."""
        out, row, offset = np.zeros((ROWS, SEQ_LENGTH), np.int64), 0, 0
        for document in (ragged[i] for i in indices):
            if offset + len(document) > SEQ_LENGTH:
                row, offset = row + 1, 0
            out[row, offset : offset + len(document)] = document
            offset += len(document)
        return {"input_ids": out}

    alone, marked = by_pinfeed(), by_pinfeed(**dict.fromkeys(marks, True))
    return compare(
        reference(COPY, copies(alone)),
        reference(COPY_ALL, copies(marked)),
        ours("tokens alone", alone),
        ours("with all outputs", marked),
        other("NumPy, document by document", by_numpy),
        expected=entry_is("input_ids", by_numpy()["input_ids"]),
    )
