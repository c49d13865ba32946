"""Compares the engine with the model: reads, look-ups, producers, epochs, files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator import files
from tests.simulator.model import Model, ViolationError
from tests.simulator.native import Disk, Log, Record, SimError, Store
from tests.simulator.sometimes import Reached

if TYPE_CHECKING:
    from collections.abc import Iterable

Contents = tuple[int, int, tuple[Record, ...]]
"""Log start, log end, records."""


NO_DESCRIPTORS = "os error 24"


class PowerGoneError(Exception):
    """A power cut during a read."""


def read_all(model: Model, log: Log, span: tuple[int, int], reached: Reached, faulty: Disk | None) -> list[Record]:
    """Read and check every record in [start, until); damaged ranges are skipped where they are allowed.

    `faulty`: the disk, if reads may fail.

    Raises:
        ViolationError: A4, A6, A8, A9, I25, or P12 for a range with an unjustified error.
        PowerGoneError: a read failed because of a power cut.
    """
    start, until = span
    found: list[Record] = []
    at = start
    while at < until:
        records, stopped_at, failure = log.read(at, until, 1 << 16)
        model.check_records(records)
        _check_gaps(model, at, [offset for offset, *_ in records], stopped_at if failure is None else None)
        found += records
        if failure is None:
            break
        kind, first, last, message = failure
        if faulty and faulty.is_stopped():
            raise PowerGoneError
        if faulty and kind == "io" and (model.no_opening or NO_DESCRIPTORS in message):
            return found  # a rewritten or closed segment must be opened
        if kind != "damaged" or last <= at:
            raise ViolationError("P12", f"read of partition {model.number} at {stopped_at}: {message}")
        last = min(last, until)
        if not model.weak and not model.may_be_damaged(max(first, at), last):
            raise ViolationError("P12", f"{message} in partition {model.number}, but only {model.damaged} were damaged")
        reached.sometimes("a damaged record was refused and the others were served", when=not model.flaky)
        reached.sometimes("a record that could not be read was refused", when=model.flaky)
        at = last
    return found


def _check_gaps(model: Model, start: int, offsets: list[int], end: int | None) -> None:
    expected = range(start, end if end is not None else (offsets[-1] + 1 if offsets else start))
    missing = sorted(set(expected) - set(offsets) - model.gone)
    if missing or not set(offsets) <= set(expected):
        raise ViolationError("A9", f"offsets {missing[:5]} of partition {model.number} were skipped")


def contents(model: Model, log: Log, reached: Reached) -> Contents:
    """Read and check the whole log."""
    start, end, _, _ = log.ends()
    return start, end, tuple(read_all(model, log, (start, end), reached, None))


def check_journal(store: Store, models: Iterable[Model]) -> None:
    """P12: no loss in the journal is reported if no write was misdirected.

    Raises:
        ViolationError: P12.
    """
    if (lost := store.journal_losses()) and not any(model.weak for model in models):
        raise ViolationError("P12", f"the journal reports the loss of acked records: {lost}")


def open_copy(disk: Disk, model: Model) -> tuple[Log, Store]:
    """Open one log on a separate disk.

    Raises:
        ViolationError: I23 if it cannot be opened; P12.
    """
    try:
        store = Store(disk, model.journal)
        log, _ = store.open(model.path, model.incarnation, model.number, **model.settings.arguments())
    except SimError as error:
        raise ViolationError("I23", f"{model.path} cannot be opened: {error.args}") from error
    check_journal(store, [model])
    log.set_high_watermark(log.ends()[1])
    return log, store


def check_twice(disk: Disk, model: Model, first: Contents, reached: Reached) -> None:
    """I23: a second recovery finds the same as the first, even after a power cut right after it.

    Raises:
        ViolationError: I23.
    """
    copy = disk.fork()
    copy.set_faults()
    copy.crash(0.0, 0.0, 0.0, 0.0)
    log, _ = open_copy(copy, model)
    second = contents(model, log, Reached())
    if second != first:
        raise ViolationError(
            "I23", f"a second recovery of {model.path} found [{second[0]}, {second[1]}), not [{first[0]}, {first[1]})"
        )
    reached.sometimes("a log recovered twice was the same")


def check_prefix(disk: Disk, model: Model, draw: float, reached: Reached) -> None:
    """I24: with a truncated last segment, recovery finds a prefix of the log. Call before `open`, without damage.

    Raises:
        ViolationError: I24, or an error of the comparison with the model.
    """
    copy = disk.fork()
    copy.restart()
    copy.set_faults()
    found = files.segments(copy.paths(), model.path)
    if not found:
        return
    path = found[-1][1]
    content = copy.read(path)
    copy.truncate(path, int(draw * (len(content) + 1)))
    log, _ = open_copy(copy, model)
    start, end, _, _ = log.ends()
    if end > model.end:
        raise ViolationError("I24", f"a shorter {path} made the log longer: {end}, not {model.end}")
    at = start
    while at < end:
        records, _, failure = log.read(at, end, 1 << 16)
        model.check_records(records)
        if failure is None:
            break
        if failure[0] != "damaged" or failure[2] <= at:
            raise ViolationError("I24", f"a shorter {path} cannot be read: {failure}")
        at = failure[2]
    reached.sometimes("a prefix of the files recovered to a prefix of the log")


def check_worst_crash(disk: Disk, model: Model, reached: Reached) -> None:
    """I20, I22: if everything unsynced were lost now, all acked records would still exist.

    Raises:
        ViolationError: A1.
    """
    if model.weak or model.settings.memory or model.damaged or not model.created:
        return
    copy = disk.fork()
    copy.set_faults()
    copy.crash(0.0, 0.0, 0.0, 0.0)
    log, _ = open_copy(copy, model)
    end = log.ends()[1]
    if end < model.acked:
        raise ViolationError("A1", f"{model.path} would end at {end} after a power cut, but {model.acked} were acked")
    reached.sometimes("the worst crash would have kept every ack")
    held = any(any(copy.read(path)) for path in copy.paths() if path.startswith("/journal/"))
    reached.sometimes("the worst crash would have kept every ack by the journal", when=held and model.acked > 0)


def check_tiling(disk: Disk, model: Model, start: int, end: int) -> None:
    """I21: the batches in the files cover [start, end) without gaps, each linked to the previous one.

    Raises:
        ViolationError: I21.
    """
    if model.weak or model.damaged or model.flaky:
        return
    at, link = start, None
    for base, path in files.segments(disk.paths(), model.path):
        if base < start:
            continue
        for batch in files.batches(disk.read(path)):
            if batch.base_offset != at or (link is not None and batch.chain != link):
                raise ViolationError("I21", f"{path} at {batch.position}: offset {batch.base_offset}, expected {at}")
            at, link = batch.next_offset, batch.link
    if at != end:
        raise ViolationError("I21", f"the files of {model.path} end at {at}, the log at {end}")


def check_tail(disk: Disk, model: Model) -> None:
    """After a recovery only zeros follow the last batch, so that truncated data cannot come back.

    Raises:
        ViolationError: I25.
    """
    found = files.segments(disk.paths(), model.path)
    if not found or model.weak or model.damaged or model.flaky:
        return
    content = disk.read(found[-1][1])
    whole = files.batches(content)
    end = whole[-1].end if whole else files.PREAMBLE_BYTES
    if any(content[end:]):
        raise ViolationError("I25", f"{found[-1][1]} has data after its last batch")


def check_foreign(disk: Disk, model: Model, reached: Reached) -> None:
    """P13: the directory of one incarnation is not used or deleted for another.

    Raises:
        ViolationError: P13.
    """
    copy = disk.fork()
    copy.restart()
    copy.set_faults()
    if not any(any(copy.read(path)[:4]) for _, path in files.segments(copy.paths(), model.path)):
        return
    try:
        store = Store(copy, model.journal)
        store.open(model.path, model.incarnation + 1_000, model.number, **model.settings.arguments())[0].delete()
    except SimError as error:
        if error.args[0] == "foreign":
            reached.sometimes("another incarnation was refused its directory")
            return
    raise ViolationError("P13", f"{model.path} was deleted under the name of another incarnation")


def check_epochs(model: Model, log: Log) -> None:
    """Every epoch that begins within the log begins at its first record.

    Raises:
        ViolationError: I15.
    """
    if model.weak or model.damaged or model.flaky:
        return
    start, end, _, _ = log.ends()
    known = dict(log.epochs())
    for offset in range(start, end):
        entry = model.entries[offset]
        first = offset == 0 or model.entries[offset - 1].epoch != entry.epoch
        if first and known.get(entry.epoch) != offset:
            raise ViolationError("I15", f"epoch {entry.epoch} of {model.path} begins at {offset}, table: {known}")


def check_producers(model: Model, log: Log, now_ns: int, reached: Reached) -> None:
    """P4: the last five batches of each producer are recognized, with their offsets.

    Raises:
        ViolationError: A3.
    """
    if model.weak or model.damaged or model.flaky:
        return
    start = log.ends()[0]
    for producer in sorted(model.sequences):
        own = [sent for sent in model.sent if sent.producer[0] == producer][-5:]
        if any(sent.base < start for sent in own):
            continue
        for sent in own:
            found = log.find_duplicate(sent.producer, sent.count, now_ns)
            if found != ("duplicate", sent.base):
                raise ViolationError("A3", f"batch {sent} of {model.path} would be stored again: {found}")
            reached.sometimes("a producer's repetition was recognised after a recovery")


def check_times(model: Model, log: Log, timestamp: int) -> None:
    """Look-ups by time agree with the records.

    Raises:
        ViolationError: P17.
    """
    if model.weak or model.damaged or model.flaky:
        return
    start, _, _, end = log.ends()
    later = [offset for offset in range(start, end) if model.entries[offset].timestamp >= timestamp]
    earlier = [offset for offset in range(end - 1, start - 1, -1) if model.entries[offset].timestamp <= timestamp]
    found = log.offsets_at(timestamp)
    if -2 not in found and not (_is_first(model, later, found[0]) and _is_first(model, earlier, found[1])):
        expected = (later[:1], earlier[:1])
        raise ViolationError("P17", f"look-up of {timestamp} in {model.path}: {found}, not {expected}")


def _is_first(model: Model, offsets: list[int], found: int) -> bool:
    """Whether `found` (or -1) is the first of these that compaction did not remove."""
    before = offsets if found == -1 else offsets[: offsets.index(found)] if found in offsets else None
    return before is not None and model.gone.issuperset(before)
