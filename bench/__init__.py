"""Benchmarks: pinfeed beside what else one would use, and beside a reference."""
