"""pinfeed turns NumPy arrays, memory-mapped files and tables into PyTorch batches.

Keep your DataLoader: replace the dataset and the ``collate_fn``. A batch is normalized, padded or
packed in one native pass, into memory that is used again.

    >>> import numpy as np, pinfeed, torch
    >>> images = np.zeros((8, 32, 32, 3), np.uint8)
    >>> dataset = pinfeed.ArrayDataset({"image": images, "label": np.arange(8)})
    >>> collate = pinfeed.Collate({"image": pinfeed.Image(mean=0.5, std=0.25)})
    >>> loader = torch.utils.data.DataLoader(dataset, batch_size=4, collate_fn=collate)
    >>> next(iter(loader))["image"].shape
    torch.Size([4, 3, 32, 32])
"""

import importlib
from typing import TYPE_CHECKING, Any

from pinfeed import augment, testing
from pinfeed._core import version as __version__
from pinfeed.collation.collate import Collate
from pinfeed.fields.field import Field, Leaf
from pinfeed.fields.image import Image
from pinfeed.fields.jagged import Jagged
from pinfeed.fields.keep import Keep
from pinfeed.fields.mask import Mask
from pinfeed.fields.pack import Pack
from pinfeed.fields.pad import Pad
from pinfeed.fields.patches import Patches
from pinfeed.fields.stack import Stack
from pinfeed.fields.targets import Boxes, InstanceMasks, Points
from pinfeed.functions.arrays import gather, normalize, permute
from pinfeed.functions.packed_masks import packed_attention_mask, packed_mask_mod
from pinfeed.functions.patches import patch_grid, patchify
from pinfeed.functions.sequences import JaggedBatch, Padded, pad, unpad
from pinfeed.functions.torch_ops import load as _load_ops
from pinfeed.functions.unbinding import unbind
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.loaders.from_numpy import from_numpy
from pinfeed.memory.main_process import set_worker_memory_limit
from pinfeed.runtime import get_num_threads, set_num_threads
from pinfeed.samplers.shuffle import ShuffleSampler
from pinfeed.sources.concat import ConcatArray
from pinfeed.sources.dataset import ArrayDataset, IndexedDataset, Rows
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.shared_list import SharedList

if TYPE_CHECKING:
    from pinfeed.diagnosis.diagnose import diagnose
    from pinfeed.exports.to_numpy.to_numpy import to_numpy
    from pinfeed.exports.to_tensorflow.to_tensorflow import to_tensorflow
    from pinfeed.exports.write_array import write_array
    from pinfeed.samplers.length_buckets import LengthBucketSampler
    from pinfeed.samplers.pack import PackSampler
    from pinfeed.samplers.weighted import WeightedSampler
    from pinfeed.streams.packed_stream import PackedStream
    from pinfeed.streams.stream_dataset import StreamDataset

__all__ = [
    "ArrayDataset",
    "Boxes",
    "Collate",
    "ConcatArray",
    "DeviceLoader",
    "Field",
    "Image",
    "IndexedDataset",
    "InstanceMasks",
    "Jagged",
    "JaggedBatch",
    "Keep",
    "Leaf",
    "LengthBucketSampler",
    "Mask",
    "Pack",
    "PackSampler",
    "PackedStream",
    "Pad",
    "Padded",
    "Patches",
    "Points",
    "RaggedArray",
    "Rows",
    "SharedList",
    "ShuffleSampler",
    "Stack",
    "StreamDataset",
    "WeightedSampler",
    "__version__",
    "augment",
    "diagnose",
    "from_numpy",
    "gather",
    "get_num_threads",
    "normalize",
    "packed_attention_mask",
    "packed_mask_mod",
    "pad",
    "patch_grid",
    "patchify",
    "permute",
    "set_num_threads",
    "set_worker_memory_limit",
    "testing",
    "to_numpy",
    "to_tensorflow",
    "unbind",
    "unpad",
    "write_array",
]

# A training loop needs few of these, so each is imported when it is asked for.
_LATER = {
    "LengthBucketSampler": "samplers.length_buckets",
    "PackSampler": "samplers.pack",
    "PackedStream": "streams.packed_stream",
    "StreamDataset": "streams.stream_dataset",
    "WeightedSampler": "samplers.weighted",
    "diagnose": "diagnosis.diagnose",
    "to_numpy": "exports.to_numpy",
    "to_tensorflow": "exports.to_tensorflow",
    "write_array": "exports.write_array",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'pinfeed' has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(f"pinfeed.{_LATER[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return [*__all__, *globals()]


_load_ops()
