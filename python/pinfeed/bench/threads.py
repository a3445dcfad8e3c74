"""The same number of threads for pinfeed as for torch."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

import pinfeed


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Give torch and pinfeed `count` threads each, and what they had before at the end.

    The adapters of other libraries ask torch for the number when they are built.
    """
    before = torch.get_num_threads(), pinfeed.get_num_threads()
    torch.set_num_threads(count)
    pinfeed.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        pinfeed.set_num_threads(before[1])
