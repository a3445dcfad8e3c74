"""pinfeed: the last metre between NumPy arrays and a PyTorch training step.

Drop-in dataset and collate classes that turn selected samples into model-ready batches in one
native pass over memory, in buffers that are allocated once.

    >>> import numpy as np, pinfeed, torch
    >>> images = np.zeros((8, 32, 32, 3), np.uint8)
    >>> dataset = pinfeed.ArrayDataset({"image": images, "label": np.arange(8)})
    >>> collate = pinfeed.Collate({"image": pinfeed.Image(mean=0.5, std=0.25)})
    >>> loader = torch.utils.data.DataLoader(dataset, batch_size=4, collate_fn=collate)
    >>> next(iter(loader))["image"].shape
    torch.Size([4, 3, 32, 32])
"""

from pinfeed._core import version as __version__
from pinfeed.arena.stats import arena_stats, set_arena_limit
from pinfeed.collate import Collate
from pinfeed.concat_array import ConcatArray
from pinfeed.dataset import ArrayDataset, Rows
from pinfeed.device_loader import DeviceLoader
from pinfeed.draining import to_numpy
from pinfeed.fields import Field, Image, Jagged, Keep, Pad, Stack
from pinfeed.from_numpy import from_numpy
from pinfeed.functions import gather, normalize, pad, permute, unpad
from pinfeed.jagged import JaggedBatch
from pinfeed.length_bucket_sampler import LengthBucketSampler
from pinfeed.npz_file import open_npz
from pinfeed.ops import load as _load_ops
from pinfeed.padded import Padded
from pinfeed.ragged_array import RaggedArray
from pinfeed.runtime import build_config, get_num_threads, set_num_threads, use_isa
from pinfeed.stream_dataset import StreamDataset
from pinfeed.tensorflow_data import to_tensorflow
from pinfeed.write_array import write_array

__all__ = [
    "ArrayDataset",
    "Collate",
    "ConcatArray",
    "DeviceLoader",
    "Field",
    "Image",
    "Jagged",
    "JaggedBatch",
    "Keep",
    "LengthBucketSampler",
    "Pad",
    "Padded",
    "RaggedArray",
    "Rows",
    "Stack",
    "StreamDataset",
    "__version__",
    "arena_stats",
    "build_config",
    "from_numpy",
    "gather",
    "get_num_threads",
    "normalize",
    "open_npz",
    "pad",
    "permute",
    "set_arena_limit",
    "set_num_threads",
    "to_numpy",
    "to_tensorflow",
    "unpad",
    "use_isa",
    "write_array",
]

_load_ops()
