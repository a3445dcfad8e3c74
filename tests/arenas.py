"""Whether batches lie in the arena."""

from pinfeed.memory import trainer


def in_arena(tensor):
    """Whether a tensor of this process lies where a worker wrote it."""
    address = tensor.data_ptr()
    return any(
        slot.address <= address < slot.address + slot.capacity
        for worker in trainer._workers.values()
        for slot in worker.slots.values()
    )
