"""Memory of batches: pooled, pinned, or shared between workers and the main process."""
