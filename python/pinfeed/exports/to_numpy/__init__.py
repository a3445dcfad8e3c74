"""Whole loaders as arrays and files: `pinfeed.to_numpy`."""
