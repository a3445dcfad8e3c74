"""Whole loaders as datasets of TensorFlow: `pinfeed.to_tensorflow`."""

from pinfeed.exports.to_tensorflow.to_tensorflow import to_tensorflow

__all__ = ["to_tensorflow"]
