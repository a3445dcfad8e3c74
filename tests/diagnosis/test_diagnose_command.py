"""The command."""

import json
import subprocess
import sys

import pytest

from pinfeed.__main__ import main
from pinfeed.diagnosis.limit import LIMITS

PROGRAM = """
import time
from torch.utils.data import DataLoader

class Samples:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        time.sleep(0.005)
        return index

def make_loader():
    print("made")
    return DataLoader(Samples(), batch_size=4, num_workers=1)

loader = make_loader()

def make_list():
    return [1, 2]

def make_some(count):
    return DataLoader(Samples(), batch_size=count)

def step(batch):
    time.sleep(0.001)
"""


def test_the_command(tmp_path, capsys):
    program = tmp_path / "a_program.py"
    program.write_text(PROGRAM)
    options = ["--step", f"{program}:step", "--seconds", "0.3", "--json"]
    assert main(["diagnose", f"{program}:make_loader", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["limit"] in set(LIMITS) - {"step"}
    assert found["loop"]["wait_share"] > 0.3
    assert main(["diagnose", f"{program}:loader", "--seconds", "0.3"]) == 0
    assert capsys.readouterr().out.startswith("The loop: ")
    assert main(["diagnose", f"{program}:make_list"]) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("pinfeed diagnose: loader must be a torch DataLoader")
    assert main(["diagnose", f"{program}:make_some"]) == 2
    assert "make_some is called without arguments: missing a required" in capsys.readouterr().err
    assert main(["diagnose", f"{program}:nothing"]) == 2
    assert "has no function or DataLoader 'nothing'" in capsys.readouterr().err
    assert main(["diagnose", "no.py:loader"]) == 2
    assert "expected FILE:NAME with a file that there is" in capsys.readouterr().err


SPAWNING = """
import argparse
from torch.utils.data import DataLoader
print("imported")
argparse.ArgumentParser().parse_args()
class Samples(list):  # which a worker finds in this file
    pass
loader = DataLoader(Samples([1, 2, 3, 4]), num_workers=1, multiprocessing_context="spawn")
"""


@pytest.mark.slow
def test_what_the_file_asks_for_and_what_its_workers_print(tmp_path):
    (tmp_path / "spawning.py").write_text(SPAWNING)
    command = [sys.executable, "-m", "pinfeed", "diagnose", f"{tmp_path}/spawning.py:loader"]
    command += ["--seconds", "1", "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loop"]["batches"] > 0
    assert done.stderr.count("imported") > 1
