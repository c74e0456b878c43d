"""`python -m proxnas`."""

import sys

from proxnas.cli import main

if __name__ == "__main__":  # processes that are spawned import this file too
    sys.exit(main())
