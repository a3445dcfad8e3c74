"""Errors about tensors on the wrong device, before anything is written."""

import pytest
import torch

import pinfeed
from pinfeed import JaggedBatch

pytestmark = pytest.mark.gpu_only
IMAGES = torch.zeros(2, 4, 4, 3, dtype=torch.uint8)


def test_out_on_another_device():
    for images, out in (
        (IMAGES.cuda(), torch.full((2, 3, 4, 4), 7.0)),
        (IMAGES, torch.full((2, 3, 4, 4), 7.0, device="cuda")),
    ):
        with pytest.raises((TypeError, ValueError, RuntimeError), match=r"out|device"):
            pinfeed.functional.normalize(images, out=out)
        assert (out == 7).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_images_of_other_dtypes(dtype):
    with pytest.raises(TypeError, match="uint8"):
        pinfeed.functional.normalize(IMAGES.cuda().to(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32])
def test_outputs_of_other_dtypes(dtype):
    with pytest.raises(TypeError, match="dtype"):
        pinfeed.functional.normalize(IMAGES.cuda(), dtype=dtype)


def test_other_shapes():
    with pytest.raises(ValueError, match="shape"):
        pinfeed.functional.normalize(IMAGES.cuda()[0])
    with pytest.raises(ValueError, match="channels"):
        pinfeed.functional.normalize(IMAGES.cuda(), [0.1, 0.2], [1.0, 1.0])


def test_values_and_offsets_on_two_devices():
    values, offsets = torch.arange(6), torch.tensor([0, 2, 6])
    for batch in (JaggedBatch(values.cuda(), offsets), JaggedBatch(values, offsets.cuda())):
        try:
            result = pinfeed.functional.pad(batch)
        except (TypeError, ValueError, RuntimeError) as error:
            assert "cpu" in str(error).lower()  # noqa: PT017 - either is fine, but nothing in between
        else:
            assert result.values.cpu().tolist() == [[0, 1, 0, 0], [2, 3, 4, 5]]


def test_gather_is_for_the_host():
    with pytest.raises(TypeError, match=r"gather.*CPU"):
        pinfeed.functional.gather(torch.zeros(3, 3, device="cuda"), [0])


def test_two_devices():
    if torch.cuda.device_count() < 2:
        pytest.xfail("this machine has one GPU")
    images = IMAGES.to("cuda:1")
    result = pinfeed.functional.normalize(images)  # on any current device
    assert result.device == images.device
    with pytest.raises((TypeError, ValueError, RuntimeError), match=r"device|cuda"):
        pinfeed.functional.normalize(images, out=torch.empty(2, 3, 4, 4, device="cuda:0"))


@pytest.mark.gpu_only
def test_gather_is_for_the_cpu():
    with pytest.raises(TypeError, match=r"gather: array.* CPU, got one on cuda:0.*\.cpu\(\)"):
        pinfeed.functional.gather(torch.zeros(3, device="cuda"), [0])
