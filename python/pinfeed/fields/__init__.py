"""Fields: each makes one entry of a batch from that entry of the samples."""
