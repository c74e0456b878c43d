"""`python -m proxnas`."""

import sys

from proxnas.cli.main import main
from proxnas.common.interrupt import end_with_parent

if __name__ == "__main__":  # processes that are spawned import this file too
    end_with_parent()
    sys.exit(main())
