"""Named points between the steps of a commit, at which a test can end the process or fail the step.

The environment variable `LAKE_FAILPOINTS` names a folder. A point acts when the folder has a file with its
name, which it removes: `kill` in it ends the process at once, `fail` raises `OSError`. Without the variable a point
does nothing.
"""

import os
from pathlib import Path
from typing import Final, Literal, get_args

VARIABLE: Final = "LAKE_FAILPOINTS"

Name = Literal[
    "files-written",  # a task has closed its files, and has not reported them
    "before-commit",  # the driver has decided to append, and has not committed
    "after-commit",  # the table has the epoch, and the driver has not moved files or answered
    "between-moves",  # a Parquet table has the commit record, and the first file is in its place
    "before-answer",  # everything is in its place, and Spark has no answer
]
NAMES: Final[tuple[Name, ...]] = get_args(Name)


def failpoint(name: Name) -> None:
    """End the process or raise, if a test asks for it at this point.

    Raises:
        OSError: the action is `fail`.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return
    wanted = Path(folder) / name
    try:
        action = wanted.read_text().strip()
        wanted.unlink()
    except FileNotFoundError:
        return
    if action == "kill":
        os._exit(137)
    raise OSError(f"failpoint {name}")
