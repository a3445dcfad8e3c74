"""timm's create_loader with ``Collate()`` instead of its ``fast_collate``."""

import warnings

import numpy as np
import pytest
import torch

import pinfeed

PIL = pytest.importorskip("PIL.Image")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about its import of torchvision
    timm = pytest.importorskip("timm.data")


class Photos(torch.utils.data.Dataset):
    transform = None

    def __len__(self):
        return 12

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        size = rng.integers(40, 60, 2)
        return self.transform(PIL.fromarray(rng.integers(0, 256, (*size, 3), np.uint8))), index % 3


def losses(workers, **options):
    """Returns the losses of a few training steps."""
    torch.manual_seed(0)
    loader = timm.create_loader(
        Photos(),
        (3, 32, 32),
        4,
        num_workers=workers,
        device=torch.device("cpu"),
        persistent_workers=False,
        **options,
    )
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    result = []
    for epoch in range(2):
        torch.manual_seed(epoch)
        timm.loader.random.seed(epoch)
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            result.append(loss.item())
    return result


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"is_training": True, "re_prob": 0.5}, {"use_prefetcher": False}], ids=str)  # fmt: skip
def test_losses_are_equal_to_the_last_digit(options, workers):
    expected = losses(workers, **options)
    assert losses(workers, **options, collate_fn=pinfeed.Collate()) == expected
    assert len(expected) == 6
