"""Fast PyTorch batches from NumPy arrays, memory-mapped files and Arrow tables.

Keep your DataLoader: replace the dataset and the ``collate_fn``. Batches are normalized, padded or
packed in one native pass, into reused buffers.

    >>> import numpy as np, pinfeed, torch
    >>> images = np.zeros((8, 32, 32, 3), np.uint8)
    >>> dataset = pinfeed.ArrayDataset({"image": images, "label": np.arange(8)})
    >>> collate = pinfeed.Collate({"image": pinfeed.Image(mean=0.5, std=0.25)})
    >>> loader = torch.utils.data.DataLoader(dataset, batch_size=4, collate_fn=collate)
    >>> next(iter(loader))["image"].shape
    torch.Size([4, 3, 32, 32])
"""

from typing import TYPE_CHECKING

from pinfeed import augment, functional
from pinfeed._core import version as __version__
from pinfeed.collation.collate import Collate
from pinfeed.fields.field import Field, FieldContext
from pinfeed.fields.image import Image
from pinfeed.fields.jagged import Jagged
from pinfeed.fields.mask import Mask
from pinfeed.fields.pack import Pack
from pinfeed.fields.pad import Pad
from pinfeed.fields.patches import Patches
from pinfeed.fields.stack import Keep, Stack
from pinfeed.fields.targets import Boxes, InstanceMasks, Points
from pinfeed.functional.sequences import JaggedBatch, Padded
from pinfeed.functional.torch_ops import load as _load_ops
from pinfeed.imports import lazy_names
from pinfeed.memory.main_process import set_worker_memory_limit
from pinfeed.runtime import get_num_threads, set_num_threads
from pinfeed.sources.concat import ConcatArray
from pinfeed.sources.dataset import ArrayDataset, IndexedDataset, Rows
from pinfeed.sources.ragged import RaggedArray
from pinfeed.sources.shared_list import SharedList

if TYPE_CHECKING:
    from pinfeed import packing, samplers, testing
    from pinfeed.diagnosis.configuration import show_config
    from pinfeed.diagnosis.diagnose import diagnose
    from pinfeed.exports.to_numpy.to_numpy import to_numpy
    from pinfeed.exports.to_tensorflow.to_tensorflow import to_tensorflow
    from pinfeed.exports.write_array import write_array
    from pinfeed.loaders.device_loader import DeviceLoader
    from pinfeed.loaders.from_numpy import from_numpy
    from pinfeed.streams.stream_dataset import StreamDataset

__all__ = [
    "ArrayDataset",
    "Boxes",
    "Collate",
    "ConcatArray",
    "DeviceLoader",
    "Field",
    "FieldContext",
    "Image",
    "IndexedDataset",
    "InstanceMasks",
    "Jagged",
    "JaggedBatch",
    "Keep",
    "Mask",
    "Pack",
    "Pad",
    "Padded",
    "Patches",
    "Points",
    "RaggedArray",
    "Rows",
    "SharedList",
    "Stack",
    "StreamDataset",
    "__version__",
    "augment",
    "diagnose",
    "from_numpy",
    "functional",
    "get_num_threads",
    "packing",
    "samplers",
    "set_num_threads",
    "set_worker_memory_limit",
    "show_config",
    "testing",
    "to_numpy",
    "to_tensorflow",
    "write_array",
]

_LATER = {
    "DeviceLoader": "pinfeed.loaders.device_loader",
    "StreamDataset": "pinfeed.streams.stream_dataset",
    "diagnose": "pinfeed.diagnosis.diagnose",
    "from_numpy": "pinfeed.loaders.from_numpy",
    "packing": "",
    "samplers": "",
    "show_config": "pinfeed.diagnosis.configuration",
    "testing": "",
    "to_numpy": "pinfeed.exports.to_numpy.to_numpy",
    "to_tensorflow": "pinfeed.exports.to_tensorflow.to_tensorflow",
    "write_array": "pinfeed.exports.write_array",
}
_SUBMODULES = ("augment", "functional", "packing", "samplers", "testing")
__getattr__ = lazy_names(__name__, _LATER, _SUBMODULES)


def __dir__() -> list[str]:
    return [*__all__, *globals()]


_load_ops()
