"""Packed rows in transformers' and TRL's Trainers: the loss equals the loss of separate documents."""

import datasets
import numpy as np
import pytest
import torch
import transformers
from trl import SFTConfig, SFTTrainer

import pinfeed
from messages import check
from pinfeed.integrations.transformers import DataCollatorWithFlattening, packed_loader
from trainers import arguments_in

pytestmark = [
    # TRL's warnings about itself.
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing. is deprecated"),
    pytest.mark.filterwarnings("ignore:This sequence already has"),
]

RNG = np.random.default_rng(0)
DOCUMENTS = [RNG.integers(1, 64, length).tolist() for length in RNG.integers(1, 20, 40)]
SIZES = {
    "vocab_size": 384,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
LLAMA = transformers.LlamaConfig(**SIZES)
MODELS = {
    "sdpa": (LLAMA, "sdpa"),
    "eager": (LLAMA, "eager"),
    "sliding window": (transformers.MistralConfig(**SIZES, sliding_window=4), "sdpa"),
}


def model_of(kind="sdpa"):
    config, attention = MODELS[kind]
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)


def arguments_of(folder, kind=transformers.TrainingArguments, **options):
    options = {"num_train_epochs": 2, "per_device_train_batch_size": 3} | options
    return arguments_in(folder, kind, **options)


@torch.no_grad()
def loss_of_documents(model, batch):
    """Returns the mean loss over all labels, one document at a time."""
    losses = []
    for ids, positions, labels in zip(
        batch["input_ids"], batch["position_ids"], batch["labels"], strict=True
    ):
        starts = (positions == 0).nonzero()[:, 0].tolist()
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            logits = model(ids[None, start:end]).logits[0, :-1]
            targets = labels[start + 1 : end]
            losses.append(torch.nn.functional.cross_entropy(logits, targets, reduction="none"))
            losses[-1] = losses[-1][targets != -100]
    return torch.cat(losses).mean()


def watched(kind):
    """Returns a Trainer that compares the loss of each step with the loss of separate documents."""

    class Watched(kind):
        def compute_loss(self, model, inputs, *args, **options):
            expected = loss_of_documents(model, inputs)
            loss = super().compute_loss(model, inputs, *args, **options)
            torch.testing.assert_close(loss.detach(), expected)
            self.seen = [*getattr(self, "seen", []), inputs["input_ids"].tolist()]
            return loss

    return Watched


def train(folder, dataset, model="sdpa", resume=None, **options):
    trainer = watched(transformers.Trainer)(
        model_of(model), arguments_of(folder, **options), train_dataset=dataset
    )
    trainer.get_train_dataloader = lambda: packed_loader(trainer, seq_length=32)
    trainer.train(resume_from_checkpoint=resume)
    return trainer.seen


ARRAYS = pinfeed.ArrayDataset(
    {"input_ids": pinfeed.RaggedArray.from_sequences(DOCUMENTS, dtype=np.uint16)}
)


