"""Memory for batches: pooled, pinned, or shared between workers and the main process."""
