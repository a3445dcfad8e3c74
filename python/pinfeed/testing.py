"""Tools for tests: choose the instruction set, inspect the shared memory of workers."""

from pinfeed.functional.torch_ops import use_isa
from pinfeed.memory.main_process import worker_memory_stats

__all__ = ["use_isa", "worker_memory_stats"]
