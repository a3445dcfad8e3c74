"""A Ray cluster of two CPUs for this folder; `make test-frameworks` runs it."""

import logging
import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in (item for item in items if item.path.is_relative_to(HERE)):
        # Warnings of libraries about themselves are ignored; warnings of our code raise.
        for library in ("lightning", "ray", "torch.jit"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore:::{library}"))


@pytest.fixture(scope="session")
def cluster():
    """Returns a Ray cluster on this machine, started at the first request."""
    import ray

    # Ray's workers import the modules of a test's functions.
    folders = [str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", os.pathsep.join(folders))
    patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray warns
    ray.init(
        num_cpus=2,
        object_store_memory=80 * 2**20,  # the minimum is 75 MB; containers have little /dev/shm
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    yield ray
    ray.shutdown()
    patch.undo()
