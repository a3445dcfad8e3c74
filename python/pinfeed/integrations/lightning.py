"""Lightning: loaders resume after the last batch that was trained on."""

from __future__ import annotations

import warnings
from typing import Any

from pinfeed.arguments import states_within
from pinfeed.imports import import_extra
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.samplers.epoch_sampler import EpochSampler
from pinfeed.streams.packed_stream import PackedStream
from pinfeed.streams.stream_dataset import StreamDataset

__all__ = ["ResumeLoaders"]

_Callback: Any = import_extra("lightning.pytorch", "lightning").Callback


class ResumeLoaders(_Callback):  # type: ignore[misc] # Any, where Lightning is missing
    """Callback that makes loaders resume exactly from a checkpoint saved anywhere in an epoch.

    pinfeed adds it to every ``lightning.Trainer``, by an entry point. It applies to each `DeviceLoader`
    (`from_numpy` returns one), and to each ``StatefulDataLoader`` with a pinfeed sampler. For a
    ``StatefulDataLoader`` of a stream it only warns: put a `DeviceLoader` around it.

    Lightning saves and loads the states of loaders itself, but not correctly in four cases, which the
    callback corrects:

    - **Learning-rate schedules:** Lightning loads no state if ``trainer.estimated_stepping_batches`` was
      read before the fit.
    - **Loaders without a length,** such as streams: Lightning prefetches a batch, and saves the state after
      it, so a resumed run skips this batch.
    - **Finished epochs:** Lightning loads no state, so a stream's next epoch is epoch 0.
    - **Another batch size or rank count:** Lightning restores a wrong number of batches. The callback
      corrects it for loaders with a pinfeed sampler.

    Example:
        >>> import lightning
        >>> trainer = lightning.Trainer(
        ...     callbacks=[ResumeLoaders()], logger=False, enable_checkpointing=False
        ... )
    """

    def __init__(self) -> None:
        super().__init__()
        self._states: list[Any] = []  # of a checkpoint, until the fit begins

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Saves the states before the batches that Lightning has prefetched."""
        loop = trainer.fit_loop
        ahead = len(getattr(loop._data_fetcher, "batches", ()))
        saved = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {})
        states = saved.get("combined_loader")
        if not ahead or not states:
            return
        loaders = [
            loader for loader in loop._combined_loader.flattened if hasattr(loader, "state_dict")
        ]
        for number, loader in enumerate(loaders):
            if isinstance(loader, DeviceLoader):
                states[number] = loader._state_dict(ahead)
            elif _is_ours(loader):
                warnings.warn(
                    f"ResumeLoaders: the checkpoint has the state of a {type(loader).__name__} after the "
                    "batch that Lightning has prefetched, so a resumed run skips that batch; pass "
                    "Lightning pinfeed.DeviceLoader(loader)",
                    stacklevel=2,
                )

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Stores the states of loaders, which Lightning drops after loading them."""
        saved = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {})
        self._states = saved.get("combined_loader", [])

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Loads the states that Lightning has read but not loaded."""
        states, self._states = self._states, []
        loop = trainer.fit_loop
        loaders = loop._combined_loader
        if not states or not any(map(_is_ours, loaders.flattened)):
            return
        is_length_known = loop._data_fetcher.length is not None
        if loop._combined_loader_states_to_load and (loop.restarting or not is_length_known):
            loaders._load_state_dicts(states)
            loop._combined_loader_states_to_load = []
            iter(loop._data_fetcher)
        if loop.restarting:
            stateful = [loader for loader in loaders.flattened if hasattr(loader, "state_dict")]
            for loader, state in zip(stateful, states, strict=True):
                _count_batches(loader, state, trainer)


def _is_ours(loader: Any) -> bool:
    is_stream = isinstance(getattr(loader, "dataset", None), StreamDataset | PackedStream)
    is_sampled = isinstance(getattr(loader, "batch_sampler", None), EpochSampler)
    return isinstance(loader, DeviceLoader) or is_stream or is_sampled


def _count_batches(loader: Any, state: Any, trainer: Any) -> None:
    """Sets the number of batches done in the epoch according to the current batch size and ranks.

    Of several loaders, the one that ends the epoch counts.
    """
    sampler = getattr(loader, "batch_sampler", None)
    # With snapshot_every_n_steps, a StatefulDataLoader has the state of an earlier batch.
    if not isinstance(sampler, EpochSampler) or state.get("_steps_since_snapshot"):
        return
    sampler_state = next(states_within(state, {"epoch", "consumed"}, "ResumeLoaders"))
    count, limit = sampler.batches(sampler_state["epoch"]), trainer.limit_train_batches
    # A smaller integer limits the number of batches in an epoch, for any batch size.
    if int(count * limit if isinstance(limit, float) else count) != trainer.fit_loop.max_batches:
        return
    batches = trainer.fit_loop.epoch_loop.batch_progress
    progress = batches.current
    left = sampler.batches(sampler_state["epoch"], sampler_state["consumed"])
    num_done = count - left
    if batches.is_last_batch:  # the limit had been reached, and the next epoch begins
        num_done = trainer.fit_loop.max_batches
    elif left:  # because Lightning repeats an epoch whose limit has been reached
        num_done = min(num_done, trainer.fit_loop.max_batches - 1)
    more = num_done - progress.ready
    for name in ("ready", "started", "processed", "completed"):
        setattr(progress, name, getattr(progress, name) + more)


def callbacks() -> list[Any]:
    """Returns the callbacks that the entry point adds to every ``Trainer``."""
    return [ResumeLoaders()]
