"""Staging buffers for copies from a device, held against one that copies as late as it may.

What DeviceLoader does with them for copies to a device is in test_device_loader_copies.py.
"""

from __future__ import annotations

import pytest
import torch

from fake_accelerator import FakeAccelerator
from pinfeed.memory import outputs
from pinfeed.memory.staging import StagingBuffers, has_streams
from samples import assert_same


@pytest.fixture(autouse=True)
def nothing_is_refused_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_is_refused", False)


def tensors(number: int) -> list[torch.Tensor]:
    return [
        torch.full((number, 3), number, dtype=torch.float16),
        torch.full((2, 0, 2), True),
        torch.arange(6).reshape(2, 3).t() + number,
        torch.tensor(number).to(torch.bfloat16),
    ]


def test_fetched_tensors_are_there_once_their_buffer_was_waited_for() -> None:
    buffers = StagingBuffers(FakeAccelerator())
    before = buffers.fetch(tensors(1))
    for number in range(2, 30):
        on_device = tensors(number)
        now = buffers.fetch(on_device)
        for tensor in on_device:
            tensor.zero_()  # as the next batch would
        fetched, buffer = before
        buffer.wait()
        assert_same(fetched, [tensor.contiguous() for tensor in tensors(number - 1)])
        before = now


def test_two_buffers_serve_all_batches() -> None:
    fake = FakeAccelerator()
    buffers = StagingBuffers(fake)
    for number in range(1, 21):
        buffers.fetch(tensors(number))
    assert fake.pinned_sizes == [2048, 2048]
    buffers.close()
    assert fake.pinned_bytes == 0


def test_devices_with_one_stream() -> None:
    assert not has_streams(torch.device("mps"))
    assert not has_streams(torch.device("cpu"))
