"""Published training scripts, with and without the lines that pinfeed changes."""

import difflib
import textwrap

import torch


def run_both(script, changes, most, tolerance, folder):
    """Returns the final variables of a script, without the changes and with them.

    Args:
        script: The text, which can be indented. It sets ``weights``.
        changes: Replacements for texts that it contains once.
        most: Maximum number of changed lines.
        tolerance: Maximum difference of the weights.
        folder: The script's ``folder``.
    """
    changed = script
    for old, new in changes.items():
        assert script.count(old) == 1, old
        changed = changed.replace(old, new)
    lines = [[line for line in text.split("\n") if line.strip()] for text in (script, changed)]
    counts = [sum(line.startswith(sign) for line in difflib.ndiff(*lines)) for sign in "+-"]
    assert max(counts) <= most
    original, migrated = _run(script, folder), _run(changed, folder)
    for expected, actual in zip(original["weights"], migrated["weights"], strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)
    return original, migrated


def _run(script, folder):
    names = {"folder": str(folder)}
    exec(compile(textwrap.dedent(script), "script.py", "exec"), names)
    return names
