"""The names that every example in a docstring may use without importing them."""

from typing import Any

import numpy as np
import pytest
import torch

import pinfeed


@pytest.fixture(autouse=True, scope="session")
def names_in_examples(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(np=np, pinfeed=pinfeed, torch=torch)
