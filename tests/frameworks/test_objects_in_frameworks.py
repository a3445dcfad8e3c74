"""Images, their boxes and masks in the loops of accelerate, Lightning and transformers' Trainer."""

from programs import run_program


def test_epochs_of_frameworks(tmp_path):
    """Each epoch has its own crops, equal to a plain loop's."""
    printed = run_program("epochs_of_frameworks", str(tmp_path))
    names = [line for line in printed.splitlines() if line.startswith("in_")]
    assert names == ["in_accelerate", "in_lightning", "in_trainer"]
