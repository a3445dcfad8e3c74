"""Prints the modules that importing pinfeed loads in addition to torch."""

import sys

import torch  # noqa: F401

before = set(sys.modules)
import pinfeed

print(*set(sys.modules) - before)
for name in pinfeed.__all__:
    getattr(pinfeed, name)
