"""Anomalies of the log's content: A1 to A7, A12, A14, A15, A17, A18. Each needs one pass over its facts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.checker.facts import Anomaly, Facts
from tests.checker.history import Phase


def lost_writes(facts: Facts) -> Iterator[Anomaly]:
    """A1: an acked value is missing from the final read."""
    there = set(facts.final().values())
    superseded = _superseded(facts)
    for value, offset, call in facts.acked():
        if value not in there and offset >= facts.log_start and offset not in superseded:
            yield facts.anomaly(
                "A1", f"{value} acked at offset {offset} is lost", tolerated=facts.may_be_lost(call.invoke)
            )


def _superseded(facts: Facts) -> set[int]:
    """Offsets that compaction may have removed: a later record has the same key."""
    if not facts.compacted:
        return set()
    newest: dict[str, int] = {}
    keyed: list[tuple[str, int]] = []
    there = facts.final()
    for call in facts.publishes:
        offsets = call.ok.offsets if call.ok else ()
        for key, offset in zip(call.invoke.record_keys, offsets, strict=False):
            if key is not None:
                keyed.append((key, offset))
                if offset in there:
                    newest[key] = max(newest.get(key, -1), offset)
    return {offset for key, offset in keyed if offset < newest.get(key, -1)}


def unseen(facts: Facts) -> Iterator[Anomaly]:
    """A2: an acked value was never delivered to any reader by the end.

    If readers polled, they must have seen everything from the lowest requested offset; otherwise the final read counts
    as the reader.
    """
    seen = {value for _, value, _ in facts.delivered()}
    starts = [poll.invoke.start for poll in facts.polls if poll.invoke.start is not None]
    since = max(min(starts, default=0), facts.log_start)
    if not facts.polls:
        seen = set(facts.final().values())
    superseded = _superseded(facts)
    for value, offset, call in facts.acked():
        if offset >= since and value not in seen and offset not in superseded:
            yield facts.anomaly(
                "A2", f"{value} acked at offset {offset} was never seen", tolerated=facts.may_be_lost(call.invoke)
            )


def _places(facts: Facts) -> Iterator[tuple[int, str]]:
    """Offset and value of every sighting: acks, polls, final reads."""
    for value, offset, _ in facts.acked():
        yield offset, value
    for offset, value, _ in facts.delivered():
        yield offset, value
    for copy in facts.copies.values():
        yield from copy.records.items()


def duplicates(facts: Facts) -> Iterator[Anomaly]:
    """A3: one value at two offsets. Without idempotence this is allowed for a value that was sent twice."""
    places: defaultdict[str, set[int]] = defaultdict(set)
    for offset, value, _ in facts.delivered():
        places[value].add(offset)
    for copy in facts.copies.values():
        for offset, value in copy.records.items():
            places[value].add(offset)
    for value, offsets in places.items():
        if len(offsets) > 1:
            sendings = facts.sent.get(value, [])
            repeated = len(sendings) > 1 and not any(sent.call.invoke.idempotent for sent in sendings)
            yield facts.anomaly("A3", f"{value} is at offsets {sorted(offsets)}", tolerated=repeated)


def inconsistent_offsets(facts: Facts) -> Iterator[Anomaly]:
    """A4: one offset, two values, over time or between replicas."""
    first: dict[int, str] = {}
    reported: set[int] = set()
    for offset, value in _places(facts):
        if first.setdefault(offset, value) != value and offset not in reported:
            reported.add(offset)
            yield facts.anomaly("A4", f"offset {offset} held {first[offset]} and {value}")


def aborted_reads(facts: Facts) -> Iterator[Anomaly]:
    """A5: the value of a publish that failed was delivered."""
    failed = {
        value for value, sendings in facts.sent.items() if all(sent.call.phase is Phase.FAIL for sent in sendings)
    }
    yield from _sighted(facts, failed, "A5", "was refused, yet it is at offset")


def phantoms(facts: Facts) -> Iterator[Anomaly]:
    """A6: a value that nobody sent."""
    reported: set[str] = set()
    for offset, value in _places(facts):
        if value not in facts.sent and value not in reported:
            reported.add(value)
            yield facts.anomaly("A6", f"nobody sent {value}, found at offset {offset}")


def _sighted(facts: Facts, values: set[str], code: str, message: str) -> Iterator[Anomaly]:
    reported: set[str] = set()
    for offset, value in _places(facts):
        if value in values and value not in reported:
            reported.add(value)
            yield facts.anomaly(code, f"{value} {message} {offset}")


def offset_mismatches(facts: Facts) -> Iterator[Anomaly]:
    """A7: the position in the log differs from the acked one."""
    where: defaultdict[str, set[int]] = defaultdict(set)
    for offset, value, _ in facts.delivered():
        where[value].add(offset)
    for offset, value in facts.final().items():
        where[value].add(offset)
    for value, offset, _ in facts.acked():
        if where[value] and offset not in where[value]:
            yield facts.anomaly("A7", f"{value} acked at offset {offset} is at {sorted(where[value])}")


def producer_order(facts: Facts) -> Iterator[Anomaly]:
    """A12: sends of one producer are stored in another order.

    A publish with unknown outcome may have been delayed for long, so the order after it is not checked.
    """
    where = {value: offset for offset, value in facts.final().items()}
    last: dict[str, tuple[int, str]] = {}
    for call in sorted(facts.publishes, key=lambda call: (call.invoke.process, call.invoke.call)):
        if call.phase is not Phase.OK and not call.invoke.idempotent:
            continue
        for value in call.invoke.values:
            offset = where.get(value)
            if offset is None:
                continue
            before = last.get(call.invoke.process)
            if before and offset < before[0]:
                yield facts.anomaly(
                    "A12", f"{value} at offset {offset} was sent after {before[1]} at offset {before[0]}"
                )
            last[call.invoke.process] = max(before or (-1, ""), (offset, value))


def uncommitted_reads(facts: Facts) -> Iterator[Anomaly]:
    """A14: a delivered record later differs or vanishes."""
    if not facts.copies:
        return
    there = facts.final()
    first: dict[int, str] = {}
    reported: set[int] = set()
    for offset, value, _ in facts.delivered():
        now = there.get(offset)
        gone = now is None and offset >= facts.log_start and not facts.compacted
        differs = (now is not None and now != value) or first.setdefault(offset, value) != value
        if (gone or differs) and offset not in reported:
            reported.add(offset)
            yield facts.anomaly(
                "A14",
                f"{value} was delivered at offset {offset}, where now is {now or 'nothing'}",
                tolerated=gone and facts.value_may_be_lost(value),
            )


def real_time_order(facts: Facts) -> Iterator[Anomaly]:
    """A15: B was sent after A's ack, but is stored before A."""
    earliest: tuple[int, str] | None = None
    for offset, value in reversed(facts.final().items()):
        sendings = facts.sent.get(value, [])
        begun = min((sent.call.invoke.time for sent in sendings), default=None)
        if earliest and begun is not None and earliest[0] < begun:
            yield facts.anomaly("A15", f"{value} at offset {offset} was sent after the ack of {earliest[1]}, behind it")
        for sent in sendings:
            if sent.call.ok:
                acked = (sent.call.ok.time, value)
                earliest = min(earliest, acked) if earliest else acked


