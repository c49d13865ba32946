"""The commands `bascule` and `liftbridge`: parse, call, render. Every command is a small function; what it found out is
one typed result, which `output` prints in the form that was asked for.
"""

import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]

EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, without the program's name; `None` = this process's. Returns its exit code.

    Loading the commands takes a good part of a second; Ctrl-C within it ends the process at once, without a traceback.
    """
    try:
        from bascule.cli.app import main as run  # noqa: PLC0415 - inside, so that an interrupt is caught
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write("bascule: interrupted before it started\n")
        return EXIT_INTERRUPTED
    return run(arguments)
