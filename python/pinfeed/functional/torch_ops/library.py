"""The shared libraries of ``torch.ops.pinfeed``: found, loaded, and their instruction set."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch

from pinfeed import _core
from pinfeed.functional.torch_ops import graphs

# Beside the native module: in an editable install that is not where the sources are.
_FOLDER = Path(_core.__file__).parent
_LIBRARY = _FOLDER / "libpinfeed_torch.so"
_CUDA_LIBRARY = _FOLDER / "libpinfeed_torch_cuda.so"
# An installed pinfeed has to be forced out.
_BUILD = "in a checkout of pinfeed, pip install --force-reinstall --no-deps ."
_HOW_TO_BUILD = (
    "this pinfeed was built without torch; build it where torch 2.11 or later is installed: "
    f"{_BUILD}"
)
# Registrations live as long as this object.
_REGISTRATIONS: Any = None
# The reason for missing CUDA kernels, and the fix; None if they are present.
_no_cuda: str | None = "the ops were not loaded"


def load() -> None:
    """Registers the ops; without their library, using an op raises an error with a fix."""
    global _REGISTRATIONS, _no_cuda
    ops: Any = torch.ops
    if not _LIBRARY.exists():
        ops.pinfeed = _NoOps()  # where torch keeps namespaces itself
        return
    ops.load_library(_LIBRARY)
    _no_cuda = _load_cuda()
    library: Any = torch.library
    _REGISTRATIONS = library.Library("pinfeed", "FRAGMENT")
    graphs.register(_REGISTRATIONS)


def _load_cuda() -> str | None:
    """Registers the CUDA kernels, or says why not; the CPU's ops work without them."""
    if torch.version.cuda is None:
        return "this torch was built without CUDA"
    if not _CUDA_LIBRARY.exists():
        return f"this pinfeed was built without them; build it where nvcc is installed: {_BUILD}"
    try:
        ops: Any = torch.ops
        ops.load_library(_CUDA_LIBRARY)
    except (OSError, RuntimeError) as error:
        return f"their library could not be loaded: {error}; rebuild pinfeed: {_BUILD}"
    return None


def status() -> str:
    """Returns which ops are available, and why others are missing."""
    if not _LIBRARY.exists():
        return f"none: {_HOW_TO_BUILD}"
    return "CPU, CUDA" if _no_cuda is None else f"CPU; no CUDA kernels: {_no_cuda}"


def has_kernels(device: torch.device) -> bool:
    """Whether there are kernels for tensors on a device, and the device can run them.

    torch calls ROCm "cuda" too, but no kernels are loaded there.
    """
    if device.type == "cpu":
        return True
    return device.type == "cuda" and _no_cuda is None and _can_run(device.index)


@functools.cache
def _can_run(device_index: int) -> bool:
    """Whether this device can run pinfeed's kernels; warns once with the reason if not.

    torch may be built for an older driver and for older GPUs than the kernels are.
    """
    ask = ctypes.CDLL(str(_CUDA_LIBRARY)).pinfeed_cuda_problem
    ask.argtypes, ask.restype = [], ctypes.c_char_p
    with torch.cuda.device(device_index):
        problem = ask()
    if problem is None:
        return True
    warnings.warn(
        f"pinfeed's kernels can't run on cuda:{device_index}, so fields run on the CPU: "
        f"{problem.decode()}",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def require(function: str, device: torch.device) -> None:
    """Raises RuntimeError if ops don't support tensors on a device."""
    if not _LIBRARY.exists():
        raise RuntimeError(f"{function}: tensors on {device} need torch ops: {_HOW_TO_BUILD}")
    if device.type == "cuda" and _no_cuda is not None:
        raise RuntimeError(f"{function}: tensors on {device} need CUDA kernels: {_no_cuda}")


@contextlib.contextmanager
def use_isa(name: str) -> Iterator[None]:
    """Forces one instruction set for the whole process while the context is open; for tests.

    Args:
        name: Name of the instruction set, as in `show_config`, such as ``"scalar"`` or ``"avx2"``.

    Raises:
        ValueError: If this build or this CPU doesn't have the instruction set.

    Example:
        >>> with pinfeed.testing.use_isa("scalar"):
        ...     pinfeed.functional.normalize(np.full((1, 1, 1, 1), 255, np.uint8)).tolist()
        [[[[1.0]]]]
    """
    before = _core.active_isa()
    if name not in _core.available_isas():
        raise ValueError(
            f"use_isa: name must be one of {_core.available_isas()} on this machine, got {name!r}"
        )
    _force_isa(name)
    try:
        yield
    finally:
        _force_isa(before)


def _force_isa(name: str) -> None:
    """Forces it on the core and on the ops, whose library has a copy of the native code."""
    assert _core.force_isa(name)
    if _LIBRARY.exists():
        force = ctypes.CDLL(str(_LIBRARY)).pinfeed_ops_force_isa
        force.argtypes, force.restype = [ctypes.c_char_p], ctypes.c_bool
        assert force(name.encode())


class _NoOps:
    """Stands for the namespace ``torch.ops.pinfeed``."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"torch.ops.pinfeed.{name}: {_HOW_TO_BUILD}")
