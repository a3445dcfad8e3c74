"""The code in README.md and docs/ runs, from the top of each page to its end, and as a file.

Its output equals the output on the page: the comment after a ``print``, or the comment lines right below it.
"""

import ast
import collections
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from programs import run_python
from shown_output import shown_outputs

ROOT, TESTS = Path(__file__).parents[1], Path(__file__).parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

SCRIPT = re.compile(r'^--8<-- "(docs/recipes/\w+\.py)"\n', re.MULTILINE)

# Marks of page types. Pages about libraries whose threads never end need their own process, because later tests
# could not fork. TensorFlow, Ray and Lightning are optional: without them their pages are skipped, except in the
# commands that name these pages, which then fail. A page about several ranks runs on two, like under torchrun.
ALONE = re.compile(
    r"<!-- runs (?:in a process of its own|(?P<ranks>on two ranks))(?:, with (?P<library>\w+))? -->\n"
)

# Ray and Lightning warn about themselves, Lightning, torchdata and torch's compiler about torch.
FILTERS = collections.defaultdict(
    lambda: "pass",
    ray="warnings.filterwarnings('ignore', module='ray|lightning|torch')",
    lightning="warnings.filterwarnings('ignore', module='lightning|torch')",
    torchdata="warnings.filterwarnings('ignore', \"'set_vital' is deprecated\")",
    torch="warnings.filterwarnings('ignore', module='torch')",
)


ALL_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

WITHOUT_CODE = [
    ROOT / "docs" / f"{name}.md"
    for name in (
        "compatibility",
        "concepts",
        "is-it-for-you",
        "migration-tables",
        "troubleshooting",
    )
]

# Packages with another import name, for the line "Needs: ..." of a page.
NAMES = {"PIL": "Pillow", "sklearn": "scikit-learn"}
LONGEST_LINE = 82  # longest line of code without scrolling


def _name(page):
    return page.relative_to(ROOT).as_posix()


def _text(page):
    """Returns the page, with the scripts that it includes."""
    text = page.read_text(encoding="utf-8")
    return SCRIPT.sub(lambda match: (ROOT / match[1]).read_text(encoding="utf-8"), text)


