"""to_numpy of tensors on accelerators, and errors while batches are copied from a device."""

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


ON_ACCELERATOR = pytest.mark.skipif(
    not torch.accelerator.is_available(), reason="needs an accelerator"
)


@ON_ACCELERATOR
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
def test_predict_loop_on_an_accelerator(dtype):
    device = torch.accelerator.current_accelerator()
    batches = [torch.randn(64, 500, 200).to(dtype) for _ in range(7)]
    result = to_numpy({"x": x.to(device), "t": x.to(device).transpose(1, 2)} for x in batches)
    expected = torch.cat(batches)
    expected = expected.float() if dtype == torch.bfloat16 else expected
    assert_same(result["x"], expected.numpy())
    assert_same(result["t"], expected.transpose(1, 2).contiguous().numpy())


@ON_ACCELERATOR
def test_reused_memory_of_an_accelerator():
    buffer = torch.zeros(1 << 24, device=torch.accelerator.current_accelerator())
    result = to_numpy(buffer.fill_(i) for i in range(8))
    assert (result.reshape(8, -1) == np.arange(8)[:, np.newaxis]).all()
