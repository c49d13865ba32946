"""Several subscriptions of one stream, read together: batches are returned in the order of arrival."""

from collections.abc import Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final

from bascule import engine
from bascule.client._core.batch import Batch
from bascule.client._core.subscription import Subscription

__all__ = ["Many"]

_OPENED_AT_ONCE: Final = 8
_WAIT_SECONDS: Final = 0.5


class Many:
    """Subscriptions by partition. Ended ones are removed. For one thread."""

    def __init__(self, subscriptions: Mapping[int, Subscription]) -> None:
        """`subscriptions`: not open yet, by partition."""
        self._bell: Final = engine.Bell()
        self._open: Final = dict(subscriptions)
        self._turn = 0
        for subscription in subscriptions.values():
            subscription.bell = self._bell

    @property
    def is_open(self) -> bool:
        """Whether at least one has not ended."""
        return bool(self._open)

    def open(self) -> None:
        """Open all of them.

        Raises:
            BrokerError: as `Subscription.open`, for one that could not be opened.
        """
        if len(self._open) == 1:
            for subscription in self._open.values():
                subscription.open()
            return
        threads = ThreadPoolExecutor(_OPENED_AT_ONCE, "bascule-open")
        try:
            opening = [threads.submit(subscription.open) for subscription in self._open.values()]
            for opened in wait(opening, return_when=FIRST_EXCEPTION).done:
                opened.result()
        finally:
            # After a failure or an interrupt, waiting ones are not opened any more.
            threads.shutdown(cancel_futures=True)

    def next_batch(self, timeout: float | None = None) -> Batch | None:
        """The next records of any partition; partitions take turns.

        Args:
            timeout: seconds to wait; `None` = half a second.

        Returns:
            `None` if no record came in time, or all have ended.

        Raises:
            BrokerError: as `Subscription.next_batch`.
        """
        seen = self._bell.wait(0, 0)
        batch = self._poll()
        if batch is None and self._open:
            self._bell.wait(seen, max(1, round((_WAIT_SECONDS if timeout is None else timeout) * 1000)))
            batch = self._poll()
        return batch

    def _poll(self) -> Batch | None:
        places = list(self._open)
        for step in range(len(places)):
            index = (self._turn + step) % len(places)
            subscription = self._open[places[index]]
            batch = subscription.next_batch(0)
            if batch is not None:
                self._turn = index + 1
                return batch
            if subscription.ended:
                del self._open[places[index]]
        return None
