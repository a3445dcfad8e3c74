"""Photographs as PIL images, as pixels of 4 bytes, and as a folder of JPEGs."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

import pinfeed
from bench import peers
from bench.data import MEAN, ONE, STD, normalized, random_bytes, smooth_images
from bench.harness import Job, at_least, at_most, difference, other, ours, reference, workload
from pinfeed import augment

COUNT, HEIGHT, WIDTH, SIZE = 32, 375, 500, (224, 224)
CROP = augment.CenterCrop(SIZE)
VIEW = [augment.CenterCrop((300, 400)), augment.Resize(SIZE), augment.RandomHorizontalFlip(p=1)]
# The accepted factor of PIL images for each job. Pixels of 4 bytes in one ndarray per image take 1.31, 1.31,
# 1.52 and 1.83 times as long as the arrays, which are views of one block with huge pages; PIL images 1.34,
# 1.41, 1.65 and 1.85. So lending costs little, and the memory that is read most of it.
JOBS = {"resized crop": 1.48, "crop": 1.55, "bytes, HWC": 1.8, "bfloat16, channels_last": 2.0}
SCATTERED = "a third more bytes than RGB, in pages of 4 KB"


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
    return Job(*alternatives)


class Folder:
    """The JPEGs of a folder, like torchvision's ImageFolder."""

    def __init__(self, paths, transform=None):
        self.paths, self.transform = paths, transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        import PIL.Image

        with PIL.Image.open(self.paths[index]) as file:
            image = file.convert("RGB")
        return (image if self.transform is None else self.transform(image)), index


@workload(at_most(1.11, why=(1.38, "not known")), at_least(1.2, "torchvision"))
def folder():
    """A folder of 64 JPEGs of 500×375, decoded by Pillow, cropped, resized, flipped, normalized."""
    import PIL.Image

    peers.v2()
    from torchvision import transforms

    directory = tempfile.TemporaryDirectory(prefix="pinfeed-bench-")
    paths = [Path(directory.name, f"{i}.jpg") for i in range(2 * COUNT)]
    images = smooth_images(2 * COUNT, HEIGHT, WIDTH) // 4 * 3
    images += random_bytes(*images.shape) // 4  # noise, so that a file has 90 KB, as in ImageNet
    for path, image in zip(paths, images, strict=True):
        PIL.Image.fromarray(image).save(path, quality=90)
    plain = Folder(paths)
    plain.directory = directory  # removed with the last alternative
    decoded = np.stack([np.asarray(plain[i][0]) for i in range(len(paths))])
    expected = normalized(seen(decoded))

    def check(batches):
        pixels, labels = map(torch.cat, zip(*batches, strict=True))
        return difference(pixels, expected) + difference(labels, torch.arange(len(paths)))

    steps = [transforms.CenterCrop((300, 400)), transforms.Resize(SIZE)]
    steps += [transforms.RandomHorizontalFlip(1), transforms.ToTensor()]
    steps += [transforms.Normalize(MEAN, STD)]
    collate = pinfeed.Collate((pinfeed.Image(MEAN, STD, augment=VIEW), None))
    epoch = lambda *arguments, **options: partial(iter, DataLoader(*arguments, COUNT, **options))
    return Job(
        reference("decoding alone", lambda: (plain[i] for i in range(len(paths))), units=2),
        ours("decoding, `Collate(Image)`", epoch(plain, collate_fn=collate), units=2),
        other("torchvision", epoch(Folder(paths, transforms.Compose(steps))), units=2),
        expected=check,
        tolerance=2.1 * ONE,
    )
