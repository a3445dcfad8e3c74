"""Like transformers' run_ner.py: a label for the first token of each word."""

import datasets
import torch
import transformers
from transformers import DataCollatorForTokenClassification

tokenizer = transformers.ByT5Tokenizer()
words = [["Ada", "wrote", "it"], ["in", "London"], ["a"], ["by", "hand", "and", "ink"]] * 3
tags = [[1, 0, 0], [0, 2], [0], [0, 0, 0, 0]] * 3
dataset = datasets.Dataset.from_dict({"words": words, "tags": tags})


def tokenize_and_align_labels(sample):
    ids, labels = [], []
    for word, tag in zip(sample["words"], sample["tags"], strict=True):
        tokens = tokenizer(word, add_special_tokens=False)["input_ids"]
        ids += tokens
        labels += [tag] + [-100] * (len(tokens) - 1)
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


dataset = dataset.map(tokenize_and_align_labels, remove_columns=["words", "tags"])
sizes = {"vocab_size": 384, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
torch.manual_seed(0)
model = transformers.BertForTokenClassification(
    transformers.BertConfig(**sizes, num_attention_heads=2, num_labels=3)
)
collator = DataCollatorForTokenClassification(tokenizer, pad_to_multiple_of=8)

arguments = transformers.TrainingArguments(
    ".",
    num_train_epochs=2,
    use_cpu=True,
    report_to="none",
    save_strategy="no",
    disable_tqdm=True,
    dataloader_pin_memory=False,
)
trainer = transformers.Trainer(model, arguments, collator, dataset)
trainer.train()
weights = [*model.parameters()]
