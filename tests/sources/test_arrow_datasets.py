"""ArrayDataset.from_arrow of Hugging Face's datasets."""

import pickle

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

from pinfeed import ArrayDataset, Collate, Jagged, Pad, from_numpy
from pinfeed.samplers import PackSampler

FEATURES = datasets.Features(
    {
        "image": datasets.Array3D((2, 3, 3), "uint8"),
        "frames": datasets.Array2D((None, 4), "float32"),
        "tokens": datasets.Sequence(datasets.Value("int64")),
        "box": datasets.Sequence(datasets.Value("float32"), length=4),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "text": datasets.Value("string"),
    }
)
COLUMNS = [name for name in FEATURES if name != "text"]


def rows(count):
    return {
        "image": [np.arange(18).reshape(2, 3, 3) + i for i in range(count)],
        "frames": [np.full((i % 4, 4), i) for i in range(count)],
        "tokens": [list(range(i % 5)) for i in range(count)],
        "box": [[i, 1, 2, 3] for i in range(count)],
        "label": [i % 2 for i in range(count)],
        "text": [str(i) for i in range(count)],
    }


@pytest.fixture
def dataset():
    return datasets.Dataset.from_dict(rows(10), FEATURES)


def assert_same_samples(samples, expected):
    assert len(samples) == len(expected)
    for sample, other in zip(samples, expected.with_format("numpy", COLUMNS), strict=True):
        assert list(sample) == COLUMNS
        for name in COLUMNS:
            # Hugging Face returns one array for arrays without rows.
            assert np.array_equal(sample[name], np.reshape(other[name], sample[name].shape)), name


def test_a_dataset_on_disk(dataset, tmp_path):
    dataset.save_to_disk(tmp_path, num_shards=3)
    before = pa.total_allocated_bytes()
    opened = datasets.load_from_disk(tmp_path)
    samples = ArrayDataset.from_arrow(opened, COLUMNS)
    assert pa.total_allocated_bytes() == before
    assert samples[3]["image"].dtype == np.uint8
    assert samples[3]["frames"].shape == (3, 4)
    assert_same_samples(samples, dataset)
    fields = {"tokens": Pad(lengths="lengths"), "frames": Jagged()}
    (batch,) = DataLoader(samples, 10, collate_fn=Collate(fields))
    for i, other in enumerate(opened.with_format("torch")):
        length = batch["lengths"][i]
        assert batch["tokens"][i, :length].tolist() == other["tokens"].tolist()
        assert torch.equal(batch["image"][i], other["image"])


def test_columns_of_a_format(dataset):
    formatted = dataset.with_format("torch", columns=["label", "box"])
    sample = ArrayDataset.from_arrow(formatted)[3]
    assert list(sample) == ["label", "box"]
    assert type(sample["box"]) is np.ndarray
    assert list(ArrayDataset.from_arrow(formatted, ["tokens"])[3]) == ["tokens"]


def test_rows_in_another_order(dataset):
    collate = Collate({"tokens": Jagged(), "frames": Jagged()})
    for other in (
        dataset.shuffle(seed=0),
        dataset.select([3, 1]),
        datasets.concatenate_datasets([dataset.select(range(3, 8)), dataset]),
        dataset.train_test_split(0.2)["train"],
    ):
        samples = ArrayDataset.from_arrow(other, COLUMNS)
        for copy_of_samples in (samples, pickle.loads(pickle.dumps(samples))):
            assert_same_samples(copy_of_samples, other)
            labels = torch.tensor(other["label"])
            (batch,) = DataLoader(copy_of_samples, len(copy_of_samples), collate_fn=collate)
            assert torch.equal(batch["label"], labels)
            batch = collate(copy_of_samples[[-1, 0]])
            assert torch.equal(batch["label"], labels[[-1, 0]])
        lengths = [len(tokens) for tokens in other["tokens"]]
        assert samples["tokens"].lengths.tolist() == lengths
        assert np.asarray(samples["label"]).tolist() == list(other["label"])
        packed = PackSampler(samples["tokens"], seq_length=8)
        assert sum(batch.packing.lengths.sum() for batch in packed) == sum(lengths)
        assert_same_samples(samples[1:], other.select(range(1, len(other))))
        (batch,) = from_numpy(other.select_columns(["label"]), 20, device="cpu")
        assert torch.equal(batch["label"], labels)
        with pytest.raises(IndexError, match=f"is out of range for {len(other)}"):
            samples[len(other)]
        with pytest.raises(IndexError, match=f"is out of range for {len(other)}"):
            samples[[len(other)]]


def test_bad_datasets(dataset):
    with pytest.raises(ValueError, match=r"has a transform, .*with_format\(None\)"):
        ArrayDataset.from_arrow(dataset.with_transform(lambda batch: batch))
    with pytest.raises(TypeError, match=r"got DatasetDict; choose a split: table\['train'\]"):
        ArrayDataset.from_arrow(datasets.DatasetDict(train=dataset))
    with pytest.raises(TypeError, match=r"got IterableDataset; StreamDataset takes streams$"):
        ArrayDataset.from_arrow(dataset.to_iterable_dataset())


def test_arrays_of_another_shape_than_declared():
    kind = datasets.Features({"x": datasets.Array2D((2, 2), "int8")}).arrow_schema.field("x").type
    for lists, message in (
        ([[[1, 2], [3, 4]], [[1, 2], [3]]], "expected 2 items along axis 1 of each array, got 1"),
        ([[[1, 2]]], "expected 2 items along axis 0 of each array, got 1"),
        ([[[1, 2], None]], "1 inner lists are null"),
        ([[[1, None], [3, 4]]], "1 of 4 values are null"),
        ([None], "1 of 1 rows are null, the first is row 0"),
    ):
        storage = pa.array(lists, kind.storage_type)
        table = pa.table({"x": pa.ExtensionArray.from_storage(kind, storage)})
        with pytest.raises(ValueError, match=rf"^ArrayDataset\.from_arrow: column 'x': {message}"):
            ArrayDataset.from_arrow(table)


def test_no_rows():
    empty = datasets.Dataset.from_dict({name: [] for name in FEATURES}, FEATURES)
    samples = ArrayDataset.from_arrow(empty, COLUMNS)
    assert len(samples) == 0


def test_rows_of_width_zero():
    dataset = datasets.Dataset.from_dict({"x": [1, None, 3]})
    with pytest.raises(ValueError, match=r"filter\(lambda x: x is not None.*\.flatten_indices\(\)"):
        ArrayDataset.from_arrow(dataset)
    filtered = dataset.filter(lambda row: row["x"] is not None).flatten_indices()
    assert list(ArrayDataset.from_arrow(filtered)) == [{"x": 1}, {"x": 3}]
