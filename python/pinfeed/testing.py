"""For tests and bug reports: what this build is made of, which code paths run, what memory is in use."""

from pinfeed.functions.torch_ops import use_isa
from pinfeed.memory.main_process import worker_memory_stats
from pinfeed.runtime import build_config

__all__ = ["build_config", "use_isa", "worker_memory_stats"]
