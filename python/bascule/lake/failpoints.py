"""Named points between the steps of a commit, at which a test can end the process or fail the step.

The environment variable `BASCULE_LAKE_FAILPOINT` is `<name>=kill` or `<name>=fail`, or `<name>=<action>@<file>` for
once: the point acts only while the file exists, and removes it. Without the variable every point is a look-up.
"""

import os
from pathlib import Path
from typing import Final, Literal

VARIABLE: Final = "BASCULE_LAKE_FAILPOINT"

Name = Literal[
    "files-written",  # a task has closed its files, and has not reported them
    "before-commit",  # the driver has decided to append, and has not committed
    "after-commit",  # the table has the epoch, and the driver has not moved files or answered
    "between-moves",  # a Parquet table has the commit record and the first file in place
    "before-answer",  # everything is in place, and Spark has no answer
]


def failpoint(name: Name) -> None:
    """End the process or raise, if the environment asks for it at this point.

    Raises:
        OSError: the action is `fail`.
    """
    wanted, _, action = os.environ.get(VARIABLE, "").partition("=")
    if wanted != name:
        return
    action, _, once = action.partition("@")
    if once:
        try:
            Path(once).unlink()
        except FileNotFoundError:
            return
    if action == "kill":
        os._exit(137)
    raise OSError(f"failpoint {name}")
