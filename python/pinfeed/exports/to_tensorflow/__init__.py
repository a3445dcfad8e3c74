"""Whole loaders as datasets of TensorFlow: `pinfeed.to_tensorflow`."""
