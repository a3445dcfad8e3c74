"""Crops and flips, in the normalizing pass and on their own."""

from functools import partial

import numpy as np
import torch

import pinfeed
from bench import peers
from bench.data import MEAN, ONE, ROUNDED, STD, normalize_table, smooth_images
from bench.epochs import BATCH, ImageEpoch, once_each
from bench.harness import built, compare, filling, other, ours, reference, workload
from bench.targets import at_least, at_most
from pinfeed import augment

SIZE = (224, 224)
VIEW = augment.Compose([augment.RandomResizedCrop(SIZE), augment.RandomHorizontalFlip()])
PADDING = 4
SHARED = "both CPUs share the host's memory with other machines"
SMALL = "drawing 256 views takes 60 µs, and normalizing such small images 95"


def drawn_crops(photos):
    """Returns top, left, height, width and whether it is flipped, for the crop of each image."""
    size = np.array(photos.shape[2:0:-1])
    corners = np.broadcast_to([[0, 0], size], (len(photos), 2, 2))
    fields = {"image": pinfeed.Image(augment=VIEW), "corners": pinfeed.Points()}
    dataset = pinfeed.ArrayDataset({"image": photos, "corners": corners})
    batch = pinfeed.Collate(fields, seed=0)(dataset.__getitems__(np.arange(len(photos))))
    first, last = batch["corners"].values.double().numpy().reshape(-1, 2, 2).swapaxes(0, 1)
    scale, flipped = np.abs(last - first) / size, last < first
    begin = np.where(flipped, first - SIZE, -first) / scale
    windows = np.concatenate([begin[:, ::-1], np.array(SIZE) / scale[:, ::-1], flipped[:, :1]], 1)
    return windows.round().astype(int).tolist()


@workload(
    at_most(1.0, "to bfloat16", "to float32"),
    at_least(1.9, "to float32", "to float32, 2 threads", why=(1.55, SHARED)),
    at_least(5, "torchvision"),
)
def crops():
    """64 images of 500×375: random crops resized to 224×224, flipped, normalized."""
    photos = smooth_images(64, 375, 500)
    rows = pinfeed.ArrayDataset(photos).__getitems__(np.arange(64))

    def by_pinfeed(**options):
        collate = pinfeed.Collate(pinfeed.Image(MEAN, STD, augment=VIEW, **options), seed=0)
        return lambda: collate(rows)

    windows = drawn_crops(photos)
    collate = pinfeed.Collate(pinfeed.Image(MEAN, STD))

    def each(images, view, flip, finish):
        """Crops image by image, with the crops that pinfeed draws."""

        def one(image, window):
            *window, is_flipped = window
            return flip(view(image, *window)) if is_flipped else view(image, *window)

        return lambda: finish([*map(one, images, windows)])

    def torchvision():
        """torchvision's fastest form: uint8 until the end, in channels_last."""
        finish, v2 = peers.finishing(), peers.v2()
        resize = partial(v2.functional.resized_crop, antialias=True)

        def view(image, *window):
            return resize(torch.from_numpy(image).permute(2, 0, 1), *window, SIZE)

        flip = v2.functional.horizontal_flip
        return each(photos, view, flip, lambda views: torch.stack([*map(finish, views)]))

    def opencv():
        import cv2

        cv2.setNumThreads(torch.get_num_threads())

        def view(image, top, left, height, width):
            return cv2.resize(image[top : top + height, left : left + width], SIZE)

        return each(photos, view, lambda cut: cut[:, ::-1], collate)

    def pillow():
        from PIL import Image, ImageOps

        def view(image, top, left, height, width):
            box = (left, top, left + width, top + height)
            return image.resize(SIZE, Image.Resampling.BILINEAR, box)

        return each([*map(Image.fromarray, photos)], view, ImageOps.mirror, collate)

    def interpolated(image, top, left, height, width):
        window = torch.from_numpy(image[None, top : top + height, left : left + width])
        planes = window.permute(peers.ORDER)
        return torch.nn.functional.interpolate(planes, SIZE, mode="bilinear", antialias=True)

    cut = each(photos, interpolated, lambda cut: cut.flip(3), torch.cat)()
    expected = pinfeed.functional.normalize(cut, MEAN, STD, input="NCHW")
    in_floats = by_pinfeed(resize_dtype=torch.float32)
    return compare(
        filling(torch.empty(64, 3, *SIZE)),
        ours("to float32", by_pinfeed()),
        ours("to float32, 2 threads", by_pinfeed(), threads=2),
        ours("to bfloat16", by_pinfeed(dtype=torch.bfloat16), expected=expected.bfloat16()),
        ours("without rounding to bytes", in_floats, tolerance=1.1 * ONE),
        other("torchvision v2, channels_last", built(torchvision), tolerance=ROUNDED),
        other("`cv2.resize`, not antialiased, + **pinfeed**", built(opencv), tolerance=40 * ONE),
        other("Pillow + **pinfeed**", built(pillow), tolerance=2 * ONE),
        expected=expected,
    )


