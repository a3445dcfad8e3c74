"""The API page of the documentation lists what there is; the rest of the site `make docs` checks."""

import re
from pathlib import Path

import pinfeed

ELSEWHERE = {"integrations.ray.RayCollate"}
PAGE = Path(__file__).parents[1] / "docs" / "api.md"


def test_every_public_name_is_on_the_page_once():
    text = PAGE.read_text(encoding="utf-8")
    documented = re.findall(r"^::: pinfeed\.([\w.]+)$", text, re.MULTILINE)
    assert sorted(documented) == sorted(set(pinfeed.__all__) - {"__version__"} | ELSEWHERE)
    assert text.count(":::") == len(documented)  # nothing from within
    assert "pinfeed.__version__" in text