def _pages():
    for page in ALL_PAGES:
        text = _text(page)
        alone = ALONE.match(text)
        library = alone and alone["library"]
        is_slow = library or "torch.compile(" in text
        if library is None or importlib.util.find_spec(library) is not None:
            yield pytest.param(page, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch.compile's own
@pytest.mark.parametrize("page", list(_pages()), ids=_name)
def test_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples may write files
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = _text(page)
    blocks = list(BLOCK.finditer(text))
    # Code with another language tag would escape this test.
    marks = re.findall(r"^ *```(\w+)", text, re.MULTILINE)
    assert set(marks) <= {"python", "sh", "text"}
    assert marks.count("python") == len(blocks)
    assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(marks)
    code = _comparing(_code(text, blocks))
    if alone := ALONE.match(text):
        strict = f"import warnings; warnings.simplefilter('error'); {FILTERS[alone['library']]}"
        if alone["library"] == "lightning":
            strict = f"import sys; sys.path.insert(0, {str(TESTS)!r}); import torchvision_operators; {strict}"
        # A rank on a busy machine sometimes aborts when Python exits, also without pinfeed (torch 2.13, gloo).
        end = "import os, sys\nsys.stdout.flush()\nos._exit(0)\n" if alone["ranks"] else ""
        run_python(f"{strict}; {code}{end}", timeout=180, ranks=2 if alone["ranks"] else 1)
    else:
        exec(compile(code, str(page), "exec"), {"__name__": "__main__"})


RESUMING = ROOT / "docs" / "resume-in-a-framework.md"
FRAMEWORKS = ["accelerate", "Lightning", "Hugging Face Trainer"]


@pytest.mark.slow
@pytest.mark.parametrize("title", FRAMEWORKS)
def test_each_framework_section_is_a_complete_script(title, tmp_path, monkeypatch):
    pytest.importorskip("lightning")
    monkeypatch.chdir(tmp_path)
    (section,) = re.findall(rf"(?ms)^## {title}$(.*?)(?=^## |\Z)", _text(RESUMING))
    paths = f"import sys; sys.path.insert(0, {str(TESTS)!r}); import torchvision_operators; "
    run_python(paths + _comparing("\n" + "\n".join(BLOCK.findall(section))), timeout=180)


def _code(text, blocks):
    """Returns the page with all lines blank except its code, so that tracebacks show the file's line numbers."""
    lines = [""] * text.count("\n")
    for block in blocks:
        start = text.count("\n", 0, block.start(1))
        code = block[1].splitlines()
        lines[start : start + len(code)] = code
    return "\n".join(lines)


def _comparing(code):
    """Returns the code with a ``print`` that compares; line numbers stay."""
    prints = f"import shown_output; print = shown_output.Print({shown_outputs(code)!r})"
    return f"import sys; sys.path.insert(0, {str(TESTS)!r}); {prints}{code}\nprint.end()\n"


def _pages_with_workers():
    """Returns pages that start processes, except Ray's and Lightning's, which start their own."""
    for page in ALL_PAGES:
        code = "".join(BLOCK.findall(_text(page)))
        alone = ALONE.match(_text(page))
        if re.search(r"num_workers=[1-9]|diagnose\(", code) and not (alone and alone["library"]):
            yield page


PRINTS = {
    "another value": "print(1 + 1)  # 3",
    "another line below": "print('a\\nb')\n# a\n# c",
    "a line too few": "print('a\\nb')  # a",
    "a line too many": "print('a')  # a\n# b",
    "the second time": "for i in range(2):\n    print(i)  # 0",
    "over several lines": "print(\n    1,\n    2,\n)  # 1 3",
    "in a function": "def f():\n    print(1)  # 2\nf()",
    "never": "if False:\n    print(1)  # 1",
}


@pytest.mark.parametrize("name", PRINTS)
def test_a_page_with_a_wrong_output_fails(name):
    code = "\nprint(1, 2)  # 1 2\nprint(\n    'a\\n\\nb',\n)\n# a\n#\n# b\nprint(3)\n"
    exec(_comparing(code), {})
    with pytest.raises(AssertionError, match="nothing printed" if name == "never" else "prints"):
        exec(_comparing(code + PRINTS[name]), {})


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("page", list(_pages_with_workers()), ids=_name)
def test_pages_start_workers_that_import_them(page, method, tmp_path):
    """Like ``python page.py``; test_page uses forked workers, which import nothing."""
    text = _text(page)
    code = _code(text, BLOCK.finditer(text))
    begin = (
        "import torchvision_operators\n"
        "if __name__ == '__main__': import multiprocessing as m, torch as t; "
        f"m.set_start_method({method!r}); t.set_num_threads(1)\n"
    )
    assert code.startswith("\n\n")  # the title
    (tmp_path / "page.py").write_text(begin + code[2:], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(TESTS), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", ALL_PAGES, ids=_name)
def test_pages_list_their_requirements(page):
    imported = set()
    for block in BLOCK.findall(_text(page)):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module)
    roots = {name.partition(".")[0] for name in imported} - {"numpy", "torch", "pinfeed"}
    needs = "".join(re.findall(r"^Needs: [^\n]*", _text(page), re.MULTILINE))
    for root in roots - sys.stdlib_module_names:
        assert NAMES.get(root, root) in needs, root


@pytest.mark.parametrize("page", ALL_PAGES, ids=_name)
def test_code_fits_beside_the_menu(page):
    for block in re.findall(
        r"^```(?:python|sh)\n(.*?)^```$", _text(page), re.DOTALL | re.MULTILINE
    ):
        for line in block.splitlines():
            assert len(line) <= LONGEST_LINE, line


def test_every_page_of_the_guide_has_code():
    for page in ALL_PAGES:
        text = _text(page)
        if (
            page not in WITHOUT_CODE
            and page.parent.name != "reference"
            and not text.startswith("--8<--")
        ):
            assert BLOCK.search(text), page


def test_nothing_installs_a_name_that_is_not_ours():
    """pinfeed is on no index; pip would install whatever is registered under the name."""
    sources = [*ROOT.glob("*.md"), *ROOT.glob("csrc/*.md"), *ROOT.glob("bench/*.md")]
    sources += [
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("python/**/*.py"),
        *ROOT.glob("python/**/*.md"),
    ]
    for source in sources:
        assert not re.search(r"pip install (-\S+ )*['\"]?pinfeed\b|--no-binary", _text(source)), (
            source
        )
