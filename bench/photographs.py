"""Photographs as PIL images: before and after the lines of docs/migrate.md, and beside other forms."""

import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import default_collate

import pinfeed
from bench import data, peers
from bench.data import MEAN, ONE, STD, difference, normalized, random_bytes, smooth_images
from bench.harness import compare, filling, other, ours, reference, workload
from bench.targets import at_least, at_most
from pinfeed import augment

COUNT, HEIGHT, WIDTH, SIZE = 32, 375, 500, (224, 224)
CROP = augment.CenterCrop(SIZE)
VIEW = [augment.CenterCrop((300, 400)), augment.Resize(SIZE), augment.RandomHorizontalFlip(p=1)]
# The accepted factor of PIL images for each job. Pixels of 4 bytes in one ndarray per image take 1.31, 1.31,
# 1.52 and 1.83 times as long as the arrays, which are views of one block with huge pages; PIL images 1.34,
# 1.41, 1.65 and 1.85. So lending costs little, and the memory that is read most of it.
JOBS = {"resized crop": 1.48, "crop": 1.55, "bytes, HWC": 1.8, "bfloat16, channels_last": 2.0}
LEVELS = 2.02  # levels of difference, because Pillow and torch round differently
SCATTERED = "a third more bytes than RGB, in pages of 4 KB"


def of_timm():
    """Returns timm's transform for evaluation: Resize(256), CenterCrop(224)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its imports of torchvision
        from timm.data import create_transform
    return create_transform(224)


def of_torchvision(*before):
    """Returns the usual transform for evaluation, after others."""
    from torchvision.transforms import Compose, Normalize, ToTensor

    return Compose([*before, ToTensor(), Normalize(MEAN, STD)])


@workload(
    at_least(4, "torchvision, as it was", "torchvision, two lines"),
    at_least(4, "timm, as it was", "timm, two lines"),
    at_least(3, "transformers, as it was", "transformers, two lines"),
)
def migrate():
    """A batch of 32 PIL images of 500×375, resized, cropped to 224×224, normalized, by DataLoader."""
    import PIL.Image
    import transformers

    peers.v2()
    from torchvision import transforms

    photos = [PIL.Image.fromarray(one) for one in smooth_images(2 * COUNT, HEIGHT, WIDTH)]
    processor = transformers.ViTImageProcessor()

    def shown(size, window):
        """Returns each image, resized and cropped by Pillow, as bytes."""
        resized = (photo.resize(size, PIL.Image.Resampling.BILINEAR) for photo in photos)
        return np.stack([np.asarray(photo.crop(window)) for photo in resized])

    def process(samples):
        images, labels = zip(*samples, strict=True)
        values = processor(list(images), return_tensors="pt")["pixel_values"]
        return values, torch.tensor(labels)

    def before_and_after(library, transform, collate, rest, image, expected, level=ONE):
        whole = expected, torch.arange(len(photos))
        about = {"job": library, "units": 2, "tolerance": LEVELS * level}
        about["expected"] = lambda batches: difference(data.joined(batches), whole)
        before = data.epochs(data.Labeled(photos, transform), COUNT, collate)
        collate = pinfeed.Collate((image, None))
        after = data.epochs(data.Labeled(photos, rest), COUNT, collate)
        yield other(f"{library}, as it was", before, **about)
        yield ours(f"{library}, two lines", after, **about)

    def by_transform(library, transform):
        converted = pinfeed.Image.from_torchvision(transform)
        return before_and_after(library, transform, default_collate, *converted, middle)

    image = pinfeed.Image.from_processor(processor)
    middle = normalized(shown((341, 256), (58, 16, 282, 240)))
    squeezed = torch.from_numpy(shown(SIZE, (0, 0, *SIZE))).permute(peers.ORDER)
    squeezed = squeezed.contiguous().float() / 127.5 - 1
    steps = transforms.Resize(256), transforms.CenterCrop(224)
    return [
        filling(torch.empty(COUNT, 3, *SIZE)),
        *by_transform("torchvision", of_torchvision(*steps)),
        *by_transform("timm", of_timm()),
        *before_and_after("transformers", None, process, None, image, squeezed, 1 / 127.5),
    ]


def cropped(images, height, width):
    """Returns the middle of images (N, H, W, 3)."""
    top, left = (round((side - size) / 2) for side, size in ((HEIGHT, height), (WIDTH, width)))
    return images[:, top : top + height, left : left + width]


def seen(images):
    """Returns the view of images (N, H, W, 3) as bytes: by torch, without pinfeed."""
    planes = torch.from_numpy(cropped(images, 300, 400)).permute(peers.ORDER)
    resized = torch.nn.functional.interpolate(planes, SIZE, mode="bilinear", antialias=True)
    return resized.flip(3).permute(0, 2, 3, 1).contiguous().numpy()


@workload(
    *(
        at_most(1.2, f"{job}: PIL", f"{job}: arrays", why=(accepted, SCATTERED))
        for job, accepted in JOBS.items()
    ),
    *(
        at_most(1.3, f"{job}: RGBA", f"{job}: arrays", why=(1.54, "1.3 in another run"))
        for job in JOBS
    ),
)
def pil():
    """32 images of 500×375: arrays, PIL images, and the first 3 of 4 bytes of a pixel."""
    import PIL.Image

    images = smooth_images(COUNT, HEIGHT, WIDTH)
    wide = np.concatenate([images, np.full_like(images[..., :1], 255)], axis=3)
    kinds = {
        "arrays": [*images],
        "PIL images": [*map(PIL.Image.fromarray, images)],
        "RGBA[..., :3]": [one[..., :3] for one in wide],
    }
    half = {"dtype": torch.bfloat16, "channels_last": True}
    cases = (
        (pinfeed.Image(MEAN, STD, augment=VIEW), normalized(seen(images))),
        (pinfeed.Image(MEAN, STD, augment=CROP), normalized(cropped(images, *SIZE))),
        (pinfeed.Image(dtype=torch.uint8, output="HWC"), torch.from_numpy(images)),
        (pinfeed.Image(MEAN, STD, **half), normalized(images, torch.bfloat16)),
    )
    alternatives = []
    for job, (field, expected) in zip(JOBS, cases, strict=True):
        out, collate = torch.empty_like(expected), pinfeed.Collate(field)
        alternatives.append(reference(f"{job}: fill the output", partial(out.fill_, 1), job=job))
        for kind, samples in kinds.items():
            name, run = f"{job}: {kind}", partial(collate, samples)
            alternatives.append(ours(name, run, job=job, expected=expected))
    return alternatives


def decode(path):
    """Returns a JPEG as torchvision's ImageFolder does."""
    import PIL.Image

    with PIL.Image.open(path) as file:
        return file.convert("RGB")


