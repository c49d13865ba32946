"""What `bascule consume` does with records until it has enough of them."""

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

__all__ = ["GroupReading", "Limits", "Printing", "Reading", "tell_start"]

WAIT_S: Final = 0.5
"""Longest wait."""
_SLACK_S: Final = 0.25
"""A call that takes so much longer than it was asked to wait did something else, too."""
STANDARD_OUTPUT: Final = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """When to end; `None` = not for this."""

    records: int | None = None
    seconds: float | None = None
    idle_seconds: float | None = None


@dataclass(slots=True)
class Printing:
    """Prints records until a limit is reached."""

    writer: RecordWriter
    pace: Pace
    limits: Limits
    is_late: bool = field(kw_only=True)
    """Whether everything is printed at the end."""
    records: int = 0
    _began: float = 0.0
    _idle: float = 0.0
    """Seconds that were waited in vain since the last record."""

    def begin(self) -> None:
        """Everything is open: time counts from now."""
        self._began = time.monotonic()

    def next_batch(self, poll: Callable[[float], Batch | None]) -> Batch | None:
        """What `poll` finds within the seconds that it is given. What it waits in vain counts as idle; what it spends
        on opening a subscription again does not, for there may be records behind it.
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
        """Print records, and no more than the limit; the last one printed."""
        left = None if self.limits.records is None else self.limits.records - self.records
        records = records[:left]
        self.writer.write(partition, records)
        sys.stdout.flush()
        self.records += len(records)
        return records[-1]

    def _wait_s(self) -> float:
        """How long to wait for the next record: not beyond the end of the time."""
        waits = [WAIT_S]
        if self.limits.seconds is not None:
            waits.append(self._began + self.limits.seconds - time.monotonic())
        if self.limits.idle_seconds is not None:
            waits.append(self.limits.idle_seconds - self._idle)
        return max(0.001, min(waits))

    @property
    def is_over(self) -> bool:
        """Whether a limit is reached."""
        limits = self.limits
        return (
            (limits.records is not None and self.records >= limits.records)
            or (limits.seconds is not None and time.monotonic() >= self._began + limits.seconds)
            or (limits.idle_seconds is not None and self._idle >= limits.idle_seconds)
        )


@dataclass(slots=True)
class Reading:
    """Reads partitions, prints, and moves the cursor behind what is printed."""

    client: Client
    stream: str
    cursor: str | None
    printing: Printing
    printed: dict[int, int] = field(default_factory=dict[int, int])
    """Offset of the last record by partition, not stored yet."""

    def run(self, many: Many) -> None:
        """Until all have ended, or a limit is reached."""
        printing = self.printing
        printing.begin()
        while many.is_open:
            batch = printing.next_batch(many.next_batch)
            if batch is not None:
                before = printing.records
                self.printed[batch.partition] = printing.take(batch.partition, list(batch)).offset
                if not printing.is_late:
                    self.commit()
                printing.pace.count(printing.records - before)
            if printing.is_over:
                return
            _check_reader()

    def commit(self) -> None:
        """Store what is printed as the cursor's position."""
        if self.cursor is not None:
            for number, offset in self.printed.items():
                self.client.set_cursor(self.cursor, self.stream, offset, partition=number)
            self.printed.clear()


@dataclass(frozen=True, slots=True)
class GroupReading:
    """Reads a share of the partitions as a member of a group, prints, and moves the group behind what is printed."""

    consumer: Consumer
    printing: Printing
    commits: bool = field(kw_only=True)

    def run(self) -> None:
        """Until a limit is reached."""
        printing = self.printing
        printing.begin()
        while not printing.is_over:
            batch = printing.next_batch(self.consumer.next_batch)
            if batch is not None:
                before = printing.records
                last = printing.take(batch.partition, list(batch))
                self.consumer.core.give(batch, last.offset)
                if self.commits and not printing.is_late:
                    self.consumer.commit()
                printing.pace.count(printing.records - before)
            _check_reader()
        printing.writer.close()
        if self.commits:
            self.consumer.commit()


def tell_start(place: str, asked: Start, subscription: Subscription, *, reverse: bool) -> None:
    """Say where reading begins, when that is not where it was asked to, or where a cursor stood."""
    found, remembered = subscription.position, subscription.remembered
    if not isinstance(found, int):
        return  # the broker does not tell
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
        text = f"{asked.isoformat()} is still to come: reading of {place} begins with {following}"
    else:
        return
    sys.stderr.write(f"bascule: {text}\n")


def _check_reader() -> None:
    """Raise `BrokenPipeError` when whoever read our output went away: nothing may come for hours that would tell."""
    output = select.poll()
    output.register(STANDARD_OUTPUT, 0)
    if any(found & select.POLLERR for _, found in output.poll(0)):
        raise BrokenPipeError
