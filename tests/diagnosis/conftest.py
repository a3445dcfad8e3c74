"""Fixtures that keep diagnoses quick and check that nothing is left running."""

import gc
import multiprocessing
import os
import traceback

import pytest

from pinfeed.diagnosis import diagnose as module


@pytest.fixture(autouse=True)
def no_run_is_skipped(monkeypatch):
    """Other tests can use most of the machine's time; trials run only in tests that request them."""
    monkeypatch.setattr(module, "_OVERTIME", 100.0)
    monkeypatch.setattr(module, "_ROUNDS", 0)


@pytest.fixture(autouse=True)
def errors_are_not_hidden(monkeypatch):
    """Raises errors of our own code that a diagnosis would report as a note."""

    def said(error):
        *_, raised = traceback.extract_tb(error.__traceback__)
        is_ours = os.path.dirname(raised.filename) == os.path.dirname(module.__file__)
        assert not (is_ours and isinstance(error, NameError | AttributeError)), raised
        return describe(error)

    describe = module._message
    monkeypatch.setattr(module, "_message", said)


@pytest.fixture
def trials(monkeypatch):
    monkeypatch.setattr(module, "_ROUNDS", 2)


@pytest.fixture
def leaves_no_workers():
    gc.collect()
    before = set(multiprocessing.active_children())
    gc.disable()  # or objects in cycles would stay
    yield
    left = set(multiprocessing.active_children()) - before
    gc.enable()
    assert not left
