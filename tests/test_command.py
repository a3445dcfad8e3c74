"""``python -m pinfeed``: its commands, its version, and typos."""

import pytest

import pinfeed
from pinfeed import _core
from pinfeed.__main__ import main
from programs import run_python


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(option, capsys):
    assert main([option]) == 0
    assert capsys.readouterr().out == f"pinfeed {pinfeed.__version__}\n"


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("inof", "did you mean 'info'?"),
        ("diagnos", "did you mean 'diagnose'?"),
        ("bench", "there are info, diagnose"),
        ("--quick", "there are info, diagnose"),
    ],
)
def test_unknown_commands(command, hint, capsys):
    assert main([command]) == 2
    output = capsys.readouterr()
    assert output.err == f"pinfeed: unknown command {command!r}; {hint}\n"
    assert output.out == ""


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["-h"], 0), (["--help"], 0)])
def test_usage_names_all_commands(arguments, status, capsys):
    assert main(arguments) == status
    output = capsys.readouterr().out
    for name in ("info", "diagnose", "--version"):
        assert f"\n  {name} " in output


def test_info():
    printed = run_python("import runpy; runpy.run_module('pinfeed', run_name='__main__')", "info")
    facts = dict(line.split(maxsplit=1) for line in printed.splitlines())
    assert facts["pinfeed"] == f"{pinfeed.__version__} (built with {_core.compiler})"
    assert facts["kernels"].startswith(f"{_core.active_isa()}; this CPU runs ")
    assert "shared memory" in facts["workers"]
    assert facts.keys() >= {"python", "numpy", "torch", "threads", "accelerator", "batches"}
