"""Rare situations that a run over many seeds must reach; a missing one fails the run.

Without this list, coverage can shrink unnoticed: after a changed probability some path is never taken again.
"""

from __future__ import annotations

from collections import Counter

SITUATIONS = (
    "a batch was refused for an old epoch",
    "a batch was compressed",
    "a checkpoint was damaged between two lives",
    "a clean log was opened again",
    "a commit was answered by an error",
    "a compaction removed superseded records",
    "a creation was cut short and done again",
    "a cut tail did not come back in a later life",
    "a damaged record was refused and the others were served",
    "a file of epochs was damaged between two lives",
    "a high watermark from the future was not believed",
    "a kill kept what was never synced",
    "a log recovered twice was the same",
    "a misdirected write was survived",
    "a partition was deleted and created again",
    "a prefix of the files recovered to a prefix of the log",
    "a producer's repetition was recognised after a recovery",
    "a record that could not be read was refused",
    "a recovery was cut short",
    "a retention took segments",
    "a second recovery went on after one that was cut short",
    "a segment was damaged between two lives",
    "a segment was sealed by age",
    "a segment was sealed by size",
    "a snapshot of producers was damaged between two lives",
    "a sync failed",
    "a torn tail was cut",
    "a trim moved the log start",
    "a write failed",
    "a valid page was overwritten by another page",
    "after a failed sync a new life began on the same memory",
    "an empty log survived",
    "an index was damaged between two lives",
    "an open failed for a fault and succeeded later",
    "marked files were swept after their grace",
    "another incarnation was refused its directory",
    "a cut batch was laid behind the end and refused",
    "names were lost in a crash",
    "no descriptors were left",
    "no space was left",
    "pages of one sync were kept in part",
    "several partitions were committed in one round",
    "space came back and appends went on",
    "the clock went back",
    "the power went during a close",
    "the power went during a compaction",
    "the power went during a creation",
    "the power went during a maintenance",
    "the power went during a step",
    "the power went during an append",
    "the power went in class memory and records were lost",
    "the power went with nothing unsynced",
    "the recovery kept more than was acked",
    "the recovery kept the acked and nothing else",
    "the worst crash would have kept every ack",
    "the worst crash would have kept every ack by the journal",
    "timestamps were raised to the latest",
)

FOLLOWED = (
    "a follower refused batches that do not follow",
    "a follower took batches as they are",
    "a follower's log was reset",
    "a follower's log was truncated",
    "the power went during a reset",
    "the power went during a truncation",
)
"""Those of runs in which logs also do what a follower does."""


class Reached:
    """Counts the situations."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def sometimes(self, situation: str, *, when: bool = True) -> None:
        """Count a situation.

        Raises:
            KeyError: the situation is not in the list.
        """
        if situation not in SITUATIONS + FOLLOWED:
            raise KeyError(situation)
        if when:
            self.counts[situation] += 1


def missing(counts: Counter[str], *, follower: bool = False) -> list[str]:
    """The situations that did not occur."""
    expected = SITUATIONS + FOLLOWED if follower else SITUATIONS
    return [situation for situation in expected if not counts[situation]]
