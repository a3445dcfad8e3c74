"""Fields: each makes one leaf of a batch from that leaf of the samples."""
