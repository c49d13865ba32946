"""Anomalies of reads: A8 to A11, A13. Each needs one pass over the polls."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from itertools import pairwise

from tests.checker.facts import Anomaly, Facts
from tests.checker.history import Call, Notice


def backward_within(facts: Facts) -> Iterator[Anomaly]:
    """A8: offsets repeat or decrease inside one answer."""
    for poll in facts.polls:
        for before, after in pairwise(poll.ok.offsets if poll.ok else ()):
            if after <= before:
                yield facts.anomaly(
                    "A8", f"{poll.invoke.process} was given offset {after} after {before} in one answer"
                )


def skips_within(facts: Facts) -> Iterator[Anomaly]:
    """A9: a committed record is missing inside one answer."""
    there = list(facts.final())
    for poll in facts.polls:
        for before, after in pairwise(poll.ok.offsets if poll.ok else ()):
            if skipped := _between(there, before + 1, after):
                yield facts.anomaly(
                    "A9", f"{poll.invoke.process} was given offset {after} after {before} without {skipped[0]}"
                )


def _between(offsets: list[int], start: int, end: int) -> list[int]:
    """The first of the ascending offsets in [start, end), if any."""
    at = bisect.bisect_left(offsets, start)
    return [offset for offset in offsets[at : at + 1] if offset < end]


def backward_between(facts: Facts) -> Iterator[Anomaly]:
    """A10: the next answer begins before the end of the last one, without a notice."""
    for process, expected, first in _steps(facts):
        if first < expected:
            yield facts.anomaly("A10", f"{process} was given offset {first} when {expected} was next")


def skips_between(facts: Facts) -> Iterator[Anomaly]:
    """A11: a committed record is missing between two answers, without a notice."""
    there = list(facts.final())
    for process, expected, first in _steps(facts):
        if skipped := _between(there, expected, first):
            yield facts.anomaly("A11", f"{process} was given offset {first} when {skipped[0]} was next")


def _steps(facts: Facts) -> Iterator[tuple[str, int, int]]:
    """For each answer with records: the client, the expected offset, the first one. Starts and notices reset it."""
    next_offset: dict[str, int] = {}
    for poll in facts.polls:
        answer, process = poll.ok, poll.invoke.process
        moved = Notice(poll.invoke.notice) if poll.invoke.notice else answer.notice if answer else None
        if moved:
            next_offset.pop(process, None)
        if answer is None or not answer.offsets:
            continue
        begin = next_offset.get(process, poll.invoke.start)
        if begin is not None:
            yield process, begin, answer.offsets[0]
        next_offset[process] = max(answer.offsets) + 1


def end_regressions(facts: Facts) -> Iterator[Anomaly]:
    """A13: a high watermark is smaller than one that was returned before the call was sent, without a notice.

    The largest one returned before the call counts, to any client.
    """
    answered = sorted(facts.shown, key=lambda call: call.ok.time if call.ok else 0)
    at, highest = 0, 0
    for call in facts.shown:
        while at < len(answered) and _answered_at(answered[at]) < call.invoke.time:
            highest = max(highest, _shown(answered[at]))
            at += 1
        if call.ok and call.ok.notice is Notice.TRUNCATED:
            highest = min(highest, _shown(call))
        elif _shown(call) < highest:
            yield facts.anomaly("A13", f"{call.invoke.process} was shown the end {_shown(call)} after {highest}")


def _answered_at(call: Call) -> int:
    return call.ok.time if call.ok else 0


def _shown(call: Call) -> int:
    return call.ok.high_watermark or 0 if call.ok else 0
