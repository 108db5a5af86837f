"""`python -m sampa` is the `sampa` command."""

import sys

from sampa.cli import main

sys.exit(main())
