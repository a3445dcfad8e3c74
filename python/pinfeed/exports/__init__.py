"""Batches as NumPy arrays, TensorFlow datasets and files."""
