"""`python -m bench`: every workload, in this order."""

import importlib
import sys

from bench.command import main

PARTS = (
    "images",
    "epochs",
    "augmentation",
    "migration",
    "photographs",
    "detection",
    "patches",
    "sequences",
    "batches",
    "files",
    "workers",
    "threads",
    "conversions",
    "streams",
    "fresh",
)

if __name__ == "__main__":
    for part in PARTS:
        importlib.import_module(f"bench.{part}")
    sys.exit(main("bench"))
