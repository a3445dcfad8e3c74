"""Imports of the libraries that only the demo needs."""

import importlib
from typing import Any

#: What ``pip install pinfeed[demo]`` adds.
EXTRA_MODULES = ("PIL", "matplotlib", "sklearn", "tqdm")


def import_extra(name: str) -> Any:
    """Imports a module of the ``demo`` extra.

    Args:
        name: Dotted name of the module, such as ``"sklearn.datasets"``.

    Raises:
        ImportError: The module isn't there; the message names the extra to install.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"the demo needs {name.partition('.')[0]}, which is not installed: "
            "pip install pinfeed[demo]"
        ) from error


def require_extras() -> None:
    """Raises ImportError at the start of the demo rather than halfway through it."""
    for name in EXTRA_MODULES:
        import_extra(name)
