"""Arguments with wrong names, positions or forms, and the right names in the errors."""

import numpy as np
import pytest
import torch

import pinfeed
from hints import PHOTOS, PLANES, Hints, check_hint, done, first, rows
from pinfeed import (
    ArrayDataset,
    Collate,
    DeviceLoader,
    Image,
    IndexedDataset,
    Pack,
    Pad,
    Stack,
    augment,
    from_numpy,
)
from pinfeed.samplers import PackSampler


def drawn(sampler):
    return torch.tensor(first(sampler))


HINTS: Hints = {
    "arrays by names": (done, lambda: ArrayDataset(image=PHOTOS), lambda: rows({"image": PHOTOS})["image"],
        torch.from_numpy(PHOTOS),
        TypeError, r"^ArrayDataset: got an unknown argument 'image'; arrays go into one tuple or dict"),
    "fields by names": (done, lambda: Collate(image=Image()),
        lambda: Collate({"image": Image()})([{"image": PHOTOS[0]}])["image"],
        Collate(Image())([PHOTOS[0]]),
        TypeError, r"^Collate: got an unknown argument 'image'; fields go into one tuple or dict"),
    "an option of DataLoader with a slip": (lambda option: first(from_numpy(PHOTOS, 3, device="cpu", **option)),
        {"num_worker": 0}, {"num_workers": 0}, torch.from_numpy(PHOTOS),
        TypeError, r"^from_numpy: neither from_numpy nor DataLoader has an option 'num_worker'; did you mean 'num_workers'\?"),
    "an option of DataLoader in Collate": (done, lambda: Collate(batch_size=3),
        lambda: first(torch.utils.data.DataLoader([*PHOTOS], batch_size=3, collate_fn=Collate())), torch.from_numpy(PHOTOS),
        TypeError, r"^Collate: got an unknown argument 'batch_size'; pass it to the DataLoader"),
    "a size as the mean": (done, lambda: Image(8),
        lambda: Collate(Image(augment=augment.Resize(8)))([PHOTOS[0]]), Collate(Image(augment=augment.Resize(8)))([PHOTOS[0]]),
        ValueError, r"got mean=8 and std=None; pass scale=1 .*; sizes go into augment=pinfeed.augment.Resize\(size\)"),
    "an option with a slip": (lambda option: Collate(Image(**option))([PHOTOS[0]]),
        {"means": 0.5}, {"mean": 0.5}, torch.from_numpy(PLANES[:1] / np.float32(255) - np.float32(0.5)),
        TypeError, r"^Image: got an unknown argument 'means'; did you mean 'mean'\?"),
    "the rows of a PackSampler": (lambda option: drawn(PackSampler([3, 1], seq_length=4, shuffle=False, **option)),
        {"rows": 1}, {"batch_size": 1}, torch.tensor([0, 1]),
        TypeError, "^PackSampler: got an unknown argument 'rows'; pass batch_size$"),
    "the fill of a Pack": (lambda option: Collate(Pack(seq_length=4, **option))(IndexedDataset([[1, 2]]).__getitems__(first(PackSampler([2], seq_length=4)))),
        {"fill": -100}, {"pad_value": -100}, torch.tensor([[1, 2, -100, -100]]),
        TypeError, "^Pack: got an unknown argument 'fill'; pass pad_value$"),
    "a function that opens shards": (lambda option: Collate()(list(pinfeed.StreamDataset([2, 3], **option))),
        {"open": range}, {"open_shard": range}, torch.tensor([0, 1, 0, 1, 2]),
        TypeError, "^StreamDataset: got an unknown argument 'open'; pass open_shard$"),
    "padding of a function": (lambda option: pinfeed.functional.pad([[1, 2], [3]], lengths=False, **option),
        {"padding_value": 7}, {"pad_value": 7}, torch.tensor([[1, 2], [3, 7]]),
        TypeError, "^pad: got an unknown argument 'padding_value'; pass pad_value$"),
    "an option of tokenizers": (lambda option: Collate(Pad(lengths=False, **option))([[1, 2], [3]]),
        {"pad_token_id": 7}, {"pad_value": 7}, torch.tensor([[1, 2], [3, 7]]),
        TypeError, "^Pad: got an unknown argument 'pad_token_id'; pass pad_value$"),
    "another option of tokenizers": (lambda option: Collate(Pad(lengths=False, **option))([[1, 2], [3]]),
        {"truncation": True}, {"max_length": 1}, torch.tensor([[1], [3]]),
        TypeError, "^Pad: got an unknown argument 'truncation'; max_length=n cuts longer samples$"),
    "padding to a length": (lambda option: pinfeed.functional.pad([[1, 2], [3]], lengths=False, **option),
        {"padding": "max_length"}, {"max_length": 3, "multiple_of": 3}, torch.tensor([[1, 2, 0], [3, 0, 0]]),
        TypeError, "^pad: got an unknown argument 'padding'; batches are .* max_length=n with multiple_of=n pads all to n"),
    "no token for padding": (lambda value: Collate(Pad(pad_value=value, lengths=False))([[1, 2], [3]]),
        None, 9, torch.tensor([[1, 2], [3, 9]]),
        TypeError, r"^Pad: pad_value must be a number, got None; if it is tokenizer.pad_token_id"),
    "padding without its name": (lambda option: Collate(Pad(*option.pop("by place", ()), lengths=False, **option))([[1, 2], [3]]),
        {"by place": (7,)}, {"pad_value": 7}, torch.tensor([[1, 2], [3, 7]]),
        TypeError, "^Pad: expected a keyword argument, got 7; write pad_value=7, or max_length=7 for a maximum length$"),
    "a length without its name": (lambda option: drawn(PackSampler([3, 1], *option.pop("by place", ()), shuffle=False, **option)),
        {"by place": (4,)}, {"seq_length": 4}, torch.tensor([0, 1]),
        TypeError, "^PackSampler: expected a keyword argument, got 4; write seq_length=4$"),
    "a number of rows without its name": (lambda option: len(PackSampler([3, 4], *option.pop("by place", ()), seq_length=4, **option)),
        {"by place": (2,)}, {"batch_size": 2}, 1,
        TypeError, "^PackSampler: expected a keyword argument, got 2; write batch_size=2$"),
    "a flip": (lambda option: Collate(Image(**option))([PHOTOS[0]]).sort().values.sum(),
        {"flip": True}, {"augment": augment.RandomHorizontalFlip()}, Collate(Image())([PHOTOS[0]]).sort().values.sum(),
        TypeError, r"^Image: got an unknown argument 'flip'; Image\(augment=.*RandomHorizontalFlip"),
    "a layout without a name": (lambda options: pinfeed.functional.normalize(torch.from_numpy(PHOTOS), *options.pop("by place", ()), **options),
        {"by place": (None, None, "NHWC")}, {"input": "NHWC", "output": "NCHW"}, torch.from_numpy(PLANES / np.float32(255)),
        TypeError, r'^normalize: expected at most 3 positional arguments, got 4; layouts have names: input="NHWC", output="NCHW"'),
    "images without lengths": (lambda sizes: pinfeed.functional.unpad(Collate(Image(pad_value=0, sizes=sizes))(list(PHOTOS)))[0],
        False, True, Collate(Image())([PHOTOS[0]])[0],
        TypeError, r"Image\(sizes=True\)"),
    "an option of pad_sequence": (lambda option: Collate(Pad(lengths=False, **option))([[1, 2], [3]]),
        {"padding_value": 7}, {"pad_value": 7}, torch.tensor([[1, 2], [3, 7]]),
        TypeError, "^Pad: got an unknown argument 'padding_value'; pass pad_value$"),
    "a stream to shuffle": (lambda option: Collate()(sorted(pinfeed.StreamDataset(range(9), **option))),
        {"shuffle": True}, {"shuffle_buffer": 10_000}, torch.arange(9),
        TypeError, "^StreamDataset: got an unknown argument 'shuffle'; shuffle_buffer=10_000 shuffles"),
    "draws where the batch size stood": (done, lambda: pinfeed.samplers.WeightedSampler([1, 0], 1000),
        lambda: drawn(pinfeed.samplers.WeightedSampler([1, 0], batch_size=2, num_samples=1000)), torch.tensor([0, 0]),
        TypeError, "^WeightedSampler.* got 2; pass numbers by name: batch_size=..., num_samples=..."),
    "one-hot labels": (lambda labels: drawn(pinfeed.samplers.WeightedSampler.balanced(labels, batch_size=2)),
        np.eye(2), np.eye(2).argmax(1), drawn(pinfeed.samplers.WeightedSampler.balanced([0, 1], batch_size=2)),
        ValueError, r"^WeightedSampler.balanced: labels must be 1-D, got shape \(2, 2\); convert one-hot labels with .argmax\(1\)"),
    "the name of torch's dtype": (lambda dtype: Collate(Stack(dtype))([1.5]), "torch.float16", "float16",
        torch.tensor([1.5], dtype=torch.float16),
        TypeError, r"got 'torch.float16'; use 'float16'$"),
}  # fmt: skip


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_hints(hint):
    check_hint(*hint)


@pytest.mark.parametrize(
    "called",
    [augment.RandomHorizontalFlip, pinfeed.to_numpy, pinfeed.functional.normalize, DeviceLoader],
)
def test_unknown_arguments(called):
    with pytest.raises(TypeError, match=rf"^{called.__name__}: got an unknown argument 'slip'"):
        called(slip=1)
