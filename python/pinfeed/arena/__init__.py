"""Memory that workers write batches into and the trainer reads them from, without a copy.

``trainer`` makes the arena and hands it over, ``worker`` allocates in it, ``messages`` carries
storages from one to the other, ``pinning`` locks the memory for devices with ``cuda_runtime``, ``stats``
shows it all to the user.
"""
