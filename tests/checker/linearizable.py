"""Checks linearizability of metadata and of stored positions: one order of the calls of a key explains every answer.

The algorithm is that of Wing and Gong in the form of Lowe: it walks the events in time and keeps all possible *states*
(the value, and which pending calls have taken effect). At an answer, only states remain in which the call has taken
effect with that answer. If none remains, the history is not linearizable. Calls with unknown outcome stay pending.
Keys are independent, so each is searched alone; the number of states is bounded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from tests.checker.history import Call, Event, History, Operation

BOUND = 20_000
"""Maximum number of states of one key at one time; beyond it the result is *unknown*."""

Value = Hashable
Affairs = tuple[Value, frozenset[int]]
"""The value, and the pending calls that have taken effect."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the search for one key."""

    key: str
    linearizable: bool | None
    """None = the limit was exceeded."""
    message: str = ""


def search(history: History, bound: int = BOUND) -> Iterator[Outcome]:
    """The outcome for each key of the metadata and for each position of a group."""
    keys: defaultdict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        invoke = call.invoke
        if invoke.operation in {Operation.WRITE, Operation.READ, Operation.SWAP}:
            keys[invoke.key].append(call)
        elif invoke.operation in {Operation.COMMIT, Operation.FETCH}:
            keys[f"position of {invoke.group} in {invoke.partition} of {invoke.incarnation}"].append(call)
    for key, calls in sorted(keys.items()):
        yield _search_key(key, calls, bound)


def _search_key(key: str, calls: list[Call], bound: int) -> Outcome:
    possible: set[Affairs] = {(None, frozenset())}
    under_way: dict[int, Call] = {}
    for _, number, answered in _steps(calls):
        if not answered:
            under_way[number] = calls[number]
            continue
        possible = _take_effect(possible, under_way, number, bound)
        if len(possible) > bound:
            return Outcome(key, None, f"given up at {bound} states")
        if not possible:
            end = calls[number].end
            shown = _answer(end) if end and calls[number].ok else "a refusal"
            return Outcome(key, linearizable=False, message=f"nothing explains {shown!r} to {end and end.process}")
        del under_way[number]
    return Outcome(key, linearizable=True)


def _steps(calls: list[Call]) -> list[tuple[int, int, bool]]:
    """Times of calls and answers, with the number of the call; calls without an effect are left out."""
    steps: list[tuple[int, int, bool]] = []
    for number, call in enumerate(calls):
        if _has_effect(call):
            steps.append((call.invoke.time, number, False))
            if call.end:
                steps.append((call.end.time, number, True))
    return sorted(steps)


def _take_effect(possible: Iterable[Affairs], under_way: dict[int, Call], number: int, bound: int) -> set[Affairs]:
    """All states in which call `number` has taken effect, after any of the pending calls."""
    done: set[Affairs] = set()
    seen: set[Affairs] = set()
    open_states = list(possible)
    while open_states and len(seen) <= bound:
        value, effective = open_states.pop()
        if (value, effective) in seen:
            continue
        seen.add((value, effective))
        if number in effective:
            done.add((value, effective - {number}))
            continue
        for i, call in under_way.items():
            if i not in effective:
                allowed, after = _apply(call, value)
                if allowed:
                    open_states.append((after, effective | {i}))
    return done if len(seen) <= bound else seen


def _has_effect(call: Call) -> bool:
    """Whether the call is a read with unknown outcome or a rejected write, which cannot matter."""
    if call.end is None:
        return call.invoke.operation not in {Operation.READ, Operation.FETCH}
    return call.ok is not None or call.invoke.operation is Operation.SWAP


def _apply(call: Call, value: Value) -> tuple[bool, Value]:
    """Whether the call can take effect now with its answer, and the value after it."""
    invoke = call.invoke
    match invoke.operation:
        case Operation.WRITE:
            return True, invoke.value
        case Operation.COMMIT:
            return not isinstance(value, tuple) or invoke.generation >= value[0], (invoke.generation, invoke.position)
        case Operation.SWAP:
            if call.end and not call.ok:
                return value != invoke.expected, value
            return value == invoke.expected, invoke.value
        case _:
            return call.ok is not None and _answer(call.ok) == value, value


def _answer(event: Event) -> Value:
    """The result of a read or fetch."""
    if event.operation is Operation.FETCH:
        return None if event.position is None else (event.generation, event.position)
    return event.value
