"""Like transformers' run_glue.py."""

import datasets
import torch
import transformers
from transformers import DataCollatorWithPadding

tokenizer = transformers.ByT5Tokenizer()
texts = ["a", "some text", "more text than that", "b"] * 3
dataset = datasets.Dataset.from_dict({"text": texts, "label": [0, 1] * 6})
dataset = dataset.map(lambda sample: tokenizer(sample["text"]))
collator = DataCollatorWithPadding(tokenizer)
sizes = {"vocab_size": 384, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
torch.manual_seed(0)
model = transformers.BertForSequenceClassification(
    transformers.BertConfig(**sizes, num_attention_heads=2)
)

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
