"""``torch.ops.pinfeed``: the kernels as torch ops, for compiled and exported graphs.

Importing pinfeed registers them. docs/torch-ops.md says what each takes and returns.
"""

from pinfeed.functional.torch_ops.library import has_kernels, load, require, status, use_isa

__all__ = ["has_kernels", "load", "require", "status", "use_isa"]
