"""Helpers for tests of consumers: partitions, recorded callbacks, and reading until a condition holds."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from bascule import Assignment, Batch, Consumer
from bascule.errors import StateError

from tests.unit.client.fake_group import until

S0, S1, T0 = ("s", 0), ("s", 1), ("t", 0)
CURSOR = "__group:g"


class RecordedCallbacks:
    """Records the calls of the callbacks, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[tuple[str, int]]]] = []

    def of(self, kind: str) -> Callable[[Sequence[Assignment]], None]:
        return lambda partitions: self.events.append((kind, [(found.stream, found.partition) for found in partitions]))

    def callbacks(self) -> dict[str, Any]:
        return {f"on_{kind}": self.of(kind) for kind in ("assigned", "revoked", "lost")}


def batch_of(consumer: Consumer) -> Batch:
    """The next batch, within the time limit of `until`."""
    found: list[Batch] = []

    def more() -> bool:
        batch = consumer.next_batch(0)
        if batch is not None:
            found.append(batch)
        return bool(found)

    until(more)
    return found[0]


def read_if_there(consumer: Consumer) -> None:
    """Read the next batch, if there is one; ignores the error of an ended incarnation."""
    try:
        consumer.next_batch(0)
    except StateError as failure:
        if failure.code != "stream_not_found":
            raise


def reading(consumer: Consumer, *assigned: tuple[str, int]) -> None:
    """Read until exactly these partitions are assigned; incarnations may end meanwhile."""
    expected = {Assignment(*place) for place in assigned}
    until(lambda: (read_if_there(consumer), set(consumer.assignment) == expected)[1])


def settled(consumer: Consumer, *assigned: tuple[str, int]) -> None:
    """Poll, expecting no records, until exactly these partitions are assigned."""

    def there() -> bool:
        assert consumer.next_batch(0) is None
        return set(consumer.assignment) == {Assignment(*place) for place in assigned}

    until(there)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("bascule-consumer")}
