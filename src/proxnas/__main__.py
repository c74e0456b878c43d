"""`python -m proxnas`."""

import sys

from proxnas.cli import main

sys.exit(main())
