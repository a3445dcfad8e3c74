"""A fixture for every test of a prefetching loader."""

from loaders import no_thread_is_left, watchdog  # noqa: F401
