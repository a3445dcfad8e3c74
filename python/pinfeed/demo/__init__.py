"""The demo: one small CNN trained twice on real photographs, fed once by stock torch, once by pinfeed.

Two photographs are cut into overlapping patches, and a CNN learns which photograph and which of its
columns a patch comes from. Both runs start from the same weights and see the same batches in the
same order, so that what differs between them is only the time spent waiting for data.

    python -m pinfeed demo --out demo-out
"""

from pinfeed.demo.command import main

__all__ = ["main"]
