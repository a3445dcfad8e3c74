"""Benchmarks: pinfeed against the alternatives and a reference."""
