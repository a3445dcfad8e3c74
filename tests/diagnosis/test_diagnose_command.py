"""The diagnose command."""

import json
import subprocess
import sys

import pytest

from pinfeed.__main__ import main
from pinfeed.diagnosis.limit import LIMITS
from programs import PROGRAMS


def test_the_command(capsys):
    program = PROGRAMS / "loaders_to_diagnose.py"
    options = ["--step", f"{program}:step", "--seconds", "0.2", "--json"]
    assert main(["diagnose", f"{program}:make_loader", *options]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["limit"] in set(LIMITS) - {"step"}
    assert result["loop"]["wait_share"] > 0.3
    assert main(["diagnose", f"{program}:loader", "--seconds", "0.2"]) == 0
    assert capsys.readouterr().out.startswith("The loop: ")
    assert main(["diagnose", f"{program}:make_list"]) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("pinfeed diagnose: loader must be a torch DataLoader")
    assert main(["diagnose", f"{program}:make_some"]) == 2
    assert "make_some must not need arguments: make_some() missing" in capsys.readouterr().err
    assert main(["diagnose", f"{program}:nothing"]) == 2
    assert (
        "has no function or DataLoader 'nothing'; define it at the top" in capsys.readouterr().err
    )
    assert main(["diagnose", "no.py:loader"]) == 2
    words = "expected FILE.py:NAME of an existing file, got 'no.py:loader'; write, for example, train.py:"
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_input_and_output_of_the_file_and_its_workers():
    command = [sys.executable, "-m", "pinfeed", "diagnose", f"{PROGRAMS}/spawning_loader.py:loader"]
    command += ["--seconds", "0.1", "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loop"]["batches"] > 0
    assert done.stderr.count("imported") > 1
