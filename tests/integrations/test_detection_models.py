"""Batches of images and their objects for training torchvision's detectors."""

import numpy as np
import pytest
import torch
import torchvision
from torchvision.models import detection
from torchvision.ops import box_iou

import pinfeed
from pinfeed import augment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]


def nms(boxes, scores, iou_threshold):
    """Returns the boxes, best first, that overlap no better box too much."""
    order, chosen = scores.argsort(descending=True), []
    while len(order):
        best, order = order[0], order[1:]
        chosen.append(best)
        order = order[box_iou(boxes[best : best + 1], boxes[order])[0] <= iou_threshold]
    return torch.stack(chosen) if chosen else order


@pytest.fixture
def operators(monkeypatch):
    """Replaces torchvision's operator nms if it can't be loaded with this torch."""
    if torchvision.extension._has_ops():
        yield
        return
    monkeypatch.setattr("torchvision.ops.boxes._assert_has_ops", lambda: None)
    library = torch.library.Library("torchvision", "IMPL")
    library.impl("nms", nms, "CPU")
    with torch.compiler.set_stance("force_eager"):  # torchvision compiles roi_align of plain torch
        yield
    library._destroy()


@pytest.mark.parametrize(
    "make", [detection.fasterrcnn_resnet50_fpn, detection.maskrcnn_resnet50_fpn]
)
def test_losses_of_torchvision(make, operators):
    rng = np.random.default_rng(0)
    samples = []
    for height, width, boxes in [
        (90, 120, [[10, 5, 60, 70], [40, 20, 110, 85]]),
        (120, 80, []),
        (70, 100, [[5, 5, 50, 60]]),
    ]:
        masks = np.zeros((len(boxes), height, width), np.uint8)
        for mask, (x1, y1, x2, y2) in zip(masks, boxes, strict=True):
            mask[y1:y2, x1:x2] = 1
        image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        labels = np.ones(len(boxes), np.int64)
        samples.append({"image": image, "boxes": boxes, "labels": labels, "masks": masks})
    view = augment.Compose(
        [augment.RandomShortestSize((64, 80), 120), augment.RandomHorizontalFlip()]
    )
    fields = {
        "image": pinfeed.Image(augment=view, pad_value=0, multiple_of=32, sizes="sizes"),
        "boxes": pinfeed.Boxes(),
        "masks": pinfeed.InstanceMasks(),
    }
    batch = pinfeed.Collate(fields, seed=0)(pinfeed.IndexedDataset(samples).__getitems__([0, 1, 2]))
    torch.manual_seed(0)
    model = make(
        weights=None,
        weights_backbone=None,
        num_classes=3,
        min_size=64,
        max_size=128,
        rpn_pre_nms_top_n_train=50,
        rpn_post_nms_top_n_train=20,
        box_batch_size_per_image=16,
    )
    targets = pinfeed.functional.unbind({key: batch[key] for key in ("boxes", "labels", "masks")})
    losses = model([*batch["image"]], targets)
    names = {"loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"}
    assert losses.keys() - {"loss_mask"} == names
    assert all(loss.isfinite() for loss in losses.values())
    sum(losses.values()).backward()
    images = pinfeed.functional.unpad(batch["image"], batch["sizes"], axes=(1, 2))
    cut = [
        target | {"masks": target["masks"][:, :height, :width]}
        for target, (height, width) in zip(targets, batch["sizes"].tolist(), strict=True)
    ]
    assert all(loss.isfinite() for loss in model(images, cut).values())
