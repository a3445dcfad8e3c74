"""pinfeed.from_numpy: the loader one would build by hand."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed

IMAGES = np.random.default_rng(0).integers(0, 256, (50, 6, 5, 3), dtype=np.uint8)
LABELS = np.arange(50)
TOKENS = pinfeed.RaggedArray.from_sequences([list(range(n % 7)) for n in range(50)])


def by_hand(arrays, batch_size, *, shuffle=False, fields=None, **options):
    dataset = pinfeed.ArrayDataset(arrays)
    return DataLoader(dataset, batch_size, shuffle, collate_fn=pinfeed.Collate(fields), **options)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_is_the_loader_by_hand(workers, drop_last):
    arrays = {"image": IMAGES, "label": LABELS, "tokens": TOKENS}
    fields = {"image": pinfeed.Image(0.5, 0.25), "tokens": pinfeed.Pad(-1, lengths="lengths")}
    options = {"shuffle": True, "fields": fields, "drop_last": drop_last, "num_workers": workers}
    if workers:
        options["multiprocessing_context"] = "spawn"

    def seeded(make):
        return make(arrays, 16, **options, generator=torch.Generator().manual_seed(3))

    loader = seeded(lambda *args, **kwargs: pinfeed.from_numpy(*args, **kwargs, device="cpu"))
    expected = list(seeded(by_hand))
    assert len(loader) == len(expected) == (3 if drop_last else 4)
    for epoch in range(2):
        batches = list(loader)
        assert len(batches) == len(expected)
        if epoch == 0:
            for batch, other in zip(batches, expected, strict=True):
                assert list(batch) == list(other) == ["image", "label", "tokens", "lengths"]
                assert all(torch.equal(batch[key], other[key]) for key in batch)
        elif not drop_last:  # another order of the same samples
            assert sorted(torch.cat([batch["label"] for batch in batches]).tolist()) == [*range(50)]


def test_bare_arrays_and_attributes():
    loader = pinfeed.from_numpy(LABELS, 20, device="cpu")
    assert [batch.tolist() for batch in loader] == [
        [*range(20)],
        [*range(20, 40)],
        [*range(40, 50)],
    ]
    assert isinstance(loader.dataset, pinfeed.ArrayDataset)
    assert loader.batch_size == 20
    assert loader.num_workers == 0


def test_a_batch_that_is_kept_stays():
    loader = pinfeed.from_numpy(IMAGES, 8, device="cpu")
    kept = list(loader)
    assert torch.equal(torch.cat(kept), torch.from_numpy(IMAGES))


@pytest.mark.parametrize("option", ["dataset", "collate_fn", "sampler", "batch_sampler"])
def test_options_that_it_decides(option):
    with pytest.raises(TypeError, match=f"from_numpy: {option} is not an option here"):
        pinfeed.from_numpy(LABELS, 4, **{option: None})


@pytest.mark.parametrize(
    ("arrays", "batch_size", "error", "message"),
    [
        ({"x": LABELS, "y": LABELS[:3]}, 4, ValueError, "same length"),
        ({"x": "text.npy"}, 4, FileNotFoundError, "text.npy"),
        (3, 4, TypeError, "expected an ndarray"),
        (np.ma.array([1, 2], mask=[0, 1]), 2, TypeError, "without a mask, which would be lost"),
        (LABELS, 0, ValueError, "batch_size"),
        (LABELS, None, TypeError, "batch_size"),
    ],
)
def test_bad_input(arrays, batch_size, error, message):
    with pytest.raises(error, match=message):
        pinfeed.from_numpy(arrays, batch_size)
