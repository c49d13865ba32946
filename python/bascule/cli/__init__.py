"""The commands `bascule` and `liftbridge`: parse, call, render. Each command is a small function that builds one typed
result; `render.output` prints it in the requested format.
"""

import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]

EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; `None` = that of this process). Returns the exit code.

    Loading the commands takes up to a second; Ctrl-C during that time ends the process at once, without a traceback.
    """
    try:
        from bascule.cli.app import main as run  # noqa: PLC0415 - inside, so that an interrupt is caught
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write("bascule: interrupted before it started\n")
        return EXIT_INTERRUPTED
    return run(arguments)
