"""The loop of `bascule consume`: reads, prints and stores positions until a limit is reached."""

import select
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from bascule.cli.records.pace import Pace
from bascule.cli.records.record_writer import RecordWriter
from bascule.client import Batch, Client, Consumer, Record, Start, Subscription
from bascule.client.tooling import Many

__all__ = ["GroupLoop", "Limits", "PartitionLoop", "RecordPrinter", "report_start"]

WAIT_S: Final = 0.5
"""Longest single wait, in seconds."""
_SLACK_S: Final = 0.25
"""A call that exceeds its wait by more than so many seconds did more than wait."""
STANDARD_OUTPUT: Final = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """When to end; `None` = no such limit."""

    records: int | None = None
    seconds: float | None = None
    idle_seconds: float | None = None


@dataclass(slots=True)
class RecordPrinter:
    """Prints records until a limit is reached."""

    writer: RecordWriter
    pace: Pace
    limits: Limits
    is_late: bool = field(kw_only=True)
    """Whether the writer prints everything at the end."""
    records: int = 0
    _began: float = 0.0
    _idle: float = 0.0
    """Seconds without records since the last one."""

    def begin(self) -> None:
        """All subscriptions are open: start the clock."""
        self._began = time.monotonic()

    def next_batch(self, poll: Callable[[float], Batch | None]) -> Batch | None:
        """The result of `poll`, which gets the seconds to wait. Waiting without a result counts as idle time; the time
        of a reconnect does not, because records may follow.
        """
        asked, began = self._wait_s(), time.monotonic()
        batch = poll(asked)
        spent = time.monotonic() - began
        if batch is not None:
            self._idle = 0.0
        elif spent < asked + _SLACK_S:
            self._idle += spent
        return batch

    def take(self, partition: int, records: Sequence[Record]) -> Record:
        """Print records up to the limit. Returns the last one printed."""
        left = None if self.limits.records is None else self.limits.records - self.records
        records = records[:left]
        self.writer.write(partition, records)
        sys.stdout.flush()
        self.records += len(records)
        return records[-1]

    def _wait_s(self) -> float:
        """Seconds to wait for the next record, within the time limit."""
        waits = [WAIT_S]
        if self.limits.seconds is not None:
            waits.append(self._began + self.limits.seconds - time.monotonic())
        if self.limits.idle_seconds is not None:
            waits.append(self.limits.idle_seconds - self._idle)
        return max(0.001, min(waits))

    @property
    def is_over(self) -> bool:
        """Whether a limit has been reached."""
        limits = self.limits
        return (
            (limits.records is not None and self.records >= limits.records)
            or (limits.seconds is not None and time.monotonic() >= self._began + limits.seconds)
            or (limits.idle_seconds is not None and self._idle >= limits.idle_seconds)
        )


@dataclass(slots=True)
class PartitionLoop:
    """Reads partitions, prints, and moves the cursor after the printed records."""

    client: Client
    stream: str
    cursor: str | None
    printer: RecordPrinter
    printed: dict[int, int] = field(default_factory=dict[int, int])
    """Offset of the last printed record by partition, not stored yet."""

    def run(self, many: Many) -> None:
        """Read until all partitions have ended or a limit is reached."""
        printer = self.printer
        printer.begin()
        while many.is_open:
            batch = printer.next_batch(many.next_batch)
            if batch is not None:
                before = printer.records
                self.printed[batch.partition] = printer.take(batch.partition, list(batch)).offset
                if not printer.is_late:
                    self.commit()
                printer.pace.count(printer.records - before)
            if printer.is_over:
                return
            _check_reader()

    def commit(self) -> None:
        """Store the last printed offsets as the cursor's position."""
        if self.cursor is not None:
            for number, offset in self.printed.items():
                self.client.set_cursor(self.cursor, self.stream, offset, partition=number)
            self.printed.clear()


@dataclass(frozen=True, slots=True)
class GroupLoop:
    """Reads partitions as a member of a group, prints, and moves the group's positions after the printed records."""

    consumer: Consumer
    printer: RecordPrinter
    commits: bool = field(kw_only=True)

    def run(self) -> None:
        """Read until a limit is reached."""
        printer = self.printer
        printer.begin()
        while not printer.is_over:
            batch = printer.next_batch(self.consumer.next_batch)
            if batch is not None:
                before = printer.records
                last = printer.take(batch.partition, list(batch))
                self.consumer.core.give(batch, last.offset)
                if self.commits and not printer.is_late:
                    self.consumer.commit()
                printer.pace.count(printer.records - before)
            _check_reader()
        printer.writer.close()
        if self.commits:
            self.consumer.commit()


def report_start(place: str, asked: Start, subscription: Subscription, *, reverse: bool) -> None:
    """Report on standard error where reading begins, if that is not the requested or stored position."""
    found, remembered = subscription.position, subscription.remembered
    if not isinstance(found, int):
        return  # the broker does not report it
    following = f"the {'last' if reverse else 'next'} record, offset {found}"
    if remembered is not None:
        if found <= remembered:
            return
        text = f"offsets {remembered} to {found - 1} of {place} were removed before the cursor reached them"
    elif isinstance(asked, int) and found < asked:
        text = f"offset {asked} is beyond the end of {place}: reading begins with {following}"
    elif isinstance(asked, int) and found > asked:
        text = f"offset {asked} of {place} was removed: reading begins at offset {found}"
    elif isinstance(asked, datetime) and asked > datetime.now(UTC):
        text = f"{asked.isoformat()} is in the future: reading of {place} begins with {following}"
    else:
        return
    sys.stderr.write(f"bascule: {text}\n")


def _check_reader() -> None:
    """Raise `BrokenPipeError` if the reader of the output has closed it, without waiting for the next record."""
    output = select.poll()
    output.register(STANDARD_OUTPUT, 0)
    if any(found & select.POLLERR for _, found in output.poll(0)):
        raise BrokenPipeError
