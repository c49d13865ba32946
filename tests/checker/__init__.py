"""Judges histories of runs against the promises (reliability §5.1).

A rig records what its clients asked and were told (`Recorder`), reads every partition at the end, and hands the history
to `check`: 18 kinds of anomaly, vacuous runs, and linearizability of metadata and of stored reader positions.
`python -m tests.checker FILE...` judges histories kept in files, one JSON object a line.
"""

from tests.checker.history import Event, History, Operation, Phase, Recorder
from tests.checker.judge import Verdict, check

__all__ = ["Event", "History", "Operation", "Phase", "Recorder", "Verdict", "check"]
