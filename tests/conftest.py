"""Fixtures of all tests: instruction sets, thread counts, and Hypothesis profiles."""

import faulthandler
import gc
import multiprocessing
import os
import re
import signal
import sys

import hypothesis
import numpy as np
import pytest
import torch
import torch.utils.data

import pinfeed
import torchvision_operators  # noqa: F401
from pinfeed import _core

# Programs that tests start. --doctest-modules would import them here, including their memory limits.
collect_ignore = ["programs"]

# A shell makes its background processes ignore interrupts, and they pass this on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# torch waits this long before it ends a worker whose stream has raised.
torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.4

# Python 3.14 defaults to forkserver, whose workers import torch. Tests of forkserver name it.
multiprocessing.set_start_method("fork")
# Imported once by the fork server, so that its workers don't have to.
multiprocessing.set_forkserver_preload(["torch.utils.data", "pinfeed"])

_SETTINGS = {
    "deadline": None,  # shared machines stall
    # Function-scoped fixtures here set up a state that examples don't change.
    "suppress_health_check": [
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.too_slow,
    ],
}
hypothesis.settings.register_profile("quick", derandomize=True, max_examples=25, **_SETTINGS)
hypothesis.settings.register_profile("few", derandomize=True, max_examples=8, **_SETTINGS)
hypothesis.settings.register_profile("thorough", max_examples=150, **_SETTINGS)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_report_header():
    versions = f"numpy {np.__version__}, torch {torch.__version__}"
    isas = ", ".join(_core.available_isas())
    return [
        f"pinfeed {pinfeed.__version__} ({_core.compiler}), {versions}",
        f"instruction sets: {isas}; threads: {pinfeed.get_num_threads()}",
    ]


def pytest_collection_finish():
    gc.freeze()  # excludes torch and all tests from gc.collect(), which would take seconds


def pytest_unconfigure():
    # If the process hangs at exit, prints the stacks of all threads and fails.
    faulthandler.dump_traceback_later(300, exit=True, file=sys.__stderr__)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks tests with spawned workers as slow, except in one file, because these import torch."""
    for item in items:
        if re.search(r"\[.*(spawn|forkserver)", item.name) and item.path.name != "test_workers.py":
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=_core.available_isas())
def isa(request):
    """Runs the test once on every instruction set of this machine, and checks that it is active."""
    with pinfeed.testing.use_isa(request.param):
        assert _core.active_isa() == request.param
        yield request.param
        assert _core.active_isa() == request.param


@pytest.fixture(params=[1, 3, 8])
def num_threads(request):
    """Runs the test once with each number of threads."""
    pinfeed.set_num_threads(request.param)
    assert pinfeed.get_num_threads() == request.param
    yield request.param
    pinfeed.set_num_threads(None)


@pytest.fixture
def tf():
    """Returns TensorFlow, for the test files that need it."""
    import tensorflow

    return tensorflow
