"""`python -m bench`: every workload, in the order of the report."""

import importlib
import sys

from bench.command import main
from bench.report import AREAS

if __name__ == "__main__":
    for part in AREAS:
        importlib.import_module(f"bench.{part}")
    sys.exit(main("bench"))
