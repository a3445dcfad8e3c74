"""Prefetching loaders, and copies of their batches to the device.

A batch passes through these files from top to bottom:

    from_numpy      arrays to a DeviceLoader around a DataLoader
    device_loader   DeviceLoader: a loop over it begins a Prefetcher
    prefetcher      the thread that runs the loader's iterator, and the queue of prefetched batches
    transfer        copies to the device, through memory/staging.py (pinned buffers, streams)
    stats           the time of a loop by stage
"""
