"""torchvision's v2 transforms, sample by sample and on the whole batch."""

import torch
from torch.utils.data import Dataset, default_collate

from bench.epoch import Epoch
from bench.harness import Way
from bench.image_ways import MEAN, ROUNDING, STD, ImageBatch

_schemas = None


def transforms():
    """Import `torchvision.transforms.v2`, also where its compiled operators don't match torch."""
    global _schemas
    try:
        from torchvision.transforms import v2
    except RuntimeError:
        # A wheel built against another torch can't load its operators, and importing it then
        # fails on their fake kernels. The transforms need none of them, only their schemas.
        _schemas = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            _schemas.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        from torchvision.transforms import v2
    return v2


def _per_sample(dtype: torch.dtype):
    v2 = transforms()
    steps = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    if dtype != torch.float32:
        steps.append(v2.ToDtype(dtype))
    return v2.Compose(steps)


def ways(batch: ImageBatch) -> list[Way]:
    """NHWC to NCHW; there is no `out=`."""

    def per_sample():
        transform = _per_sample(batch.dtype)
        return lambda: default_collate([transform(image) for image in batch.images])

    def on_batch():
        v2 = transforms()
        transform = v2.Compose(
            [
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
                v2.ToDtype(batch.dtype),
            ]
        )
        return lambda: transform(batch.permuted().contiguous())

    rounding = ROUNDING[batch.dtype]
    on_batch_way = Way("torchvision v2 on the batch", on_batch, tolerance=rounding)
    if batch.input != "NHWC":  # a sample in CHW is already what ToImage would make
        return [on_batch_way]
    name = "torchvision v2 per sample + `default_collate`"
    return [Way(name, per_sample, tolerance=rounding), on_batch_way]


def canvas_ways(batch) -> list[Way]:
    """Of `MixedImages`: a transform per image, copied into a canvas of zeros."""

    def build(reuse: bool):
        transform = _per_sample(torch.float32)

        def run():
            canvas = batch.out.zero_() if reuse else torch.zeros(batch.out.shape)
            for image, place in batch.places(canvas):
                place.copy_(transform(image))
            return canvas

        return run

    name = "torchvision v2 per image + copy into"
    return [
        Way(f"{name} a canvas of zeros", lambda: build(reuse=False), tolerance=2e-6),
        Way(f"{name} a zeroed `out`", lambda: build(reuse=True), tolerance=2e-6),
    ]


def epoch_ways(epoch: Epoch) -> list[Way]:
    """The Dataset that tutorials show: one transform per sample, collated by default."""

    class SampleDataset(Dataset):
        def __init__(self):
            self.transform = _per_sample(torch.float32)

        def __len__(self):
            return epoch.count

        def __getitem__(self, index):
            return self.transform(epoch.images[index]), epoch.labels[index]

    def per_sample():
        loader = epoch.loader(SampleDataset())
        return lambda: iter(loader)

    return [Way("DataLoader, torchvision v2 per sample", per_sample, tolerance=2e-6)]