def divergence(facts: Facts) -> Iterator[Anomaly]:
    """A17: committed bytes differ between replicas."""
    copies = list(facts.copies.items())
    if not copies:
        return
    (name, reference), *others = copies
    for other_name, other in others:
        since = max(reference.log_start, other.log_start)
        for offset in sorted(reference.records.keys() | other.records.keys()):
            mine = (reference.records.get(offset), reference.digests.get(offset))
            theirs = (other.records.get(offset), other.digests.get(offset))
            if offset >= since and mine != theirs:
                yield facts.anomaly("A17", f"offset {offset} differs between {name} and {other_name}")
                break


def torn_batches(facts: Facts) -> Iterator[Anomaly]:
    """A18: a part of an atomic batch is visible: in the final read, or below a high watermark shown meanwhile."""
    there = {value: offset for offset, value in facts.final().items()}
    inside: dict[int, str] = {}
    for call in facts.publishes:
        values = call.invoke.values
        if not call.invoke.atomic or not values:
            continue
        found = [there[value] for value in values if value in there]
        removable = facts.compacted or min(found, default=0) == facts.log_start > 0
        if found and len(found) < len(values) and not removable:
            yield facts.anomaly(
                "A18", f"{len(found)} of the {len(values)} records of the batch of {values[0]} are there"
            )
        if len(found) == len(values):
            inside |= dict.fromkeys(range(min(found) + 1, max(found) + 1), values[0])
    for call in facts.shown:
        end = call.ok.high_watermark if call.ok else None
        if end in inside:
            yield facts.anomaly("A18", f"the high watermark {end} lies within the batch of {inside[end]}")
