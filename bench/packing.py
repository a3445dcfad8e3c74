"""Packing: rows of documents planned and filled, beside TRL and transformers."""

import copy
import functools
import itertools

import numpy as np
import torch

import pinfeed
from bench.harness import Role, Way, Workload

_SEQ_LENGTH = 8192
_ROWS = 4


def _lengths(count):
    """Lognormal, of about 700 tokens on average."""
    drawn = np.random.default_rng(0).lognormal(6, 1.1, count)
    return drawn.astype(np.int64).clip(1, _SEQ_LENGTH)


def plan(name: str, count: int) -> Workload:
    """The rows of an epoch; verified by how many there are, at most 1 % more than the least."""
    lengths = _lengths(count)
    least = -(-int(lengths.sum()) // _SEQ_LENGTH)
    out = np.empty_like(lengths)

    def copied():
        np.copyto(out, lengths)
        return least

    def planned():
        return len(pinfeed.PackSampler(lengths, _SEQ_LENGTH))

    def error(rows):
        return max(rows / least - 1.01, 0.0)

    def trl():
        from datasets import Dataset, disable_progress_bars
        from trl import pack_dataset

        disable_progress_bars()
        offsets = np.append(0, np.cumsum(lengths))
        tokens = np.zeros(offsets[-1], np.int32)
        documents = (tokens[a:b] for a, b in itertools.pairwise(offsets))
        dataset = Dataset.from_dict({"input_ids": list(documents)})
        return lambda: len(pack_dataset(dataset, _SEQ_LENGTH, "bfd"))

    ways = [
        Way("physical limit: copy the lengths", lambda: copied, Role.LIMIT),
        Way("**pinfeed** `PackSampler`", lambda: planned, Role.PINFEED),
    ]
    if count <= 100_000:
        ways.append(Way("TRL `pack_dataset`, tokens included", trl))
    title = f"rows of {_SEQ_LENGTH} tokens planned for {count:,} documents"
    return Workload(name, title, ways, error)


def resumed(name: str) -> Workload:
    """The first batch of a sampler that was unpickled and has loaded a state."""
    sampler = pinfeed.PackSampler(_lengths(10_000_000), _SEQ_LENGTH, _ROWS)
    sampler.set_epoch(1)
    state = sampler.state_dict() | {"yielded": 100_000}
    expected = sampler.batch(1, 100_000)

    def first_batch(state):
        other = copy.copy(sampler)  # without its plan
        other.load_state_dict(state)
        return next(iter(other))

    ways = [
        Way(
            "the epoch's first batch",
            lambda: lambda: first_batch(state | {"yielded": 0}),
            Role.LIMIT,
        ),
        Way("**pinfeed** batch 100,000", lambda: lambda: first_batch(state), Role.PINFEED),
    ]
    title = "a batch of 10 million documents' rows, planned for it"
    return Workload(name, title, ways, lambda batch: 0.0 if batch == expected else np.inf)


def _batch(dtype=np.int32):
    """A RaggedArray, and a batch's indices in it."""
    lengths = _lengths(2_000)
    offsets = np.append(0, np.cumsum(lengths))
    tokens = np.random.default_rng(1).integers(0, 50_000, offsets[-1]).astype(dtype)
    ragged = pinfeed.RaggedArray(tokens, offsets)
    return ragged, next(iter(pinfeed.PackSampler(ragged, _SEQ_LENGTH, _ROWS)))


def filled(name: str, dtype: str, marked: bool) -> Workload:
    """One batch from memory, with everything that models take or without."""
    ragged, indices = _batch(dtype)
    names = ("position_ids", "document_ids", "seq_idx", "attention_mask", "cu_seqlens")
    marks = dict.fromkeys(names, marked)
    collate = pinfeed.Collate({"input_ids": pinfeed.Pack(_SEQ_LENGTH, **marks)})
    samples = pinfeed.ArrayDataset({"input_ids": ragged}).__getitems__(indices)
    expected = collate(samples)
    bytes_out = sum(leaf.nbytes for leaf in expected.values())
    source = torch.ones(bytes_out, dtype=torch.uint8)
    out = torch.empty_like(source)

    def copied():
        out.copy_(source)
        return expected

    def error(batch):
        same = all(torch.equal(batch[key], leaf) for key, leaf in expected.items())
        tokens = np.concatenate([ragged[i] for i in indices])
        found = batch["input_ids"].flatten()[: len(tokens)]
        whole = indices.packing.places[-1] + indices.packing.lengths[-1] == len(tokens)
        return 0.0 if same and (not whole or (found.numpy() == tokens).all()) else np.inf

    ways = [
        Way("physical limit: copy as many bytes", lambda: copied, Role.LIMIT),
        Way("**pinfeed** `Pack`", lambda: lambda: collate(samples), Role.PINFEED),
    ]
    what = "with all that models take" if marked else "tokens alone"
    title = f"{_ROWS} × {_SEQ_LENGTH} {dtype} tokens of {len(indices)} documents in memory, {what}"
    return Workload(name, title, ways, error)


def flattened(name: str) -> Workload:
    """(1, tokens) from lists of ints."""
    ragged, indices = _batch()
    features = [{"input_ids": ragged[i].tolist(), "labels": ragged[i].tolist()} for i in indices]
    collate = pinfeed.Collate(
        {
            "input_ids": pinfeed.Pack(
                None,
                position_ids=True,
                cu_seqlens=("cu_seq_lens_q", "cu_seq_lens_k"),
                max_seqlen=("max_length_q", "max_length_k"),
            ),
            "labels": pinfeed.Pack(None, first=-100),
        }
    )
    expected = collate(features)

    def error(batch):
        same = all(
            torch.equal(torch.as_tensor(leaf), torch.as_tensor(batch[key]))
            for key, leaf in expected.items()
        )
        return 0.0 if same and batch.keys() == expected.keys() else np.inf

    def transformers():
        from transformers import DataCollatorWithFlattening

        collator = DataCollatorWithFlattening(return_flash_attn_kwargs=True)
        return lambda: collator(features)

    ways = [
        Way("**pinfeed** `Pack(None)`", lambda: lambda: collate(features), Role.PINFEED),
        Way("transformers `DataCollatorWithFlattening`", transformers),
    ]
    return Workload(name, f"{len(features)} lists of ints, flattened", ways, error)


def workloads():
    """Return every workload here by name: its number of threads and what makes it."""
    return {
        "pack-plan": (1, functools.partial(plan, count=10_000_000)),
        "pack-resume": (1, resumed),
        "pack-plan-small": (1, functools.partial(plan, count=100_000)),
        **{
            f"pack-fill-{dtype}{'-marked' * marked}": (
                1,
                functools.partial(filled, dtype=dtype, marked=marked),
            )
            for dtype in ("int32", "int64")
            for marked in (False, True)
        },
        "pack-flat": (1, flattened),
    }
