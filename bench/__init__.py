"""Benchmarks: pinfeed beside what else one would use, and beside the physical limit."""
