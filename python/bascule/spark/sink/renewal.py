"""Keeps an attempt from expiring while a task works, also while the task has no row to send."""

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from bascule.errors import BrokerError, UnavailableError

logger = logging.getLogger("bascule.spark")

RENEW_S: Final = 300.0
"""How often a task renews its epoch's time to live, which is an hour."""


class Renewal:
    """Calls `renew` every `every_s` seconds from a thread of its own, until the context is left.

    A broker that is not reachable is asked again after the same time: an hour is enough for eleven more tries.
    """

    def __init__(self, renew: Callable[[], None], every_s: float = RENEW_S) -> None:
        self._renew = renew
        self._every_s = every_s
        self._ended = threading.Event()
        self._failure: BrokerError | None = None
        self._thread = threading.Thread(target=self._run, name="bascule-sink-renewal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()  # a call that is on its way ends with its own timeout

    def check(self) -> None:
        """Nothing, while the attempt may still be published.

        Raises:
            BrokerError: the broker refused a renewal, for example because the sink is gone.
        """
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self._renew()
            except UnavailableError as failure:
                logger.warning("the epoch's time to live was not renewed: %s", failure)
            except BrokerError as failure:
                self._failure = failure
                return
