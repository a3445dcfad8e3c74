"""``python -m examples.demo``, in a checkout."""

import sys

from examples.demo.command import main

if __name__ == "__main__":  # because spawned processes import this file
    sys.exit(main())
