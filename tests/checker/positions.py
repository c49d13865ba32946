"""Anomalies of stored reader positions: A16."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.checker.facts import Anomaly
from tests.checker.history import Call, History, Operation

Stored = tuple[int, int]
"""Generation and position: later ones are larger."""


def position_anomalies(history: History) -> Iterator[Anomaly]:
    """A16: a stored position that is older than an acknowledged one, of another generation, or of another incarnation.

    A commit under an old generation has to be refused; a fetch has to answer the newest commit that was acknowledged
    before it was asked, or a later one.
    """
    groups: defaultdict[tuple[str, int, int], list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.invoke.operation in {Operation.COMMIT, Operation.FETCH}:
            groups[call.invoke.group, call.invoke.incarnation, call.invoke.partition].append(call)
    for (group, incarnation, partition), calls in sorted(groups.items()):
        for message in _group(calls, incarnation):
            yield Anomaly("A16", (incarnation, partition), f"group {group}: {message}")


def _group(calls: list[Call], incarnation: int) -> Iterator[str]:
    commits = [(call.ok.time, call.invoke) for call in calls if call.invoke.operation is Operation.COMMIT and call.ok]
    commits.sort(key=lambda commit: commit[0])
    possible = {
        (call.invoke.generation, call.invoke.position)
        for call in calls
        if call.invoke.operation is Operation.COMMIT and not (call.end and not call.ok)
    }
    at = 0
    newest: Stored = (-1, -1)
    for call in calls:
        while at < len(commits) and commits[at][0] < call.invoke.time:
            invoke = commits[at][1]
            newest = max(newest, (invoke.generation, invoke.position or 0))
            at += 1
        if call.ok is None:
            continue
        if call.invoke.operation is Operation.COMMIT:
            if call.invoke.generation < newest[0]:
                yield f"a commit of generation {call.invoke.generation} was accepted after one of {newest[0]}"
            continue
        position = call.ok.position
        found = (-1, -1) if position is None else (call.ok.generation, position)
        if found < newest:
            yield f"(generation, position) {found} was fetched after {newest} was acknowledged"
        elif position is not None and found not in possible:
            yield f"(generation, position) {found} was fetched, which nobody committed"
        if position is not None and call.ok.position_incarnation not in {None, incarnation}:
            yield f"the position fetched belongs to incarnation {call.ok.position_incarnation}"
