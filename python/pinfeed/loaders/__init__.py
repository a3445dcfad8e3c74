"""The parts of a `DeviceLoader`.

loader's iterator
    │  Feed            a thread that runs it ahead, and what it has fetched
    ▼
Transfer               HostTransfer hands batches over; DeviceTransfer copies them:
    │                  leaves of the batch → Slot (pinned) → Accelerator (streams, memory)
    ▼
BatchSpec              the fields, applied where the batch is now
    │
    ▼
consumer
"""
