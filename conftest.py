"""How the threads of torch wait, and names that every example in a docstring may use without imports."""

import os
from typing import Any

# torch's threads spin while they wait for each other, and take the CPUs from the tests beside them.
# It reads this when it is imported, here and in the processes that tests start.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import pytest
import torch

import pinfeed


@pytest.fixture(autouse=True, scope="session")
def names_in_examples(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(np=np, pinfeed=pinfeed, torch=torch)