@workload(at_most(1.11, why=(1.38, "not known")), at_least(1.2, "torchvision"))
def folder():
    """A folder of 64 JPEGs of 500×375, decoded by Pillow, cropped, resized, flipped, normalized."""
    import PIL.Image

    peers.v2()
    from torchvision import transforms

    directory = tempfile.TemporaryDirectory(prefix="pinfeed-bench-")
    paths = [Path(directory.name, f"{i}.jpg") for i in range(2 * COUNT)]
    images = smooth_images(len(paths), HEIGHT, WIDTH) // 4 * 3
    images += random_bytes(*images.shape) // 4  # noise, so that a file has 90 KB, as in ImageNet
    for path, image in zip(paths, images, strict=True):
        PIL.Image.fromarray(image).save(path, quality=90)
    plain = data.Labeled(paths, decode)
    plain.directory = directory  # removed with the last alternative
    decoded = np.stack([np.asarray(plain[i][0]) for i in range(len(paths))])
    expected = normalized(seen(decoded)), torch.arange(len(paths))
    steps = [decode, transforms.CenterCrop((300, 400)), transforms.Resize(SIZE)]
    theirs = data.Labeled(paths, of_torchvision(*steps, transforms.RandomHorizontalFlip(1)))
    collate = pinfeed.Collate((pinfeed.Image(MEAN, STD, augment=VIEW), None))
    return compare(
        reference("decoding alone", lambda: (plain[i] for i in range(len(paths))), units=2),
        ours("decoding, `Collate(Image)`", data.epochs(plain, COUNT, collate), units=2),
        other("torchvision", data.epochs(theirs, COUNT), units=2),
        expected=lambda batches: difference(data.joined(batches), expected),
        tolerance=2.1 * ONE,
    )
