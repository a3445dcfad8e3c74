"""The libraries that only the demo needs."""

import functools

from pinfeed.optional import import_extra

import_demo_extra = functools.partial(import_extra, extra="demo")


def require_extras() -> None:
    """Raises ImportError at the start of the demo rather than halfway through it."""
    for name in ("PIL", "matplotlib", "sklearn", "tqdm"):
        import_demo_extra(name)
