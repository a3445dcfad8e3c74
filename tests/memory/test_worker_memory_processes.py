"""Worker memory under forks, kills and system limits; each test in its own process."""

import sys

import pytest

from programs import run_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has worker memory")


def test_without_memfd_torchs_shared_memory_is_used():
    logged = run_program("batches_without_memfd")
    assert logged.count("WARNING this worker can't share memory") == 2  # once per worker
    assert "memfd_create" in logged


def test_memory_that_the_system_refuses_is_not_written():
    """Writing to it could end the process with SIGBUS."""
    assert run_program("batches_without_fallocate") == "True\n"


def test_many_held_batches():
    assert run_program("batches_of_many_batches") == ""


def test_another_default_device_of_tensors():
    run_program("batches_default_device")


def test_batches_open_no_files():
    assert run_program("batches_of_every_kind") == ""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_a_worker_use_their_own_memory(method):
    assert run_program("batches_children", method) == ""


def test_a_worker_whose_child_is_a_worker():
    assert run_program("batches_nested") == ""


@pytest.mark.slow
def test_workers_killed_at_random():
    run_program("batches_kills", "1", "100", timeout=200)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_that_start_workers(method):
    """Like distributed training: started processes that start workers themselves."""
    assert run_program("batches_ranks", method) == ""


@pytest.mark.parametrize("event", ["begin", "wait", "two batches"])
def test_a_killed_main_process_ends_its_workers(event, tmp_path):
    """run_program waits until all of them have closed its pipe."""
    assert run_program("batches_killed", str(tmp_path / "gone"), event, timeout=60).split()
