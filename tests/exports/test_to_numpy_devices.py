"""to_numpy of tensors on accelerators, and of what is taken for such."""

import numpy as np
import pytest
import torch

from pinfeed import JaggedBatch, Padded, RaggedArray, to_numpy
from pinfeed.exports.to_numpy import batch_writer
from samples import assert_same


@pytest.fixture(autouse=True)
def tensors_are_remote(monkeypatch):
    """Treats the host's tensors as a device's, so that they are copied first."""
    monkeypatch.setattr(batch_writer, "is_remote", torch.is_tensor)


def batch(n):
    return {
        "x": torch.full((2, 3), n, dtype=torch.float16),
        "mixed": np.full((2, 1), n),
        "half": torch.full((2,), n).to(torch.bfloat16),
        "names": [str(n), "-"],
        "mask": torch.full((2, 0, 2), n % 2 == 0),
        "tokens": JaggedBatch(torch.full((n,), n), torch.tensor([0, n // 2, n])),
        "padded": Padded(torch.full((2, n), n), np.array([n // 3, n])),
    }


def unstructured(node):
    if isinstance(node, dict):
        return {key: unstructured(child) for key, child in node.items()}
    return list(node) if isinstance(node, RaggedArray) else node


@pytest.mark.parametrize("count", [1, 2, 9])
def test_batches_come_whole_and_in_order(count):
    numbers = [7, 3, 12, 1, 0, 30, 2, 5, 6][:count]
    result = to_numpy(batch(n) for n in numbers)
    with pytest.MonkeyPatch.context() as undone:
        undone.setattr(batch_writer, "is_remote", lambda part: False)
        expected = to_numpy(batch(n) for n in numbers)
    assert_same(unstructured(result), unstructured(expected))
    assert_same(result["mixed"][:, 0], np.repeat(numbers, 2))


def test_memory_that_a_loader_uses_again():
    tensor, array, lengths = torch.zeros(2, 3), np.zeros((2, 1)), np.zeros(2, np.int64)

    def batches():
        for i in range(4):
            array[:] = lengths[:] = i
            yield tensor.fill_(i), array, (tensor[:, 0], Padded(tensor, lengths))

    result = to_numpy(batches())
    rows = np.repeat(np.arange(4), 2)
    assert result[0][:, 0].tolist() == result[1][:, 0].tolist() == rows.tolist()
    assert result[2][0].tolist() == rows.tolist()
    assert [row.tolist() for row in result[2][1]] == [[i] * i for i in rows]


def test_partial_results_have_what_was_under_way():
    def batches():
        for i in range(3):
            yield {"x": torch.full((2,), i), "y": [i, i]}
        raise RuntimeError("device")

    assert to_numpy(batches(), max_samples=3)["y"] == [0, 0, 1]
    with pytest.raises(RuntimeError, match="device") as caught:
        to_numpy(batches())
    assert_same(caught.value.partial, {"x": np.repeat(np.arange(3), 2), "y": [0, 0, 1, 1, 2, 2]})


def test_a_device_that_fails_leaves_what_came_before(monkeypatch):
    class Event:
        """Behind copies that fail."""

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
    not torch.accelerator.is_available(), reason="there is no accelerator"
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
def test_memory_of_an_accelerator_that_is_used_again():
    buffer = torch.zeros(1 << 24, device=torch.accelerator.current_accelerator())
    result = to_numpy(buffer.fill_(i) for i in range(8))
    assert (result.reshape(8, -1) == np.arange(8)[:, np.newaxis]).all()
