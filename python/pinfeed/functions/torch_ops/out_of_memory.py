"""torch's own error where an output of an op is too large for what memory is left.

The stable ABI tells the libraries only that torch could not allocate, so the ops can't raise
``torch.OutOfMemoryError``, which programs catch.
"""

from __future__ import annotations

from typing import Any

import torch

_FAILED_TO_ALLOCATE = "could not be allocated"  # as the libraries say it


def call(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """``op(*args, **kwargs)``.

    Raises:
        torch.OutOfMemoryError: On a device; a RuntimeError of torch's in host memory.
    """
    try:
        return op(*args, **kwargs)
    except RuntimeError as error:
        if _FAILED_TO_ALLOCATE not in str(error):
            raise
        _allocate_outputs(op, args, kwargs)
        raise  # they fit by now, or it was something else that did not


def _allocate_outputs(
    op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Asks torch for the memory of all outputs at once."""
    given = [*args, *kwargs.values()]
    device = next(one.device for one in given if isinstance(one, torch.Tensor))
    fakes = op(*map(_fake, args), **{name: _fake(one) for name, one in kwargs.items()})
    fakes = [fakes] if isinstance(fakes, torch.Tensor) else fakes
    held = []
    for fake in fakes:
        size, stride = fake.shape, fake.stride()
        held.append(torch.empty_strided(size, stride, dtype=fake.dtype, device=device))


def _fake(argument: Any) -> Any:
    return argument.to("meta") if isinstance(argument, torch.Tensor) else argument
