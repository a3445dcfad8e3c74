"""transformers' data collators, and pinfeed's classes that take their place."""

import functools
import importlib

import numpy as np
import torch

from bench.harness import Role, Way, Workload

COUNTS = (32, 256)
#: What features have beside tokens and their mask: the key, and its value for a text.
COLLATORS = {
    "DataCollatorWithPadding": ("label", len),
    "DataCollatorForTokenClassification": ("labels", list),
    "DataCollatorForSeq2Seq": ("labels", list),
    "DataCollatorForLanguageModeling": (None, None),
    "DataCollatorWithFlattening": ("labels", list),
}


def _features(name, count):
    rng = np.random.default_rng(0)
    texts = [rng.integers(3, 250, length).tolist() for length in rng.integers(1, 512, count)]
    key, label = COLLATORS[name]
    return [
        {"input_ids": text, "attention_mask": [1] * len(text)} | ({key: label(text)} if key else {})
        for text in texts
    ]


def _made(module, name):
    kind = getattr(importlib.import_module(module), name)
    if name == "DataCollatorWithFlattening":
        return kind(return_flash_attn_kwargs=True)
    tokenizer = importlib.import_module("transformers").ByT5Tokenizer()
    options = {"mlm": False} if name == "DataCollatorForLanguageModeling" else {}
    return kind(tokenizer, **options)


def collator(workload: str, name: str, count: int) -> Workload:
    """Features of lists of ints, as a tokenizer makes them, in a batch."""
    features = _features(name, count)

    def build(module):
        made = _made(module, name)
        return lambda: made(features)

    def error(batch):
        expected = _made("transformers", name)(features)
        same = batch.keys() == expected.keys() and all(
            torch.equal(torch.as_tensor(leaf), torch.as_tensor(batch[key]))
            for key, leaf in expected.items()
        )
        return 0.0 if same else np.inf

    ours = functools.partial(build, "pinfeed.integrations.transformers")
    ways = [
        Way(f"**pinfeed** `{name}`", ours, Role.PINFEED),
        Way(f"transformers `{name}`", functools.partial(build, "transformers")),
    ]
    return Workload(workload, f"{count} features of lists of ints", ways, error)


def workloads():
    """Return every workload here by name: its number of threads and what makes it."""
    return {
        f"{name}-{count}": (1, functools.partial(collator, name=name, count=count))
        for name in COLLATORS
        for count in COUNTS
    }
