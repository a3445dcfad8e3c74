"""to_numpy: errors while batches are copied from a device; tests/gpu has the copies themselves."""

import numpy as np
import pytest
import torch

from pinfeed import to_numpy
from pinfeed.exports.to_numpy import batch_writer
from samples import assert_same


@pytest.fixture(autouse=True)
def tensors_are_remote(monkeypatch):
    """Treats host tensors as device tensors, so that they are copied first."""
    monkeypatch.setattr(batch_writer, "is_remote", torch.is_tensor)


def test_partial_results_include_batches_in_transit():
    def batches():
        for i in range(3):
            yield {"x": torch.full((2,), i), "y": [i, i]}
        raise RuntimeError("device")

    assert to_numpy(batches(), max_samples=3)["y"] == [0, 0, 1]
    with pytest.raises(RuntimeError, match="device") as caught:
        to_numpy(batches())
    assert_same(caught.value.partial, {"x": np.repeat(np.arange(3), 2), "y": [0, 0, 1, 1, 2, 2]})


def test_a_device_failure_keeps_the_earlier_batches(monkeypatch):
    class Event:
        """An event after failing copies."""

        def __init__(self, device):
            assert device.type == "cpu"

        def record(self):
            pass

        def synchronize(self):
            raise RuntimeError("the copy failed")

    def batches():
        for i in range(3):
            if i == 1:
                monkeypatch.setattr(batch_writer, "has_streams", lambda device: True)
            yield {"x": torch.zeros(2), "y": [0, 0]}

    monkeypatch.setattr(torch, "Event", Event)
    with pytest.raises(RuntimeError, match="the copy failed") as caught:
        to_numpy(batches())
    assert_same(caught.value.partial, {"x": np.zeros(2, np.float32), "y": [0, 0]})
