"""Where batches lie: pooled, pinned, or in the memory that workers share with their trainer."""
