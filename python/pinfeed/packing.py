"""Documents in rows: what a plan says about the documents of one batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Packing(NamedTuple):
    """Where the documents of a batch lie in its rows.

    Arrays are int64 and have one entry for each document.

    Attributes:
        documents: The indices in the dataset.
        totals: How long each document is.
        starts: Its first token that is taken.
        lengths: How many tokens are taken.
        places: Where it begins, counted in tokens over all rows end to end: row × seq_length + column.
        rows: The number of rows.
        seq_length: Their length.
        multiple_of: What the room of a document is a multiple of.
        max_documents: The most documents in a row, if that is limited.
    """

    documents: npt.NDArray[np.int64]
    totals: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    rows: int
    seq_length: int
    multiple_of: int
    max_documents: int | None
