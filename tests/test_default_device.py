"""CPU results stay on the CPU, regardless of torch's default device."""

import numpy as np
import pytest
import torch

import pinfeed
from samples import assert_same

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), np.uint8)
TABLE = torch.arange(12.0).reshape(4, 3)
RAGGED = pinfeed.RaggedArray(torch.arange(9.0), np.array([0, 2, 2, 6, 9]))
CPU_MASK = torch.tensor([True, False, True, False])
JAGGED = pinfeed.JaggedBatch(torch.arange(9.0), torch.tensor([0, 2, 2, 6, 9]))
JAGGED_ARRAYS = pinfeed.JaggedBatch(np.arange(9.0), np.array([0, 2, 2, 6, 9]))

PADDED_PATCHES = pinfeed.Patches(1, 0.5, pad_to=40, mask=True)


def seeded_crop():
    """Returns a crop in an epoch that was set."""
    image = pinfeed.Image(augment=pinfeed.augment.RandomCrop(3))
    collate = pinfeed.Collate({"image": image}, seed=1)
    collate.set_epoch(3)
    return collate(pinfeed.ArrayDataset({"image": IMAGES}).__getitems__([0, 1]))


USES = {
    "row of a dataset": lambda: pinfeed.ArrayDataset((TABLE, RAGGED, IMAGES))[1],
    "ragged sequence": lambda: RAGGED[2],
    "ragged slice": lambda: list(RAGGED[1:3]),
    "ragged steps": lambda: list(RAGGED[::2]),
    "ragged list": lambda: list(RAGGED[[2, 0]]),
    "ragged tensor": lambda: list(RAGGED[torch.tensor([2, 0], device="cpu")]),
    "ragged mask": lambda: list(RAGGED[CPU_MASK.numpy()]),
    "ragged mask tensor": lambda: list(RAGGED[CPU_MASK]),
    "ragged from tensors": lambda: list(pinfeed.RaggedArray.from_sequences([TABLE, TABLE[:1]])),
    "normalize": lambda: pinfeed.functional.normalize(torch.from_numpy(IMAGES), 0.5, 0.25),
    "permute": lambda: pinfeed.functional.permute(torch.from_numpy(IMAGES)),
    "gather": lambda: pinfeed.functional.gather(TABLE, [2, 0]),
    "pad": lambda: pinfeed.functional.pad([[1, 2], [3]], mask=True),
    "pad tensors": lambda: pinfeed.functional.pad(list(RAGGED)),
    "pad ragged": lambda: pinfeed.functional.pad(RAGGED),
    "unpad": lambda: pinfeed.functional.unpad(TABLE, [1, 0, 3, 2]),
    "to_padded": lambda: JAGGED.to_padded(mask=True),
    "from_padded": lambda: pinfeed.JaggedBatch.from_padded(TABLE, [1, 0, 3, 2]),
    "cu_seqlens": lambda: JAGGED.cu_seqlens(),
    "to_nested": lambda: list(JAGGED.to_nested().unbind()),
    "to_nested of arrays": lambda: list(JAGGED_ARRAYS.to_nested().unbind()),
    "to_numpy": lambda: pinfeed.to_numpy([TABLE, TABLE]),
    "to_numpy jagged": lambda: list(pinfeed.to_numpy([JAGGED, JAGGED])),
    "DeviceLoader": lambda: list(pinfeed.DeviceLoader([TABLE, TABLE], device="cpu")),
    "NumPy scalars": lambda: pinfeed.Collate()([np.float32(1), np.float32(2)]),
    "bools": lambda: pinfeed.Collate()([True, False]),
    "NumPy bools": lambda: pinfeed.Collate()([np.bool_(True), np.bool_(False)]),
    "mixed numbers": lambda: pinfeed.Collate()([1, 2.5, True]),
    "numbers and scalars": lambda: pinfeed.Collate()([np.float64(1), 2, np.int8(3)]),
    "numbers and arrays": lambda: pinfeed.Collate()([np.array(1.0), 2.0]),
    "numbers of lists": lambda: pinfeed.Collate(pinfeed.Stack("float16"))([[1, 2.5], [0.5, True]]),
    "numbers cast": lambda: pinfeed.Collate(pinfeed.Stack("int8"))([True, 2]),
    "two dtypes": lambda: pinfeed.Collate()([np.ones(2, "f4"), np.ones(2)]),
    "patches": lambda: pinfeed.Collate(PADDED_PATCHES)(list(IMAGES)),
    "no patches": lambda: pinfeed.Collate(PADDED_PATCHES)([None, []]),
    "ends of patches": lambda: pinfeed.Collate(pinfeed.Patches(1, cu_seqlens=True))(list(IMAGES)),
    "set_epoch": lambda: seeded_crop(),
    "StreamDataset": lambda: list(pinfeed.StreamDataset(range(9), 3)),
}


@pytest.fixture
def on_meta():
    yield lambda: torch.set_default_device("meta")
    torch.set_default_device(None)


@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
def test_results_stay_in_host_memory(use, on_meta):
    expected = use()
    on_meta()
    actual = use()
    torch.set_default_device(None)
    assert_same(actual, expected)
