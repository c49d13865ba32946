"""A long list of records in parts: while one is on its way, the next is framed and the last one's receipts are made."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar, cast

from bascule import engine
from bascule.client._core.types import Receipt
from bascule.errors import BrokerError

__all__ = ["Outgoing", "aside", "partition_of", "publish_in_parts", "receipts"]

_AHEAD: Final = 4
"""Parts that are framed before they are sent: a list of so many is checked whole before anything of it leaves."""

T = TypeVar("T")

Outgoing: TypeAlias = engine.Outgoing | engine.Spread
"""Records of one partition, or of several."""

_receipt: Final = cast("Callable[[tuple[int, int, int]], Receipt]", partial(cast("Any", tuple).__new__, Receipt))
"""As `Receipt._make`, in half the time: it enters no Python."""


def receipts(places: Iterable[tuple[int, int, int]]) -> list[Receipt]:
    """Of the places of a published batch, in order."""
    return list(map(_receipt, places))


def partition_of(batch: Outgoing, index: int) -> int:
    """The partition of one record of a batch that has so many."""
    if isinstance(batch, engine.Outgoing):
        return batch.partition
    partition = batch.partition_of(index)
    assert partition is not None
    return partition


def publish_in_parts(parts: Iterator[Outgoing], publish: Callable[[Outgoing], None]) -> list[Receipt]:
    """Publish parts one after the other, in order; nothing behind one that failed is sent.

    Args:
        parts: batches; taken up to four ahead of what is acknowledged, in a thread of its own when there are several.
        publish: returns when all of a batch is acknowledged; called in this thread, where signals arrive.

    Returns:
        One receipt for each record, in order; none without acknowledgements.

    Raises:
        BrokerError: of the first record that failed; `details` has its `index` in the whole list, and how many of the
            list are known to be stored (`acknowledged`).
    """
    framed = deque(islice(parts, _AHEAD))
    if len(framed) < 2:
        for batch in framed:
            publish(batch)
        return [receipt for batch in framed for receipt in receipts(batch.places())]
    helper = ThreadPoolExecutor(1, "bascule-publish")
    try:
        return _published(framed, parts, publish, helper)
    finally:
        helper.shutdown(wait=False)  # what it still does is short, and goes nowhere


def _published(
    framed: deque[Outgoing],
    parts: Iterator[Outgoing],
    publish: Callable[[Outgoing], None],
    helper: ThreadPoolExecutor,
) -> list[Receipt]:
    results: list[Callable[[], list[Receipt]]] = []
    sent = 0
    while framed:
        batch = framed.popleft()
        more = aside(helper, lambda: next(parts, None))
        try:
            publish(batch)
        except BrokerError as failure:
            failure.details["index"] = sent + failure.details.get("index", 0)
            stored = sum(len(result()) for result in results)
            failure.details["acknowledged"] = stored + failure.details.get("acknowledged", 0)
            raise
        sent += len(batch)
        results.append(aside(helper, lambda batch=batch: receipts(batch.places())))
        following = more()
        if following is not None:
            framed.append(following)
    return [receipt for result in results for receipt in result()]


def aside(helper: ThreadPoolExecutor, work: Callable[[], T]) -> Callable[[], T]:
    """Has `work` done beside what follows, or at once where threads begin no more; returns what gives its result."""
    try:
        return helper.submit(work).result
    except RuntimeError:  # at the end of the interpreter
        done = work()
        return lambda: done
