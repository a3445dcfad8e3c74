"""The code in README.md and docs/ runs, block after block, as a reader would paste it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
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
    names = {"__name__": "__main__"}
    for block in blocks:
        lines_before = text.count("\n", 0, block.start(1))
        source = "\n" * lines_before + block[1]  # a traceback names the line of the file
        exec(compile(source, str(page), "exec"), names)


def test_pages_that_must_have_code():
    for name in ("README.md", "docs/variable-length.md"):
        assert BLOCK.search((ROOT / name).read_text(encoding="utf-8"))
