"""Patches: overlapping squares cut out of photographs, labelled by where they were cut.

Patches that overlap show the same pixels, so a split at random would test on what was trained on.
Instead a band of rows is held out of every photograph: held-out patches lie inside it, training
patches outside it, and the two share no pixel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pinfeed.demo.extra import import_demo_extra

PATCH_SIZE = 64
COLUMNS = 4
#: Rows of each photograph that no training patch touches.
HELD_OUT_ROWS = range(180, 256)


@dataclass(frozen=True)
class PatchFiles:
    """Where one set of patches lies: uint8 images (N, 64, 64, 3) and int64 labels (N,), as .npy."""

    images: Path
    labels: Path

    @classmethod
    def in_folder(cls, folder: Path) -> "PatchFiles":
        """Names the two files of a folder, which need not exist yet."""
        return cls(images=folder / "patches.npy", labels=folder / "labels.npy")


def load_photos() -> list[NDArray[np.uint8]]:
    """Loads the photographs that scikit-learn ships, each uint8 (427, 640, 3)."""
    return list(import_demo_extra("sklearn.datasets").load_sample_images().images)


def training_tops(height: int, size: int = PATCH_SIZE, band: range = HELD_OUT_ROWS) -> list[int]:
    """Lists the top rows of the patches that lie outside the held-out band.

    >>> training_tops(height=12, size=3, band=range(4, 8))
    [0, 1, 8, 9]
    """
    tops = range(height - size + 1)
    return [top for top in tops if top + size <= band.start or top >= band.stop]


def held_out_tops(height: int, size: int = PATCH_SIZE, band: range = HELD_OUT_ROWS) -> list[int]:
    """Lists the top rows of the patches that lie inside the held-out band.

    >>> held_out_tops(height=12, size=3, band=range(4, 8))
    [4, 5]
    """
    tops = range(height - size + 1)
    return [top for top in tops if band.start <= top and top + size <= band.stop]


def sample_positions(
    photos: Sequence[NDArray[np.uint8]],
    tops: Sequence[int],
    count: int,
    rng: np.random.Generator,
    size: int = PATCH_SIZE,
) -> NDArray[np.int64]:
    """Draws different places to cut at, from every place that ``tops`` allows.

    Args:
        photos: Photographs (H, W, 3), all of one shape.
        tops: Top rows to choose from.
        count: Number of places.
        rng: Source of randomness.
        size: Side of a patch.

    Returns:
        int64 (count, 3): photograph, top row and left column of each patch, sorted.

    Raises:
        ValueError: There are fewer than ``count`` places.
    """
    lefts = photos[0].shape[1] - size + 1
    places = len(photos) * len(tops) * lefts
    if count > places:
        raise ValueError(f"count must be at most {places}, the number of places, got {count}")
    chosen = np.sort(rng.choice(places, size=count, replace=False))
    photo, row, left = np.unravel_index(chosen, (len(photos), len(tops), lefts))
    return np.stack([photo, np.asarray(tops)[row], left], axis=1).astype(np.int64)


def labels_of(
    positions: NDArray[np.int64], width: int, size: int = PATCH_SIZE, columns: int = COLUMNS
) -> NDArray[np.int64]:
    """Numbers the column of the photograph that each patch has its centre in.

    Returns:
        int64 (N,): ``photo * columns + column``.
    """
    photo, _, left = positions.T
    column = (left + size // 2) * columns // width
    labels: NDArray[np.int64] = photo * columns + column
    return labels


def save_patches(
    photos: Sequence[NDArray[np.uint8]],
    positions: NDArray[np.int64],
    files: PatchFiles,
    size: int = PATCH_SIZE,
) -> None:
    """Cuts the patches and writes them and their labels; the patches never all lie in memory."""
    files.images.parent.mkdir(parents=True, exist_ok=True)
    images = np.lib.format.open_memmap(
        files.images, mode="w+", dtype=np.uint8, shape=(len(positions), size, size, 3)
    )
    for image, (photo, top, left) in zip(images, positions.tolist(), strict=True):
        image[:] = photos[photo][top : top + size, left : left + size]
    images.flush()
    np.save(files.labels, labels_of(positions, width=photos[0].shape[1], size=size))
