"""The verdict over a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.checker import content, reading
from tests.checker.facts import Anomaly, Facts, gather
from tests.checker.history import History, Operation, Phase
from tests.checker.linearizable import Outcome, search
from tests.checker.positions import position_anomalies

CHECKS: tuple[Callable[[Facts], Iterator[Anomaly]], ...] = (
    content.lost_writes,
    content.unseen,
    content.duplicates,
    content.inconsistent_offsets,
    content.aborted_reads,
    content.phantoms,
    content.offset_mismatches,
    reading.backward_within,
    reading.skips_within,
    reading.backward_between,
    reading.skips_between,
    content.producer_order,
    reading.end_regressions,
    content.uncommitted_reads,
    content.real_time_order,
    content.divergence,
    content.torn_batches,
)

MOST_UNKNOWN = 0.3
"""Share of `info` calls above which a run proves nothing."""
LEAST_SUCCESSFUL = 0.6
"""Share of the expected successes below which a run proves nothing."""


@dataclass
class Verdict:
    """The result of judging a history."""

    anomalies: list[Anomaly] = field(default_factory=list[Anomaly])
    tolerated: Counter[str] = field(default_factory=Counter[str])
    """Number of tolerated anomalies by code, which the promises of their records allow."""
    broken: list[Outcome] = field(default_factory=list[Outcome])
    """Keys that are not linearizable."""
    unknown: list[Outcome] = field(default_factory=list[Outcome])
    """Keys whose search exceeded the limit."""
    vacuous: str = ""
    """Why the run proves nothing, or empty."""
    calls: int = 0

    @property
    def codes(self) -> set[str]:
        """The codes of the anomalies."""
        return {anomaly.code for anomaly in self.anomalies}

    @property
    def passed(self) -> bool:
        """Whether there are no anomalies and no broken keys. Without meaning if the run is vacuous."""
        return not self.anomalies and not self.broken

    def __str__(self) -> str:
        found = [str(anomaly) for anomaly in self.anomalies[:20]]
        found += [f"{outcome.key} is not linearizable: {outcome.message}" for outcome in self.broken]
        summary = f"{self.calls} calls, {len(self.anomalies)} anomalies, {len(self.broken)} keys not linearizable"
        if self.unknown:
            summary += f", {len(self.unknown)} keys not decided"
        if self.tolerated:
            summary += f", tolerated: {dict(sorted(self.tolerated.items()))}"
        if self.vacuous:
            summary += f", vacuous: {self.vacuous}"
        return "\n".join([summary, *found])


def check(history: History) -> Verdict:
    """Judge a history. Linear in its size, apart from the search for an order of metadata calls."""
    verdict = Verdict(calls=len(history.calls))
    facts = gather(history)
    for partition in facts:
        for find in CHECKS:
            for anomaly in find(partition):
                if anomaly.tolerated:
                    verdict.tolerated[anomaly.code] += 1
                else:
                    verdict.anomalies.append(anomaly)
    verdict.anomalies.extend(position_anomalies(history))
    for outcome in search(history):
        if outcome.linearizable is False:
            verdict.broken.append(outcome)
        elif outcome.linearizable is None:
            verdict.unknown.append(outcome)
    verdict.vacuous = vacuous(history, facts)
    return verdict


def vacuous(history: History, facts: list[Facts]) -> str:
    """Why a run proves nothing: many unknown outcomes, few successes, no fault, no final read; empty = valid."""
    expected, fired = 0, False
    done, unknown, asked = 0, 0, 0
    for call in history.calls:
        match call.invoke.operation:
            case Operation.RUN:
                expected = int(call.invoke.expected or 0)
            case Operation.FAULT:
                fired = True
            case Operation.FINAL:
                pass
            case _:
                asked += 1
                unknown += call.phase is Phase.INFO
                done += call.phase is Phase.OK
    reasons: list[str] = []
    if not fired:
        reasons.append("no fault was fired")
    if unknown > MOST_UNKNOWN * asked:
        reasons.append(f"{unknown} of {asked} calls have an unknown outcome")
    if not done or done < LEAST_SUCCESSFUL * expected:
        reasons.append(f"{done} calls succeeded, {expected} were expected")
    if missing := [partition.partition[1] for partition in facts if partition.incomplete]:
        reasons.append(f"no final read of partitions {missing}")
    return "; ".join(reasons)
