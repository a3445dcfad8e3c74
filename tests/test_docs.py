"""The code in README.md and docs/ runs, from the top of each page to its end."""

import collections
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from programs import run_python

ROOT, TESTS = Path(__file__).parents[1], Path(__file__).parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# The first line of pages about libraries that start threads for good: no later test could fork.
# TensorFlow, Ray and Lightning are not in every environment. Their pages are left out where they are
# missing; the commands that are about them ask for the pages by name, and fail if there are none.
# A page about several ranks runs on two, under torchrun.
ALONE = re.compile(
    r"<!-- runs (?:in a process of its own|(?P<ranks>on two ranks))(?:, with (?P<library>\w+))? -->\n"
)

# Ray and Lightning warn about themselves, Lightning about torch, and torch's compiler about torch.
FILTERS = collections.defaultdict(
    str,
    ray="warnings.filterwarnings('ignore', module='ray|lightning|torch')",
    lightning="warnings.filterwarnings('ignore', module='lightning|torch')",
    torch="warnings.filterwarnings('ignore', module='torch')",
)


ALL_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _pages():
    for page in ALL_PAGES:
        text = page.read_text(encoding="utf-8")
        alone = ALONE.match(text)
        library = alone and alone["library"]
        is_slow = library or "torch.compile(" in text
        if library is None or importlib.util.find_spec(library) is not None:
            yield pytest.param(page, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch.compile's own
@pytest.mark.parametrize("page", list(_pages()), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page, tmp_path, monkeypatch, one_thread):
    monkeypatch.chdir(tmp_path)  # examples may write files
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    # Python code under another mark, or without one, would escape this test.
    marks = re.findall(r"^ *```(\w+)", text, re.MULTILINE)
    assert set(marks) <= {"python", "sh", "text"}
    assert marks.count("python") == len(blocks)
    assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(marks)
    code = _code(text, blocks)
    if alone := ALONE.match(text):
        strict = f"import warnings; warnings.simplefilter('error'); {FILTERS[alone['library']]}"
        if alone["library"] == "lightning":
            strict = f"import sys; sys.path.insert(0, {str(TESTS)!r}); import torchvision_operators; {strict}"
        if alone["ranks"]:
            _run_on_two_ranks(strict + code, tmp_path / "page.py")
        else:
            run_python(strict + code, timeout=180)
    else:
        exec(compile(code, str(page), "exec"), {"__name__": "__main__"})


def _run_on_two_ranks(code, path):
    path.write_text(code, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, path], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def _code(text, blocks):
    """The page with all lines empty but those of its code: a traceback names the line of the file."""
    lines = [""] * text.count("\n")
    for block in blocks:
        start = text.count("\n", 0, block.start(1))
        code = block[1].splitlines()
        lines[start : start + len(code)] = code
    return "\n".join(lines)


def test_every_page_of_the_guide_has_code():
    for page in ALL_PAGES:
        text = page.read_text(encoding="utf-8")
        if page.name != "api.md" and not text.startswith("--8<--"):
            assert BLOCK.search(text), page
