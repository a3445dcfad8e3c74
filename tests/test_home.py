"""The long description of a release: its links point to the release's repository."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = "https://example.org/pinfeed"


def test_links_of_a_release(tmp_path):
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    env = os.environ | {"PINFEED_REPOSITORY": HOME}
    subprocess.run([ROOT / "tools" / "home.sh", "v1.0"], cwd=tmp_path, env=env, check=True)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 5
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    for kind, file in re.findall(rf"\]\({HOME}/(blob|raw)/v1\.0/([^)#]+)", text):
        assert (ROOT / file).exists()
        assert (kind == "raw") == file.endswith((".svg", ".png", ".jpg"))
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["urls"]["Source"] == HOME
