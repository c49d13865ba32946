"""`python -m bascule.cli.liftbridge` is the `liftbridge` command."""

import sys

from bascule.cli.liftbridge import main

sys.exit(main())
