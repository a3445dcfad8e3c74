"""Trains a small DETR on COCO-style images and annotations."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import PIL.Image
import pinfeed
import torch
from pinfeed import augment
from torch.utils.data import DataLoader
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class CocoDetection(torch.utils.data.Dataset):
    """Images and boxes: x, y, width and height, in pixels."""

    def __init__(self, folder, annotation_file):
        annotations = json.loads(annotation_file.read_text())
        self.folder, self.images = folder, annotations["images"]
        # COCO's category ids have gaps; models need 0, 1, 2, ...
        numbers = sorted(category["id"] for category in annotations["categories"])
        self.label_of = {number: label for label, number in enumerate(numbers)}
        self.objects = defaultdict(list)
        for annotation in annotations["annotations"]:
            if not annotation["iscrowd"]:
                self.objects[annotation["image_id"]].append(annotation)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        objects = self.objects[image["id"]]
        with PIL.Image.open(self.folder / image["file_name"]) as photo:
            return {
                "image": photo.convert("RGB"),
                "boxes": [obj["bbox"] for obj in objects],
                "labels": [self.label_of[obj["category_id"]] for obj in objects],
            }


def new_loader(folder, batch_size):
    """Returns a loader with batches on the GPU if there is one."""
    transforms = [
        # for COCO: range(480, 801, 32), max_size=1333
        augment.RandomShortestSize((96, 128, 160), max_size=256),
        augment.RandomHorizontalFlip(),
    ]
    image = pinfeed.Image(
        MEAN, STD, augment=transforms, pad_value=0, mask="pixel_mask"
    )
    boxes = pinfeed.Boxes(
        "pixel_values",
        format="xywh",
        output="cxcywh",  # as DETR expects, in fractions of the padded image
        normalized=True,
        labels="class_labels",
    )
    fields = {
        "pixel_values": image.from_key("image"),
        "boxes": boxes,
        "class_labels": pinfeed.Jagged(torch.int64).from_key("labels"),
    }
    photos = CocoDetection(folder, folder / "instances.json")
    # IndexedDataset adds sample indices, from which Collate seeds augmentation.
    dataset = pinfeed.IndexedDataset(photos)
    sampler = pinfeed.samplers.ShuffleSampler(dataset, batch_size, seed=0)
    loader = DataLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=pinfeed.Collate(fields, seed=0),
        num_workers=2,  # about one per CPU
        persistent_workers=True,
    )
    return pinfeed.DeviceLoader(loader)


def main():
    draw_some_images(Path("coco"), 16)
    loader = new_loader(Path("coco"), 4)
    torch.manual_seed(0)
    device = torch.accelerator.current_accelerator(True) or torch.device("cpu")
    # for COCO: DetrForObjectDetection.from_pretrained(...)
    model = small_detr(classes=2).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for batch in loader:
            # A list of dicts, one per image, without copies.
            targets = pinfeed.functional.unbind(
                {"boxes": batch["boxes"], "class_labels": batch["class_labels"]}
            )
            output = model(
                batch["pixel_values"], batch["pixel_mask"], labels=targets
            )
            loss = output.loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}: loss {loss:.2f}")


def small_detr(classes):
    """Returns a DETR with random weights, small enough for this example."""
    backbone = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8, 8, 8],
        depths=[1, 1, 1, 1],
        out_features=["stage4"],
    )
    config = DetrConfig(
        backbone_config=backbone,
        backbone=None,
        use_timm_backbone=False,
        num_labels=classes,
        num_queries=5,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
    )
    return DetrForObjectDetection(config)


def draw_some_images(folder, count):
    """Writes a stand-in for COCO: images with bright boxes, instances.json."""
    rng = np.random.default_rng(0)
    images, annotations = [], []
    folder.mkdir(exist_ok=True)
    for i in range(count):
        height, width = (int(n) for n in rng.integers(100, 200, 2))
        pixels = rng.integers(0, 80, (height, width, 3), dtype=np.uint8)
        x, y, w, h = (int(n) for n in rng.integers(20, 50, 4))
        pixels[y : y + h, x : x + w] += 150
        name = f"{i:06}.jpg"
        PIL.Image.fromarray(pixels).save(folder / name)
        images.append(
            {"id": i, "file_name": name, "height": height, "width": width}
        )
        annotations.append(
            {
                "id": i,
                "image_id": i,
                "category_id": 18,
                "bbox": [x, y, w, h],
                "area": w * h,
                "iscrowd": 0,
            }
        )
    contents = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}],
    }
    (folder / "instances.json").write_text(json.dumps(contents))


if __name__ == "__main__":
    main()
