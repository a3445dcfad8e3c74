"""Where batches go that no torch training step takes: NumPy, TensorFlow, files."""
