"""`pinfeed.StreamDataset`: from all shards to the samples of one worker.

own shards       distributed over ranks and workers                        share.py
  │
  ▼
their samples    read from any position                                    shards.py
  │
  ▼
own samples      taken in turn, if several workers read a shard            share.py
  │
  ▼
shuffled         in a buffer, which a resumed pass refills                 passes.py

passes.py combines them, and holds the state of a pass. resharding.py computes the rest of an epoch for
other rank and worker counts. samplers/epoch_clock.py determines the epoch of a pass. packed_stream.py packs a
stream's documents into rows.
"""