@workload(
    at_most(1.25, why=(1.58, SMALL)),
    at_least(60, "DataLoader, torchvision"),
)
def epoch_augmented():
    """An epoch over 10,000 images of 32×32, shuffled, padded by 4, cropped, flipped, normalized."""
    epoch, size = ImageEpoch(10_000), 32
    steps = [augment.RandomCrop(size, padding=PADDING), augment.RandomHorizontalFlip()]
    view, table = augment.Compose(steps), normalize_table()

    def error(batches):
        """Returns 0 if the first image of each batch is one of its possible crops, flipped or not."""
        seen, worst = [], 0.0
        for images, labels in batches:
            seen.append(labels.clone())
            pads = (PADDING, PADDING), (PADDING, PADDING), (0, 0)
            padded = torch.from_numpy(np.pad(epoch.images[labels[0]], pads)).int()
            whole = table[padded, torch.arange(3)].permute(2, 0, 1)
            windows = whole.unfold(1, size, 1).unfold(2, size, 1).flatten(1, 2).transpose(0, 1)
            windows = torch.cat([windows, windows.flip(3)])
            worst = max(worst, float((images[0] - windows).abs().amax((1, 2, 3)).min()))
        return worst + once_each(seen, epoch.labels)

    def by_numba():
        import numba

        values, random = table.numpy().T.copy(), np.random  # numba compiles the old functions only
        floats = np.empty((BATCH, size, size, 3), np.float32)

        @numba.njit(boundscheck=False)
        def make(images, indices, values, out):
            for sample in range(len(indices)):
                top, left = random.randint(-PADDING, PADDING + 1, 2)
                flipped = random.rand() < 0.5
                for row in range(size):
                    for column in range(size):
                        y, x = row + top, (size - 1 - column if flipped else column) + left
                        inside = 0 <= y < size and 0 <= x < size
                        for channel in range(3):
                            value = images[indices[sample], y, x, channel] if inside else 0
                            out[sample, row, column, channel] = values[channel, value]

        def batches():
            for indices in torch.randperm(len(epoch.labels)).split(BATCH):
                out = floats[: len(indices)]
                make(epoch.images, indices.numpy(), values, out)
                yield torch.from_numpy(out).permute(peers.ORDER), epoch.tensors[1][indices]

        return batches

    def torchvision():
        v2 = peers.v2()
        before = [v2.RandomCrop(size, padding=PADDING), v2.RandomHorizontalFlip()]
        return epoch.each(peers.to_normalized(*before))

    return compare(
        reference("**pinfeed** without augmentation", epoch.pinfeed()),
        ours("`Image(augment=)`", epoch.pinfeed(view)),
        other("numba, all in one loop, no DataLoader (NHWC out)", built(by_numba)),
        other("DataLoader, torchvision v2 per sample", built(torchvision)),
        expected=error,
        tolerance=4e-6,
    )
