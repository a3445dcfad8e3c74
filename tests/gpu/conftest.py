"""Fixtures for tests on a GPU, which `make test-gpu` runs; without one they fail, and none is skipped.

They need only torch, NumPy, pytest and Hypothesis, and no other conftest.py.
``--device cpu`` checks the tests themselves on a CPU.
"""

import faulthandler
import gc

import hypothesis
import pytest
import torch

import pinfeed

# Under a sanitizer, calls take seconds.
hypothesis.settings.register_profile(
    "gpu",
    derandomize=True,
    max_examples=150,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.load_profile("gpu")


def pytest_addoption(parser):
    parser.addoption("--device", default="cuda", choices=["cuda", "cpu"])


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu_only: can't be tried on the CPU")


def pytest_report_header(config):
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device"
    return [f"pinfeed {pinfeed.__version__} ({pinfeed.__file__}), torch {torch.__version__}", name]


def pytest_collection_modifyitems(config, items):
    if config.getoption("device") == "cpu":
        kept = [item for item in items if item.get_closest_marker("gpu_only") is None]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


@pytest.fixture(autouse=True, scope="session")
def gpu_is_there(pytestconfig):
    if pytestconfig.getoption("device") == "cuda" and not torch.cuda.is_available():
        pytest.fail("these tests are for a GPU, and torch finds none", pytrace=False)


@pytest.fixture
def device(pytestconfig):
    return pytestconfig.getoption("device")


@pytest.fixture(autouse=True)
def watchdog():
    """Ends a test that hangs, with the stacks of all threads. Sanitizers are slow."""
    faulthandler.dump_traceback_later(600, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def errors_belong_to_their_test():
    yield
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # raises errors of kernels
