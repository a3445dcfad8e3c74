"""Tokenizes and packs documents, trains a language model, resumes mid-epoch."""

import ast
import sysconfig
from pathlib import Path

import numpy as np
import pinfeed
import torch
from torch import nn
from torch.utils.data import DataLoader

SEQ_LENGTH, ROWS, VOCABULARY = 128, 8, 257
END = 256  # the token that ends a document


class Model(nn.Module):
    """One block of a transformer."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(SEQ_LENGTH, width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, input_ids, position_ids, mask):
        x = self.tokens(input_ids) + self.positions(position_ids)
        parts = self.queries_keys_values(x).unflatten(2, (3, self.heads, -1))
        parts = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask)
        x = x + seen.transpose(1, 2).flatten(2)
        return self.head(x + self.feed_forward(x))


def new_loader(tokens):
    pieces = tokens.split(SEQ_LENGTH)  # splits long documents; shares memory
    sampler = pinfeed.samplers.PackSampler(
        pieces, seq_length=SEQ_LENGTH, batch_size=ROWS, seed=0
    )
    fields = {
        "input_ids": pinfeed.Pack(
            seq_length=SEQ_LENGTH,
            dtype=torch.int64,
            position_ids=True,
            document_ids=True,
        ),
        "labels": pinfeed.Pack(
            seq_length=SEQ_LENGTH,
            dtype=torch.int64,
            pad_value=-100,
            first_token=-100,  # no document predicts the next one's first token
        ),
    }
    dataset = pinfeed.ArrayDataset({"input_ids": pieces, "labels": pieces})
    collate = pinfeed.Collate(fields)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
    # On a GPU, leave out device, and move the model there.
    return pinfeed.DeviceLoader(loader, device="cpu")


def train_step(model, optimizer, batch):
    # causal, within a document
    mask = pinfeed.packing.attention_mask(batch["document_ids"])
    logits = model(batch["input_ids"], batch["position_ids"], mask)
    labels = batch["labels"][:, 1:]
    loss = nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels.flatten(), ignore_index=-100
    )
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def main():
    if not Path("tokens").exists():  # once
        pinfeed.write_array("tokens", (tokenize(text) for text in documents()))
    tokens = pinfeed.RaggedArray.open("tokens")  # memory-mapped
    print(f"{len(tokens):,} documents, {tokens.lengths.sum():,} tokens")

    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = new_loader(tokens)
    padding = loader.batch_sampler.padding_fraction
    print(f"{len(loader)} batches, {padding:.1%} padding")
    losses = []
    for step, batch in enumerate(loader):
        losses.append(train_step(model, optimizer, batch))
        if step == 20:
            break

    checkpoint = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "loader": loader.state_dict(),
    }
    torch.save(checkpoint, "checkpoint.pt")

    # Resume; in a real job, in a new process.
    checkpoint = torch.load("checkpoint.pt")
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    loader = new_loader(tokens)
    loader.load_state_dict(checkpoint["loader"])
    for batch in loader:  # the remaining batches of this epoch
        losses.append(train_step(model, optimizer, batch))
        if len(losses) == 40:
            break
    print(f"learns: {losses[-1] < 0.8 * losses[0]}")  # learns: True


def documents():
    """Yields a stand-in for a corpus: docstrings of Python's standard library."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:20]:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                if text := ast.get_docstring(node):
                    yield text


def tokenize(text):
    """A stand-in for a tokenizer: each byte is a token of 2 bytes."""
    return np.array([*text.encode(), END], np.uint16)


if __name__ == "__main__":
    main()
