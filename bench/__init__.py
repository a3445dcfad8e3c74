"""The benchmark suite: `python -m bench` from the checkout; see README.md beside this file."""
