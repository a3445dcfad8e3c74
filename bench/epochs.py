"""Whole epochs through torch's DataLoader, and the orders of samplers."""

import math
import tempfile
from functools import partial

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import BatchSampler, RandomSampler, TensorDataset, default_collate

import pinfeed
from bench import data, peers
from bench.data import MEAN, STD, difference, epochs, zero_if
from bench.harness import built, compare, other, ours, reference, workload
from bench.targets import at_least, at_most

BATCH = 256
ALONE = "DataLoader alone (indices only)"


def once_each(batches, expected):
    """Returns 0 if these indices, together, are the expected ones, else infinity."""
    indices = np.sort(np.concatenate([np.asarray(batch) for batch in batches]))
    return zero_if(np.array_equal(indices, expected))


class Indices:
    """A dataset whose samples are their indices: the cost of DataLoader itself."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitems__(self, indices):
        return indices


class ImageEpoch:
    """Images with their indices as labels, so that every shuffled batch can be checked."""

    def __init__(self, count):
        self.images, self.labels = data.random_bytes(count, 32, 32, 3), np.arange(count)
        self.tensors = torch.from_numpy(self.images), torch.from_numpy(self.labels)
        self.mean, self.std = peers.constants()

    def normalize(self, images):
        """Normalizes a batch as torch code usually does."""
        return images.permute(peers.ORDER).float().sub_(self.mean).div_(self.std)

    def pinfeed(self, view=None, workers=0):
        """Returns an epoch of pinfeed's classes."""
        collate = pinfeed.Collate((pinfeed.Image(MEAN, STD, augment=view), None), seed=0)
        dataset = pinfeed.ArrayDataset((self.images, self.labels))
        return epochs(dataset, BATCH, collate, workers, shuffle=True)

    def each(self, transform):
        """Returns an epoch that transforms samples one by one."""

        def collate(samples):
            return default_collate([(transform(image), label) for image, label in samples])

        samples = list(zip(self.images, self.labels, strict=True))
        return epochs(samples, BATCH, collate, shuffle=True)

    def error(self, batches):
        """Returns the largest error of all batches; infinity unless each image occurs once."""
        seen, worst = [], 0.0
        for images, labels in batches:
            seen.append(labels.clone())
            worst = max(worst, difference(images, data.normalized(self.images[labels])))
        return worst + once_each(seen, self.labels)


@workload(
    at_most(1.5, why=(1.82, "DataLoader and sampler alone take 0.2× the reference")),
    at_least(10, "DataLoader(TensorDataset)"),
    at_least(60, "DataLoader, torchvision"),
    usual="DataLoader, torchvision v2 per sample",
)
def epoch():
    """An epoch over 50,000 images of 32×32, shuffled, normalized."""
    epoch, count = ImageEpoch(50_000), 50_000
    out, batches = (
        torch.zeros(count, 3, 32, 32),
        epochs(TensorDataset(*epoch.tensors), BATCH, shuffle=True),
    )

    def sliced():
        for chosen in torch.randperm(count).split(BATCH):
            yield epoch.normalize(epoch.tensors[0][chosen]), epoch.tensors[1][chosen]

    def by_tensors():
        return ((epoch.normalize(images), labels) for images, labels in batches())

    return compare(
        reference("fill all of the output once", lambda: out.fill_(1)),
        reference(ALONE, epochs(Indices(count), BATCH, list, shuffle=True)),
        ours("`ArrayDataset`, `Collate(Image)`", epoch.pinfeed()),
        ours("the same in 2 worker processes", epoch.pinfeed(workers=2)),
        other("no DataLoader: slices + torch", sliced),
        other("DataLoader(TensorDataset) + torch on the batch", by_tensors),
        other(
            "DataLoader, torchvision v2 per sample",
            built(lambda: epoch.each(peers.to_normalized())),
        ),
        expected=epoch.error,
        tolerance=data.ROUNDED,
    )


class Part:
    """The same indices in a new order per epoch, at the cost of `shuffle=True`."""

    def __init__(self, indices):
        self.indices = indices

    def __len__(self):
        return len(self.indices)

    def __iter__(self):
        yield from self.indices[torch.randperm(len(self.indices))].tolist()


ORDERS = "of 221 ms, DataLoader and sampler take 92, reading in order 74, at random 62 more"


