"""Prints one digest of all functions' results."""

import hashlib

import numpy as np

import pinfeed

digest = hashlib.sha256()
for shape in [(2, 5, 7, 3), (4, 65, 97, 3), (3, 601, 803, 3)]:
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    for _ in range(2):  # a new buffer, then a used one
        digest.update(pinfeed.functional.normalize(images[:, :, ::-1], 0.5, 0.25, dtype=np.float16))
        digest.update(pinfeed.functional.permute(images))
        digest.update(pinfeed.functional.permute(images.astype(np.float64)))
        digest.update(pinfeed.functional.gather(images, [1, 0, -1]))
        digest.update(pinfeed.functional.gather(images[:, 1:], [1, 0, -1]))
        digest.update(pinfeed.Collate(pinfeed.Image(0.5))(list(images)).numpy())
        digest.update(pinfeed.Collate()(pinfeed.ArrayDataset(images).__getitems__([1, 0])).numpy())
        digest.update(pinfeed.functional.pad([*images, images[0, :2]], lengths=False))
print(digest.hexdigest())
