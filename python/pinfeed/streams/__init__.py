"""The parts of `pinfeed.StreamDataset`.

shards           which part of the stream this (rank, worker) reads        share.py
  │
  ▼
samples          read from any position on, errors named                   shards.py
  │
  ▼
own samples      dealt out in turn where shards are shared                 share.py
  │
  ▼
shuffled         by a buffer that can be filled again as it was            shuffle_buffer.py

How far a pass is, and what a stream must have in common with another to continue it: passes.py.
"""
