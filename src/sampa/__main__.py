"""`python -m sampa` is the `sampa` command."""

import sys

from sampa.lab.cli import main

sys.exit(main())
