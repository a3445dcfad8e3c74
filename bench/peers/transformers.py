"""The collator of Hugging Face's transformers: tokenized samples, padded by the tokenizer."""

import torch

from bench.arrays import difference
from bench.harness import Way


def _collator(inputs: list[str]):
    """Make the collator of a tokenizer with one word, for only its padding is asked for."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"[PAD]": 0}, unk_token="[PAD]")),
        pad_token="[PAD]",
        model_input_names=inputs,
    )
    return DataCollatorWithPadding(tokenizer)


def ways(batch) -> list[Way]:
    """Of a `SequenceBatch`: padded with lengths, and as a language model takes it, with a mask."""
    samples = [{"input_ids": numbers} for numbers in batch.lists]

    def with_lengths():
        collate = _collator(["input_ids"])

        def run():
            values = collate(samples)["input_ids"]
            return values, torch.tensor([len(sample["input_ids"]) for sample in samples])

        return run

    def with_mask():
        collate = _collator(["input_ids", "attention_mask"])
        return lambda: collate(samples)

    def mask_error(result) -> float:
        mask = torch.arange(batch.padded.shape[1]) < batch.lengths[:, None]
        return max(
            difference(result["input_ids"], batch.padded),
            difference(result["attention_mask"], mask.to(torch.int64)),
        )

    return [
        Way("transformers `DataCollatorWithPadding`, without its mask", with_lengths),
        Way("transformers `DataCollatorWithPadding`, as it is", with_mask, error=mask_error),
    ]
