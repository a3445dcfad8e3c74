"""Runs the code of the gallery, which draws its pictures: ``PYTHONPATH=. python docs/plots/gallery.py``."""

import contextlib
import re
import shutil
import tempfile
from pathlib import Path

from drawing import ASSETS

PAGE = ASSETS.parent / "gallery.md"


def main() -> None:
    """Runs the page in a folder of its own and takes the pictures from there."""
    code = "\n".join(
        re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    )
    (ASSETS / "gallery").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        exec(compile(code, PAGE, "exec"), {"__name__": "__main__"})  # noqa: S102
        for picture in sorted(Path().glob("*.png")):
            print(shutil.copy(picture, ASSETS / "gallery"))


if __name__ == "__main__":
    main()
