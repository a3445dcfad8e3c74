"""Which samples make a batch, and in which order."""
