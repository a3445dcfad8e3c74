"""Trains on a Parquet file with a rare class, and writes predictions."""

import numpy as np
import pinfeed
import pyarrow as pa
import pyarrow.parquet
import torch
from torch import nn
from torch.utils.data import DataLoader


class Model(nn.Module):
    """Two numbers, and an embedding of the country."""

    def __init__(self, countries):
        super().__init__()
        self.country = nn.Embedding(countries, 4)
        self.layers = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, batch):
        numbers = torch.stack([batch["amount"].log1p(), batch["hour"] / 24], 1)
        country = self.country(batch["country"])
        return self.layers(torch.cat([numbers, country], 1))


def main():
    write_some_rows("payments.parquet", 4000)
    table = pa.parquet.read_table("payments.parquet")
    country = table["country"].combine_chunks()  # codes and categories
    countries = country.dictionary
    column = table.column_names.index("country")
    table = table.set_column(column, "country", country.indices)
    dataset = pinfeed.ArrayDataset.from_arrow(table)
    training, held_out = dataset[:3000], dataset[3000:]

    number = pinfeed.Stack(torch.float32)  # casts while it gathers
    fields = {
        "amount": number,
        "hour": number,
        "country": pinfeed.Stack(torch.int64),
    }
    sampler = pinfeed.samplers.WeightedSampler.balanced(
        training["fraud"], batch_size=100, seed=0
    )
    collate = pinfeed.Collate(fields)
    loader = DataLoader(training, batch_sampler=sampler, collate_fn=collate)

    torch.manual_seed(0)
    model = Model(len(countries))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(5):
        for batch in loader:  # about 50 frauds per batch
            loss = nn.functional.cross_entropy(model(batch), batch["fraud"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}: loss {loss:.2f}")

    def predictions():  # in row order
        rest = pinfeed.from_numpy(held_out, 500, fields=fields, device="cpu")
        for batch in rest:
            yield {"id": batch["id"], "score": model(batch).softmax(1)[:, 1]}

    with torch.inference_mode():
        scored = pinfeed.to_numpy(predictions())
    pa.parquet.write_table(pa.table(scored), "scores.parquet")
    frauds = np.asarray(held_out["fraud"]) == 1
    # the area under the ROC curve: how often a fraud has the higher score
    higher = scored["score"][frauds][:, None] > scored["score"][~frauds]
    print(f"AUC {higher.mean():.1f}")  # AUC 0.9


def write_some_rows(path, count):
    """Writes a stand-in for a table of payments, one in twenty fraudulent."""
    rng = np.random.default_rng(0)
    fraud = rng.random(count) < 0.05
    amount = rng.lognormal(3, 1, count) * (1 + 9 * fraud)
    country = pa.array(rng.choice(["DE", "FR", "JP"], count))
    columns = {
        "id": np.arange(count),
        "amount": amount.astype(np.float32),
        "hour": rng.integers(0, 24, count).astype(np.int16),
        "country": country.dictionary_encode(),
        "fraud": fraud.astype(np.int64),
    }
    pa.parquet.write_table(pa.table(columns), path)


if __name__ == "__main__":
    main()
