"""Drop-in: transformers' Trainer learns the same from a Collate as from its own collators.

On real text, the docstrings of the standard library as bytes, with tiny models and random weights.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import pathlib
import statistics
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import pinfeed

STEPS = 20
LONGEST = 128
MULTIPLE = 8
IGNORED = -100  # the label that torch's cross entropy leaves out


class Training(NamedTuple):
    losses: list[float]
    weights: dict[str, torch.Tensor]


class WatchedCollate(pinfeed.Collate):
    """Notes whether it got rows; in a worker nobody learns of it."""

    got_rows: bool | None = None

    def __call__(self, samples: Any) -> Any:
        self.got_rows = isinstance(samples, pinfeed.Rows)
        return super().__call__(samples)


@pytest.fixture(scope="module")
def transformers() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        import transformers

        yield transformers


@pytest.fixture(scope="module")
def texts() -> list[str]:
    modules = (argparse, json, pathlib, statistics, textwrap)
    members = [member for module in modules for member in vars(module).values()]
    found = sorted(
        {text for member in members if callable(member) and (text := inspect.getdoc(member))}
    )
    assert len({len(text) for text in found}) > 20
    return found


@pytest.fixture(scope="module")
def tokens(transformers: ModuleType, texts: list[str]) -> list[list[int]]:
    """Lists of different lengths, as tokenizers give them; ids go up to 258."""
    tokenizer = transformers.ByT5Tokenizer()
    return tokenizer(texts, truncation=True, max_length=LONGEST)["input_ids"]


@pytest.fixture(scope="module")
def train(
    transformers: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Training]:
    """Trains a model of a class, from the same weights and in the same order each time."""

    def train(kind: str, dataset: Any, collator: Any, **arguments: Any) -> Training:
        losses = []

        class RecordingTrainer(transformers.Trainer):
            def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
                loss = super().training_step(*args, **kwargs)
                losses.append(loss.item())  # the log would round it
                return loss

        transformers.set_seed(0)
        config = getattr(transformers, f"{kind[: kind.index('For')]}Config")(
            vocab_size=384,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            pad_token_id=0,
        )
        model = getattr(transformers, kind)(config)
        options = transformers.TrainingArguments(
            output_dir=str(tmp_path_factory.mktemp("trainer")),
            max_steps=STEPS,
            learning_rate=1e-3,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            **arguments,
        )
        RecordingTrainer(
            model=model, args=options, train_dataset=dataset, data_collator=collator
        ).train()
        assert len(losses) == STEPS
        return Training(losses, model.state_dict())

    return train


def assert_same_training(actual: Training, expected: Training) -> None:
    """The same bits: of every loss, and of every weight at the end."""
    assert actual.losses == expected.losses
    for name, weights in expected.weights.items():
        torch.testing.assert_close(actual.weights[name], weights, rtol=0, atol=0, msg=name)
    assert np.mean(expected.losses[-5:]) < np.mean(expected.losses[:5])  # there was learning


def with_labels(tokens: list[list[int]]) -> list[dict[str, list[int]]]:
    return [{"input_ids": ids, "labels": ids} for ids in tokens]


def language_model_collate(side: Any = "right", **keywords: Any) -> pinfeed.Collate:
    keywords |= {"side": side, "multiple_of": MULTIPLE}
    return pinfeed.Collate(
        {
            "input_ids": pinfeed.Pad(0, mask="attention_mask", **keywords),
            "labels": pinfeed.Pad(IGNORED, **keywords),
        }
    )


@pytest.fixture(scope="module")
def own_training(
    transformers: ModuleType, tokens: list[list[int]], train: Callable[..., Training]
) -> Callable[[str], Training]:
    """What a language model learns through transformers' own collator, by the side of padding."""

    @functools.cache
    def own_training(side: str) -> Training:
        tokenizer = transformers.ByT5Tokenizer(padding_side=side)
        assert tokenizer.pad_token_id == 0
        own = transformers.DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=MULTIPLE)
        return train("LlamaForCausalLM", with_labels(tokens), own)

    return own_training


@pytest.mark.parametrize("side", ["right", "left"])
def test_language_model(
    side: str,
    tokens: list[list[int]],
    train: Callable[..., Training],
    own_training: Callable[[str], Training],
) -> None:
    actual = train("LlamaForCausalLM", with_labels(tokens), language_model_collate(side))
    assert_same_training(actual, own_training(side))


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        # By default the Trainer makes a list of dicts of the samples.
        pytest.param({}, False, id="samples"),
        pytest.param({"remove_unused_columns": False}, True, id="rows"),
        pytest.param(
            {"remove_unused_columns": False, "dataloader_num_workers": 2}, None, id="workers"
        ),
    ],
)
def test_language_model_from_ragged_arrays(
    arguments: dict[str, Any],
    rows: bool | None,
    tokens: list[list[int]],
    train: Callable[..., Training],
    own_training: Callable[[str], Training],
) -> None:
    ragged = pinfeed.RaggedArray.from_sequences(tokens, dtype=np.uint16)
    dataset = pinfeed.ArrayDataset({"input_ids": ragged, "labels": ragged})
    collate = WatchedCollate(language_model_collate(dtype=torch.int64).fields)
    actual = train("LlamaForCausalLM", dataset, collate, **arguments)
    assert collate.got_rows is rows
    assert_same_training(actual, own_training("right"))


def test_classifier(
    transformers: ModuleType,
    texts: list[str],
    tokens: list[list[int]],
    train: Callable[..., Training],
) -> None:
    """Every token of Bert looks at every other, so its mask matters."""
    samples = [
        {"input_ids": ids, "labels": int("return" in text.lower())}
        for ids, text in zip(tokens, texts, strict=True)
    ]
    own = transformers.DataCollatorWithPadding(transformers.ByT5Tokenizer())
    masked = [sample | {"attention_mask": [1] * len(sample["input_ids"])} for sample in samples]
    expected = train("BertForSequenceClassification", masked, own)
    collate = pinfeed.Collate({"input_ids": pinfeed.Pad(0, mask="attention_mask")})
    assert_same_training(train("BertForSequenceClassification", samples, collate), expected)
