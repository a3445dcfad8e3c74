"""``torch.ops.pinfeed``: the kernels as torch ops, for compiled and exported graphs.

Importing pinfeed registers them. docs/torch-ops.md documents their arguments and results.
"""

from pinfeed.functional.torch_ops.library import has_kernels, load, require, status, use_isa

__all__ = ["has_kernels", "load", "require", "status", "use_isa"]
