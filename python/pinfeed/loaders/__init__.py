"""Loaders run ahead of the training loop, and their batches taken to the device.

A batch goes through these files from top to bottom:

    from_numpy      arrays to a DeviceLoader around a DataLoader
    device_loader   DeviceLoader: a loop over it begins a Feed
    feed            the thread that runs the loader's iterator, and the queue of batches it fetched
    transfer        copies to the device, through memory/staging.py (pinned buffers, streams)
    batch_entries    which parts of a batch can be on a device
    stats           where the time of a loop goes
"""
