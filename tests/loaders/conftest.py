"""What every test of a loader that runs ahead goes through."""

from loaders import no_thread_is_left, watchdog  # noqa: F401
