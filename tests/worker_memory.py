"""Detects batches in worker memory."""

from pinfeed.memory import main_process


def in_worker_memory(tensor):
    """Returns whether a worker wrote the memory of a tensor of this process."""
    address = tensor.data_ptr()
    return any(
        slot.address <= address < slot.address + slot.capacity
        for worker in main_process._workers.values()
        for slot in worker.slots.values()
    )
