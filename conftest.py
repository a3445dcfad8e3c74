"""Sets how torch's threads wait, and the names that doctests use without imports."""

import os
from typing import Any

# By default torch's threads spin while they wait, which slows down parallel tests. torch reads this
# variable at import, here and in the processes that tests start.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import pytest
import torch

import pinfeed


@pytest.fixture(autouse=True, scope="session")
def names_in_examples(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(np=np, pinfeed=pinfeed, torch=torch)
