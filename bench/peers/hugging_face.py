"""Hugging Face's datasets: a table of Arrow that is memory-mapped, and formats to read it in."""

from typing import Any

import numpy as np


def stored(columns: dict[str, np.ndarray], folder: str) -> Any:
    """Write columns as their library does, and open them again."""
    import datasets

    datasets.disable_progress_bars()
    features = datasets.Features({name: _feature(array) for name, array in columns.items()})
    rows = {name: list(array) for name, array in columns.items()}
    datasets.Dataset.from_dict(rows, features).save_to_disk(folder)
    return datasets.load_from_disk(folder)


def _feature(array: np.ndarray) -> Any:
    import datasets

    value = datasets.Value(str(array.dtype))
    if array.ndim == 1:
        return value
    if array.ndim == 2:
        return datasets.Sequence(value, length=array.shape[1])
    kind = {3: datasets.Array2D, 4: datasets.Array3D}[array.ndim]
    return kind(array.shape[1:], str(array.dtype))
