"""Whole loaders as arrays: `pinfeed.to_numpy`."""

from pinfeed.exports.to_numpy.to_numpy import to_numpy

__all__ = ["to_numpy"]
