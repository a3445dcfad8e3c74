"""The parts of `pinfeed.StreamDataset`.

shards           which stretches of the stream this (rank, worker) reads   share.py
  │
  ▼
samples          read from any position on, errors named                   shard_reader.py
  │
  ▼
own samples      dealt out in turn where shards are shared                 share.py
  │
  ▼
shuffled         by a buffer that can be filled again as it was            shuffle_buffer.py

How far that is, and what a stream must have in common with another to go on there: stream_state.py.
What a stream shares with its workers: shared_cells.py.
"""
