"""`pinfeed.StreamDataset`, and how a sample gets to the one worker that yields it.

own shards       dealt out to ranks and workers                            share.py
  │
  ▼
their samples    read from any position on                                 shards.py
  │
  ▼
own samples      dealt out in turn, where several workers read a shard     share.py
  │
  ▼
shuffled         in a buffer, which a resumed pass fills as it was         shuffle_buffer.py

passes.py puts them together, and holds the state from which a pass goes on. moved.py finds what is left
for other ranks and workers. samplers/epoch_clock.py says which epoch a pass is of. packed_stream.py packs
what a stream yields into rows.
"""