@pytest.mark.parametrize(("model", "workers"), [*((model, 0) for model in MODELS), ("sdpa", 2)])
def test_the_loss_of_trainer(model, workers, tmp_path):
    batches = train(tmp_path, ARRAYS, model, dataloader_num_workers=workers)
    epochs = batches[: len(batches) // 2], batches[len(batches) // 2 :]
    assert epochs[0] != epochs[1]
    for epoch in epochs:
        tokens = [token for batch in epoch for row in batch for token in row if token]
        assert sorted(tokens) == sorted(np.concatenate(DOCUMENTS))


def test_a_resumed_run(tmp_path):
    whole = train(tmp_path, ARRAYS, save_strategy="steps", save_steps=1)
    assert len(whole) == 10  # so that one state is at the end of an epoch
    for steps in (2, 5):
        assert train(tmp_path, ARRAYS, resume=f"{tmp_path}/checkpoint-{steps}") == whole[steps:]


@pytest.mark.parametrize("key", ["input_ids", "prompt"])
def test_the_loss_of_trl(key, tmp_path):
    columns = {"input_ids": DOCUMENTS}
    if key == "prompt":
        texts = [bytes(ids).decode() for ids in DOCUMENTS]
        columns = {"prompt": ["ab " + text for text in texts], "completion": texts}
    arguments = arguments_of(tmp_path, SFTConfig, max_length=64, bf16=False)
    trainer = watched(SFTTrainer)(
        model_of(),
        arguments,
        train_dataset=datasets.Dataset.from_dict(columns),
        processing_class=transformers.ByT5Tokenizer(),
    )
    trainer.get_train_dataloader = lambda: packed_loader(trainer, seq_length=64)
    trainer.train()
    assert len(trainer.seen) >= 4
    if key == "prompt":
        ignored = sum((batch["labels"] == -100).sum() for batch in trainer.get_train_dataloader())
        assert ignored >= len(DOCUMENTS) * len("ab ")


def trainer_of(folder, dataset=ARRAYS):
    return transformers.Trainer(model_of(), arguments_of(folder, seed=3), train_dataset=dataset)


def test_arguments_of_flash_attention(tmp_path):
    trainer = trainer_of(tmp_path)
    trainer.model.config._attn_implementation = "flash_attention_2"
    batch = next(iter(packed_loader(trainer, 32, overflow="truncate", batch_size=2)))
    keywords = DataCollatorWithFlattening(return_flash_attn_kwargs=True)([{"input_ids": [1]}])
    assert batch.keys() == keywords.keys() | {"use_cache"}
    assert batch["input_ids"].shape == batch["position_ids"].shape == (1, 64)
    starts = (batch["position_ids"][0] == 0).nonzero()[:, 0].tolist()
    assert batch["cu_seq_lens_q"].unique().tolist() == [*starts, 64]


def test_the_seed(tmp_path):
    trainer = trainer_of(tmp_path)
    first = lambda: next(iter(packed_loader(trainer, 32)))["input_ids"].tolist()
    of_seed = first()
    trainer.args.data_seed = 4
    assert first() != of_seed
    trainer.args.data_seed = 3
    assert first() == of_seed


HALVES = [[0] * (len(ids) // 2) + [1] * (len(ids) - len(ids) // 2) for ids in DOCUMENTS]


def labels_of(loader):
    """Returns the counted labels of each document, by its tokens, which are unique to it."""
    result = {}
    for batch in loader:
        rows = zip(batch["input_ids"], batch["position_ids"], batch["labels"], strict=True)
        for ids, positions, labels in rows:
            starts = (positions == 0).nonzero()[:, 0].tolist()
            for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
                result[tuple(ids[start:end].tolist())] = labels[start:end].tolist()
    return result


def table_of(columns, kind):
    if kind == "arrays":
        ragged = pinfeed.RaggedArray.from_sequences
        return pinfeed.ArrayDataset(
            {
                key: ragged(c) if isinstance(c[0], list) else np.array(c)
                for key, c in columns.items()
            }
        )
    dataset = datasets.Dataset.from_dict(columns)
    return dataset.data.table if kind == "table" else dataset


@pytest.mark.parametrize("kind", ["arrays", "dataset", "table"])
@pytest.mark.parametrize("key", ["completion_mask", "assistant_masks", "loss_mask"])
@pytest.mark.parametrize("has_labels", [False, True])
def test_tokens_that_do_not_count(key, kind, has_labels, tmp_path):
    columns = {"input_ids": DOCUMENTS, key: HALVES}
    if has_labels:
        columns["labels"] = [[*ids[:-1], -100] for ids in DOCUMENTS]
    trainer = trainer_of(tmp_path, table_of(columns, kind))
    actual = labels_of(packed_loader(trainer, 32))
    for ids, counted in zip(DOCUMENTS, HALVES, strict=True):
        expected = [i if k else -100 for i, k in zip(ids, counted, strict=True)]
        expected[0] = -100
        if has_labels:
            expected[-1] = -100
        assert actual[tuple(ids)] == expected


def test_trl_completion_masks(tmp_path):
    dataset = table_of({"input_ids": DOCUMENTS, "completion_mask": HALVES}, "dataset")
    for only, counted in (None, False), (True, False), (False, True):
        arguments = arguments_of(
            tmp_path, SFTConfig, max_length=64, bf16=False, completion_only_loss=only
        )
        trainer = SFTTrainer(
            model_of(),
            arguments,
            train_dataset=dataset,
            processing_class=transformers.ByT5Tokenizer(),
        )
        result = labels_of(packed_loader(trainer, 32))
        longest = max(DOCUMENTS, key=len)
        assert (result[tuple(longest)][1] != -100) is counted


def test_stored_padding(tmp_path):
    ones = [[1] * len(ids) for ids in DOCUMENTS]
    texts = table_of({"input_ids": DOCUMENTS, "attention_mask": ones}, "dataset")
    (batch, *_) = packed_loader(trainer_of(tmp_path, texts), 32)
    assert "attention_mask" not in batch
    padded = table_of({"input_ids": DOCUMENTS, "attention_mask": HALVES}, "dataset")
    load = lambda: [*packed_loader(trainer_of(tmp_path, padded), 32)]
    check(load, ValueError, "attention_mask: expected 1 for every token", "padding=False")
    tokenizer = transformers.ByT5Tokenizer()
    tokenized = datasets.Dataset.from_dict({"text": ["a", "abc"]}).map(
        lambda sample: tokenizer(sample["text"], padding=False)
    )
    assert len([*packed_loader(trainer_of(tmp_path, tokenized), 32)]) == 1


LOST = {
    "seq_lengths": [[len(ids)] for ids in DOCUMENTS],
    "cu_seqlens": [[0, len(ids)] for ids in DOCUMENTS],
    "position_ids": [[*range(len(ids))] for ids in DOCUMENTS],
    **dict.fromkeys(["special_tokens_mask", "token_type_ids", "document_ids", "weights"], HALVES),
    **dict.fromkeys(["prompt_length", "sample_weight", "labels"], [1] * len(DOCUMENTS)),
}


@pytest.mark.parametrize("kind", ["arrays", "dataset", "table"])
@pytest.mark.parametrize("key", LOST)
def test_columns_that_would_be_lost_raise(key, kind, tmp_path):
    table = table_of({"input_ids": DOCUMENTS, key: LOST[key]}, kind)
    words = f"'{key}'", "if training does not depend on"
    if key == "labels":
        words = ("packed_loader: labels: expected a number for each token, got 1; dat",)
    check(lambda: packed_loader(trainer_of(tmp_path, table), 32), ValueError, *words)
    if kind == "dataset":
        dataset = table.remove_columns([key]).add_column("id", [*"ab"] * 20)
        assert next(iter(packed_loader(trainer_of(tmp_path, dataset), 32)))


@pytest.mark.parametrize("kind", ["dataset", "table"])
def test_ignored_numbers_are_named(kind, tmp_path):
    count = len(DOCUMENTS)
    columns = {"n_prompt": [1] * count, "row_id": [*range(count)], "num_tokens": [99] * count}
    columns |= {"loss_scale": [0.5] * count, "mask_prompt": [True] * count}
    table = table_of({"input_ids": DOCUMENTS, **columns}, kind)
    message = r"numbers in \['n_prompt', 'loss_scale', 'mask_prompt'\] are ignored"
    with pytest.warns(UserWarning, match=message):
        packed_loader(trainer_of(tmp_path, table), 32)


def test_a_file(tmp_path):
    datasets.Dataset.from_dict({"input_ids": DOCUMENTS, "loss_mask": HALVES}).to_parquet(
        tmp_path / "x.parquet"
    )
    result = labels_of(packed_loader(trainer_of(tmp_path), 32, tmp_path / "x.parquet"))
    longest = max(DOCUMENTS, key=len)
    assert result[tuple(longest)][1] == -100 != result[tuple(longest)][-1]


def test_bad_arguments(tmp_path):
    load = lambda dataset, length=32: packed_loader(trainer_of(tmp_path), length, dataset)
    arrays = pinfeed.ArrayDataset({"tokens": ARRAYS["input_ids"]})
    check(lambda: load(arrays), KeyError, "expected a key of its samples, got 'input_ids'")
    texts = datasets.Dataset.from_dict({"text": ["a"]})
    check(lambda: load(texts), ValueError, "the table has no column 'input_ids'; it has ['text']")
    check(lambda: load([{"input_ids": [1]}]), TypeError, "a datasets.Dataset", "got list")
    check(lambda: load(ARRAYS, 4), ValueError, "at most seq_length=4 tokens", "overflow='truncate'")
