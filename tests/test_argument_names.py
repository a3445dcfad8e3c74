"""Arguments under other names, in other places or in other forms, and what they are called here."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from hints import PHOTOS, PLANES, check_hint, first, rows
from pinfeed import (
    ArrayDataset,
    Collate,
    DeviceLoader,
    Image,
    IndexedDataset,
    Pack,
    PackSampler,
    Pad,
    Stack,
    augment,
    from_numpy,
)

HINTS = {
    "arrays by names": (
        lambda: ArrayDataset(image=PHOTOS),
        TypeError,
        r"^ArrayDataset: there is no argument 'image'; arrays go into one tuple or dict",
        lambda: rows({"image": PHOTOS})["image"],
        torch.from_numpy(PHOTOS),
    ),
    "fields by names": (
        lambda: Collate(image=Image()),
        TypeError,
        r"^Collate: there is no argument 'image'; fields go into one tuple or dict",
        lambda: Collate({"image": Image()})([{"image": PHOTOS[0]}])["image"],
        Collate(Image())([PHOTOS[0]]),
    ),
    "an option of DataLoader with a slip": (
        lambda: from_numpy(PHOTOS, 3, num_worker=0),
        TypeError,
        r"^from_numpy: there is no option 'num_worker', .*; did you mean 'num_workers'\?",
        lambda: first(from_numpy(PHOTOS, 3, device="cpu", num_workers=0)),
        torch.from_numpy(PHOTOS),
    ),
    "an option with a slip": (
        lambda: Image(means=0.5),
        TypeError,
        r"^Image: there is no argument 'means'; did you mean 'mean'\?",
        lambda: Collate(Image(mean=0.5))([PHOTOS[0]]),
        torch.from_numpy(PLANES[:1] / np.float32(255) - np.float32(0.5)),
    ),
    "the rows of a PackSampler": (
        lambda: PackSampler([3, 1], seq_length=4, rows=1),
        TypeError,
        "^PackSampler: there is no argument 'rows'; it is batch_size$",
        lambda: torch.tensor(first(PackSampler([3, 1], seq_length=4, batch_size=1, shuffle=False))),
        torch.tensor([0, 1]),
    ),
    "the fill of a Pack": (
        lambda: Pack(4, fill=-100),
        TypeError,
        "^Pack: there is no argument 'fill'; it is pad_value$",
        lambda: first(
            DataLoader(
                IndexedDataset([[1, 2]]),
                batch_sampler=PackSampler([2], seq_length=4),
                collate_fn=Collate(Pack(4, pad_value=-100)),
            )
        ),
        torch.tensor([[1, 2, -100, -100]]),
    ),
    "a function that opens shards": (
        lambda: pinfeed.StreamDataset([2, 3], open=range),
        TypeError,
        "^StreamDataset: there is no argument 'open'; it is open_shard$",
        lambda: Collate()(list(pinfeed.StreamDataset([2, 3], open_shard=range))),
        torch.tensor([0, 1, 0, 1, 2]),
    ),
    "padding of a function": (
        lambda: pinfeed.pad([[1, 2], [3]], padding_value=7),
        TypeError,
        "^pad: there is no argument 'padding_value'; it is pad_value$",
        lambda: pinfeed.pad([[1, 2], [3]], pad_value=7, lengths=False),
        torch.tensor([[1, 2], [3, 7]]),
    ),
    "an option of pad_sequence": (
        lambda: Pad(padding_value=7),
        TypeError,
        "^Pad: there is no argument 'padding_value'; it is pad_value$",
        lambda: Collate({"x": Pad(pad_value=7)})([{"x": [1, 2]}, {"x": [3]}])["x"],
        torch.tensor([[1, 2], [3, 7]]),
    ),
    "a stream to shuffle": (
        lambda: pinfeed.StreamDataset(range(9), shuffle=True),
        TypeError,
        "^StreamDataset: there is no argument 'shuffle'; shuffle_buffer=10_000 shuffles",
        lambda: Collate()(sorted(pinfeed.StreamDataset(range(9), shuffle_buffer=10_000))),
        torch.arange(9),
    ),
    "draws where the batch size stood": (
        lambda: pinfeed.WeightedSampler([1, 0], 1000),
        TypeError,
        "^WeightedSampler.* 3 were given; numbers are given by name: batch_size=..., num_samples=...",
        lambda: torch.tensor(
            first(pinfeed.WeightedSampler([1, 0], batch_size=2, num_samples=1000))
        ),
        torch.tensor([0, 0]),
    ),
    "one-hot labels": (
        lambda: pinfeed.BalancedSampler(np.eye(2), batch_size=2),
        ValueError,
        r"^BalancedSampler: labels must be 1-D, got shape \(2, 2\); .argmax\(1\) makes labels",
        lambda: torch.tensor(first(pinfeed.BalancedSampler(np.eye(2).argmax(1), batch_size=2))),
        torch.tensor(first(pinfeed.BalancedSampler([0, 1], batch_size=2))),
    ),
    "the name of torch's dtype": (
        lambda: Stack("torch.float16"),
        TypeError,
        r"got 'torch.float16'; say 'float16'$",
        lambda: Collate(Stack("float16"))([1.5]),
        torch.tensor([1.5], dtype=torch.float16),
    ),
}


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_hints(hint):
    check_hint(*hint)


@pytest.mark.parametrize(
    "called", [augment.RandomHorizontalFlip, pinfeed.to_numpy, pinfeed.normalize, DeviceLoader]
)
def test_no_such_argument(called):
    with pytest.raises(TypeError, match=rf"^{called.__name__}: there is no argument 'slip'"):
        called(slip=1)
