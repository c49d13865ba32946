"""Publishes a long list of records in parts: while one is sent, the next is framed and earlier receipts are built."""

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
"""Number of parts framed ahead: a list of up to so many parts is checked completely before anything is sent."""

T = TypeVar("T")

Outgoing: TypeAlias = engine.Outgoing | engine.Spread
"""Records of one partition, or of several."""

_receipt: Final = cast("Callable[[tuple[int, int, int]], Receipt]", partial(cast("Any", tuple).__new__, Receipt))
"""As `Receipt._make`, but twice as fast, because it runs no Python code."""


def receipts(places: Iterable[tuple[int, int, int]]) -> list[Receipt]:
    """Receipts for the places of a published batch, in order."""
    return list(map(_receipt, places))


def partition_of(batch: Outgoing, index: int) -> int:
    """The partition of record number `index` of a batch."""
    if isinstance(batch, engine.Outgoing):
        return batch.partition
    partition = batch.partition_of(index)
    assert partition is not None
    return partition


def publish_in_parts(parts: Iterator[Outgoing], publish: Callable[[Outgoing], None]) -> list[Receipt]:
    """Publish parts one after the other, in order; nothing is sent after a failed one.

    Args:
        parts: batches; framed up to four ahead, in a separate thread when there are several.
        publish: returns when all of a batch is acknowledged; called in this thread, where signals arrive.

    Returns:
        One receipt per record, in order; an empty list without acknowledgements.

    Raises:
        BrokerError: of the first record that failed; `details` has its `index` in the whole list and the number of
            records that are known to be stored (`acknowledged`).
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
        helper.shutdown(wait=False)  # remaining work is short and its result is not used


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
    """Run `work` in the helper, or at once if no thread can be started; returns a function that returns its result."""
    try:
        return helper.submit(work).result
    except RuntimeError:  # the interpreter is shutting down
        done = work()
        return lambda: done
