"""Named points in the processes of a pipeline at which a test can kill the process, fail the step, or hold it.

The environment variable `PIPELINE_FAILPOINTS` names a folder. A point acts once when the folder has a file with its
name, which it removes. The file contains the action:

| Action | What happens |
|---|---|
| `kill` | the process ends at once, as by `kill -9` |
| `fail` | the step raises `OSError` |
| `hold` | the step waits while the folder has a file `<name>.held`, which it creates |

Without the variable a point does nothing. The points of the broker are others (`specs/failpoints.toml`).
"""

import os
import signal
import time
from pathlib import Path
from typing import Final, Literal, get_args

VARIABLE: Final = "PIPELINE_FAILPOINTS"

Name = Literal[
    "archive.files_written",  # a task has closed its files, and has not reported them
    "archive.before_commit",  # the driver has decided to append, and has not committed
    "archive.after_commit",  # the table has the epoch, and the driver has not moved files or answered
    "archive.between_moves",  # a Parquet table has the commit record, and the first file is in its place
    "archive.before_answer",  # everything is in its place, and Spark has no answer
    "merge.before_commit",  # the driver has decided to merge, and has not committed
    "merge.after_commit",  # the table has the epoch, and Spark has no answer
    "erase.before_commit",  # the files without the records are written, and the table has the old ones
    "erase.after_commit",  # the table has the new files, not yet in their places, and nobody has an answer
    "sink.staging",  # a task has sent rows to the broker, which has not sealed them
    "sink.staged",  # the broker has sealed all rows of a task, and the driver has no message
    "sink.before_publish",  # the driver has the messages of all tasks, and has not asked for a decision
    "sink.published",  # the epoch is decided, and Spark has no answer
    "replay.staged",  # all rows of an epoch are staged, and the checkpoint does not say where it ends
    "replay.ended",  # the checkpoint says where the epoch ends, and it is not published
    "replay.published",  # the epoch is decided, and the next one has not begun
    "job.target_written",  # a target of a job has the epoch; the next one and the checkpoint do not
]
NAMES: Final[tuple[Name, ...]] = get_args(Name)

_POLL_S: Final = 0.02


def failpoint(name: Name) -> None:
    """End the process, raise or wait, if a test asks for it at this point.

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
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "hold":
        held = wanted.with_name(f"{name}.held")
        held.touch()
        while held.exists():
            time.sleep(_POLL_S)
        return
    raise OSError(f"failpoint {name}")
