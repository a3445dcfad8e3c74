"""Like transformers' run_mlm.py: texts of different lengths, masked per batch."""

import datasets
import torch
import transformers
from transformers import DataCollatorForLanguageModeling

tokenizer = transformers.ByT5Tokenizer(mask_token="<extra_id_0>")
texts = ["a", "some text", "more text than that", "b"] * 3
dataset = datasets.Dataset.from_dict({"text": texts})
tokenize = lambda sample: tokenizer(sample["text"], return_special_tokens_mask=True)
dataset = dataset.map(tokenize, remove_columns="text")
collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.4, pad_to_multiple_of=8)
sizes = {"vocab_size": 384, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
torch.manual_seed(0)
model = transformers.BertForMaskedLM(transformers.BertConfig(**sizes, num_attention_heads=2))

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
