"""`python -m bascule.cli` is the `bascule` command."""

import sys

from bascule.cli import main

sys.exit(main())
