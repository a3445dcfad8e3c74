"""`RayCollate` in a Ray cluster: Dataset.iter_torch_batches, and workers of Ray Train."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import pinfeed
import reference
from pinfeed.integrations.ray import RayCollate
from samples import assert_same

ROWS, BATCH = 100, 32
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
SPEC = {
    "image": pinfeed.Image(MEAN, STD),
    "tokens": pinfeed.Pad(pad_value=-1, lengths="lengths", mask="mask"),
    "boxes": pinfeed.Jagged(offsets="first_box"),
}

rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 256, (ROWS, 8, 6, 3), dtype=np.uint8)
TOKENS = [rng.integers(0, 50_000, length) for length in rng.integers(0, 20, ROWS)]
BOXES = [rng.random((count, 4), dtype=np.float32) for count in rng.integers(1, 5, ROWS)]


def make_rows(batch):
    """Returns columns of tensors and lists, like Ray Data workers that read files."""
    ids = batch["id"]
    # Ray uses another column type if all rows of a batch have one shape.
    boxes = np.empty(len(ids), object)
    boxes[:] = [BOXES[i] for i in ids]
    tokens = np.empty(len(ids), object)
    tokens[:] = [TOKENS[i] for i in ids]
    return {"id": ids, "image": IMAGES[ids], "tokens": tokens, "boxes": boxes}


def expected_batch(ids):
    """Returns the expected batch of these rows."""
    images = reference.images(IMAGES[ids], MEAN, STD)
    tokens, lengths, mask = reference.pad([TOKENS[i] for i in ids], -1)
    boxes, first_box = reference.jagged([BOXES[i] for i in ids])
    arrays = {
        "id": np.array(ids),
        "image": images,
        "tokens": tokens,
        "lengths": lengths,
        "mask": mask,
        "boxes": boxes,
        "first_box": first_box,
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@pytest.fixture(scope="module")
def dataset(cluster):
    """Returns a dataset in the object store with blocks of 20 rows, so that batches span several."""
    ids = cluster.data.range(ROWS, override_num_blocks=5)
    return ids.map_batches(make_rows, batch_size=None).materialize()


def collated(data, **options):
    return list(data.iter_torch_batches(batch_size=BATCH, collate_fn=RayCollate(SPEC), **options))


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_batches(dataset, ahead):
    batches = collated(dataset, prefetch_batches=ahead)
    assert [len(batch["id"]) for batch in batches] == [32, 32, 32, 4]
    for number, batch in enumerate(batches):
        assert_same(batch, expected_batch(range(ROWS)[number * BATCH :][:BATCH]))


def test_shuffled(dataset):
    batches = collated(dataset, local_shuffle_buffer_size=60, local_shuffle_seed=0)
    ids = torch.cat([batch["id"] for batch in batches]).tolist()
    assert ids != sorted(ids) == list(range(ROWS))
    for batch in batches:
        assert_same(batch, expected_batch(batch["id"].tolist()))


def test_every_tensor_moves_to_the_device(dataset):
    for batch in collated(dataset, device="meta"):
        assert {tensor.device.type for tensor in batch.values()} == {"meta"}


def test_ray_loader_in_a_device_loader(dataset):
    """Strings keep Ray from moving a batch; DeviceLoader moves the tensors in it."""
    named = dataset.add_column("name", lambda table: [f"row {i}" for i in table["id"]])
    collate = RayCollate({"image": None, "tokens": SPEC["tokens"], "boxes": SPEC["boxes"]})
    batches = named.iter_torch_batches(batch_size=BATCH, collate_fn=collate)
    loader = pinfeed.DeviceLoader(batches, "cpu", fields={"image": SPEC["image"]})
    ids = []
    for batch in loader:
        ids += batch["id"].tolist()
        assert batch.pop("name") == [f"row {i}" for i in batch["id"]]
        assert_same(batch, expected_batch(batch["id"].tolist()))
    assert sorted(ids) == list(range(ROWS))


def test_parquet(cluster, tmp_path):
    table = pa.table(
        {"id": np.arange(ROWS), "tokens": TOKENS, "name": [str(i) for i in range(ROWS)]}
    )
    pyarrow.parquet.write_table(table, tmp_path / "part.parquet", row_group_size=30)
    data = cluster.data.read_parquet(str(tmp_path)).select_columns(["id", "tokens"])
    start = 0
    collate = RayCollate({"tokens": pinfeed.Pad(dtype=torch.int32, lengths="lengths")})
    for batch in data.iter_torch_batches(batch_size=BATCH, collate_fn=collate):
        ids = batch["id"].tolist()
        values, lengths, _ = reference.pad([TOKENS[i] for i in ids], 0)
        assert torch.equal(batch["tokens"], torch.from_numpy(values.astype(np.int32)))
        assert torch.equal(batch["lengths"], torch.from_numpy(lengths))
        start += len(ids)
    assert start == ROWS


def test_blocks_of_pandas(cluster):
    frame = pd.DataFrame({"id": range(ROWS), "tokens": TOKENS, "label": np.arange(ROWS) % 2 == 0})
    collate = RayCollate({"tokens": SPEC["tokens"]})
    batches = cluster.data.from_pandas(frame).iter_torch_batches(
        batch_size=BATCH, collate_fn=collate
    )
    ids = []
    for batch in batches:
        ids += batch["id"].tolist()
        expected = expected_batch(batch["id"].tolist())
        assert torch.equal(batch.pop("label"), batch["id"] % 2 == 0)
        assert_same(batch, {name: expected[name] for name in batch})
    assert ids == list(range(ROWS))


def test_errors_reach_the_loop(dataset):
    with pytest.raises(ValueError, match=r"entry \['tokens'\] of sample \d+ .*: expected shape"):
        list(dataset.iter_torch_batches(collate_fn=RayCollate({"boxes": SPEC["boxes"]})))
