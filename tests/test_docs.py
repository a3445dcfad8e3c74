"""The code in README.md runs, block after block, as a reader would paste it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples may write files
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert blocks
    # Python code under another mark would escape this test.
    marks = re.findall(r"^ *```(\w+)", text, re.MULTILINE)
    assert set(marks) <= {"python", "sh", "text"}
    assert marks.count("python") == len(blocks)
    names = {"__name__": "__main__"}
    for block in blocks:
        lines_before = text.count("\n", 0, block.start(1))
        source = "\n" * lines_before + block[1]  # a traceback names the line of the file
        exec(compile(source, str(readme), "exec"), names)
