"""Check histories of runs against the guarantees (reliability §5.1).

A rig records the requests and answers of its clients (`Recorder`), reads every partition at the end, and passes the
history to `check`: 18 kinds of anomaly, vacuous runs, and linearizability of metadata and of stored positions.
`python -m tests.checker FILE...` judges stored histories, one JSON object per line.
"""

from tests.checker.history import Event, History, Operation, Phase, Recorder
from tests.checker.judge import Verdict, check

__all__ = ["Event", "History", "Operation", "Phase", "Recorder", "Verdict", "check"]