@workload(
    at_least(10, "list of tensors", why=(8.1, ORDERS)), usual="list of tensors, `pad_sequence`"
)
def epoch_sequences():
    """250,000 of 1,000,000 sequences of 1–256 tokens, shuffled, padded."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 257, 1_000_000)
    offsets = data.offsets_of(lengths)
    values = np.arange(offsets[-1])  # consecutive, so that every batch can be checked
    part = torch.from_numpy(rng.permutation(len(lengths))[:250_000])
    step = len(values) // len(lengths) * BATCH
    target = torch.zeros(step, dtype=torch.int64)
    dataset = pinfeed.ArrayDataset(pinfeed.RaggedArray(values, offsets))
    # Views of consecutive memory: the best case for a list of tensors.
    tensors = list(torch.from_numpy(values).split(lengths.tolist()))
    some = {"sampler": Part(part)}

    def error(batches):
        seen, columns = [], np.arange(256)
        for rows, sizes, *_ in batches:
            seen.append(np.searchsorted(offsets, rows[:, 0].numpy()))
            where = columns[: rows.shape[1]]
            counted = (offsets[seen[-1]][:, None] + where) * (where < sizes.numpy()[:, None])
            if difference((rows, sizes), (counted, lengths[seen[-1]])):
                return math.inf
        return once_each(seen, np.sort(part.numpy()))

    copied = torch.from_numpy(values).split(step)[: len(part) // BATCH]
    return compare(
        reference("copy the same values in order", lambda: map(target.copy_, copied)),
        reference(ALONE, epochs(Indices(len(lengths)), BATCH, list, **some)),
        ours(
            "`ArrayDataset(RaggedArray)`, `Collate(Pad())`",
            epochs(dataset, BATCH, pinfeed.Collate(pinfeed.Pad()), **some),
        ),
        other("list of tensors, `pad_sequence`", epochs(tensors, BATCH, data.by_torch, **some)),
        expected=error,
    )


@workload(
    at_most(1.5, "`from_arrow` of a table in 16 chunks", "`ArrayDataset.from_arrow`"),
    at_least(20, 'datasets `with_format("torch")`'),
)
def epoch_arrow():
    """An epoch over 20,000 rows of 128 tokens and a mask of a Hugging Face dataset, shuffled."""
    import pyarrow as pa
    from datasets import Dataset

    ids = np.random.default_rng(0).integers(0, 50_000, (20_000, 128))
    mask, labels = (ids > 1000).astype(np.int8), np.arange(len(ids))
    columns = {"input_ids": ids, "attention_mask": mask, "label": labels}
    lists = [pa.FixedSizeListArray.from_arrays(array.ravel(), 128) for array in (ids, mask)]
    table = pa.table([*lists, labels], names=[*columns])
    chunked = pa.concat_tables(table.slice(start, 1250) for start in range(0, len(ids), 1250))
    outs = [np.empty_like(array) for array in columns.values()]

    def by_pinfeed(dataset):
        return epochs(dataset, BATCH, pinfeed.Collate(), shuffle=True)

    def formatted(kind):
        return epochs(Dataset(table).with_format(kind), BATCH, shuffle=True)

    def error(batches):
        seen = []
        for batch in batches:
            seen.append(batch["label"].numpy())
            # the formats of datasets convert all of them to int64
            for name, column in columns.items():
                if not np.array_equal(batch[name].numpy(), column[seen[-1]]):
                    return math.inf
        return once_each(seen, labels)

    from_arrow = pinfeed.ArrayDataset.from_arrow
    return compare(
        reference("copy all rows in order", lambda: [*map(np.copyto, outs, columns.values())]),
        ours("`ArrayDataset.from_arrow`", by_pinfeed(from_arrow(Dataset(table)))),
        ours("`from_arrow` of a table in 16 chunks", by_pinfeed(from_arrow(chunked))),
        ours("`ArrayDataset` of plain arrays", by_pinfeed(pinfeed.ArrayDataset(columns))),
        other('datasets `with_format("torch")`', formatted("torch")),
        other('datasets `with_format("numpy")`', formatted("numpy")),
        expected=error,
    )


@workload(at_least(5, "TRL"))
def epoch_packed():
    """20,000 documents in a file as int64 batches of 4 × 8192, shuffled, planning included."""
    size, rows = 8192, 4
    offsets = data.offsets_of(data.document_lengths(20_000, 5, size))
    tokens = np.random.default_rng(0).integers(1, 50_000, offsets[-1], np.uint16)
    with tempfile.TemporaryDirectory(prefix="pinfeed-bench-") as folder:
        pinfeed.RaggedArray(tokens, offsets).save(f"{folder}/tokens")
        ragged = pinfeed.RaggedArray.open(f"{folder}/tokens")  # mapped: the folder may be removed

    def by_pinfeed(sampler, field):
        """Plans every epoch anew, with a new sampler."""
        dataset, collate = pinfeed.ArrayDataset(ragged), pinfeed.Collate(field)
        return lambda: epochs(dataset, collate=collate, batch_sampler=sampler(ragged))()

    def by_trl():
        peers.v2()  # or TRL's imports fail in torchvision
        import pyarrow as pa
        from datasets import Dataset, disable_progress_bars
        from trl import pack_dataset

        disable_progress_bars()
        lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(tokens))
        dataset = Dataset(pa.table({"input_ids": lists}))

        def collate(batch):
            return pad_sequence([row["input_ids"] for row in batch], batch_first=True)

        def epoch():
            packed = pack_dataset(dataset, size, "bfd").with_format("torch")
            return epochs(packed, rows, collate, shuffle=True)()

        return epoch

    def error(batches):
        """Returns 0 if every token occurs once, and all else is zeros."""
        sums = np.array([(int(batch.count_nonzero()), int(batch.sum())) for batch in batches])
        return float(abs(sums.sum(0) - (len(tokens), int(tokens.sum(dtype=np.int64)))).sum())

    packing = partial(pinfeed.samplers.PackSampler, seq_length=size, batch_size=rows)
    padding = partial(pinfeed.samplers.LengthBucketSampler, max_tokens=size * rows)
    pack = pinfeed.Pack(seq_length=size, dtype="int64")
    pad = pinfeed.Pad(dtype="int64", lengths=False)
    words = torch.from_numpy(tokens).split(size * rows)
    return compare(
        reference("tokens to int64, in order", lambda: (part.long() for part in words)),
        ours("`PackSampler`, `Pack`", by_pinfeed(packing, pack)),
        ours("`LengthBucketSampler`, `Pad`", by_pinfeed(padding, pad)),
        other("TRL `pack_dataset`, DataLoader", built(by_trl)),
        expected=error,
    )


@workload(
    at_least(5, "torch `RandomSampler`", "`ShuffleSampler`"),
    at_most(1, "the first batch", unit="ms"),
    at_least(1, "`torch.multinomial`", "`WeightedSampler`"),
)
def samplers():
    """Batches of indices."""
    count, draws = 2_000_000, 1_000_000
    indices, weights = np.arange(count), np.random.default_rng(0).random(10_000_000)
    out, tensor = np.empty_like(indices), torch.from_numpy(weights)
    shuffled = pinfeed.samplers.ShuffleSampler(count, BATCH)
    endless = pinfeed.samplers.ShuffleSampler(1_000_000_000, BATCH)
    weighted = pinfeed.samplers.WeightedSampler(weights, num_samples=draws, batch_size=BATCH)
    random = BatchSampler(RandomSampler(range(count)), BATCH, drop_last=False)
    mean = float((weights * weights).sum() / weights.sum())  # of the drawn weights

    def mean_error(batches):
        drawn = weights[np.concatenate([np.asarray(batch) for batch in batches])]
        deviation = float(drawn.std()) / len(drawn) ** 0.5
        return zero_if(len(drawn) == draws and abs(drawn.mean() - mean) < 6 * deviation)

    def multinomial():
        return [torch.multinomial(tensor, draws, replacement=True).numpy()]

    in_order = {"job": "2,000,000 in random order"}
    drawn = {"expected": mean_error, "job": "1,000,000 drawn from 10,000,000 by weight"}
    first = "the first batch of 1,000,000,000 by `ShuffleSampler`"
    is_first = {"expected": lambda batch: zero_if(len(batch) == BATCH)}
    is_first["job"] = "the first of 1,000,000,000"
    return compare(
        reference("copy the indices", lambda: np.copyto(out, indices), **in_order),
        ours("`ShuffleSampler`", lambda: [*shuffled], **in_order),
        ours(first, lambda: next(iter(endless)), **is_first),
        ours("`WeightedSampler`", lambda: [*weighted], **drawn),
        other("torch `RandomSampler` + `BatchSampler`", lambda: [*random], **in_order),
        other("`torch.multinomial`, in one batch", multinomial, **drawn),
        expected=lambda batches: once_each(batches, indices),
    )
