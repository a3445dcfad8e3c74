"""How often a loader is iterated, and whether it can be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset


class Passes:
    """The passes over a loader, of which the first may have begun before anyone asked for it.

    Args:
        loader: An iterable of batches.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._lock = threading.Lock()
        self._ahead: tuple[Any, Iterator[Any]] | None = None
        self._begun = 0
        self._has_yielded = False

    def peek(self) -> Any:
        """Begins the first pass, and returns its first batch, which `begin` will return too.

        Raises:
            ValueError: There is none.
        """
        rest = iter(self._loader)
        for batch in rest:
            self._ahead = batch, rest
            return batch
        raise ValueError(
            "to_tensorflow: loader yielded no batch, and nothing else says what arrays there are; "
            "give signature=, the structure of a batch with a tf.TensorSpec for each array"
        )

    def begin(self) -> tuple[list[Any], Iterator[Any]]:
        """Begins the next pass.

        Returns:
            The batches of it that were read before, at most one, and the others.

        Raises:
            RuntimeError: The loader can't begin again.
        """
        with self._lock:
            self._begun += 1
            if self._ahead is not None:
                (batch, rest), self._ahead = self._ahead, None
                return [batch], rest
            if self._begun > 1 and isinstance(self._loader, Iterator):
                raise self._used_up()
        return [], iter(self._loader)

    def end(self, batches: int) -> None:
        """Takes note of a pass that came to its end.

        Args:
            batches: How many it had.

        Raises:
            RuntimeError: None, and an earlier one had some.
        """
        if batches == 0 and self._has_yielded:
            raise self._used_up()
        self._has_yielded = self._has_yielded or batches > 0

    def length(self) -> int | None:
        """How many batches every pass has, None if the loader can't know."""
        if isinstance(self._loader, Iterator):
            return None  # that of the whole, maybe, and not of what is left
        has_stream = isinstance(getattr(self._loader, "dataset", None), IterableDataset)
        if has_stream and getattr(self._loader, "num_workers", 0) > 0:
            return None
        try:
            return len(self._loader)
        except (TypeError, NotImplementedError):
            return None

    def _used_up(self) -> RuntimeError:
        return RuntimeError(
            f"to_tensorflow: loader, a {type(self._loader).__name__}, was used up by an earlier loop "
            "over the dataset and can't begin again; hand over what can, such as a DataLoader or a "
            "list, or make the dataset with in_memory=True"
        )
