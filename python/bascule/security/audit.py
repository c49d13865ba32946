"""Logs denied requests: client, action, resource, address and rule.

A denied client may retry without pause, so the number of lines is limited: the same denial once in `WINDOW_S` seconds,
and at most `LINES` in that time. Suppressed lines are counted, and the next line has the count. The data plane does the
same for its calls.
"""

import time
from collections.abc import Callable
from typing import Final

from bascule.logs import emit

__all__ = ["Audit"]

WINDOW_S: Final = 10.0
LINES: Final = 100


class Audit:
    """See the module. Belongs to one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: monotonic, in seconds."""
        self._clock = clock
        self._since = clock()
        self._seen: set[tuple[str | None, str, str, str]] = set()
        self._left_out = 0

    def note(self, client: str | None, peer: str, action: str, resource: str, rule: str) -> None:
        """Log a denial, or count it. `resource` has a limited length; `peer`: `host:port`."""
        if self._clock() - self._since > WINDOW_S:
            self._since = self._clock()
            self._seen.clear()
        key = (client, peer.rpartition(":")[0], action, resource)
        if key in self._seen or len(self._seen) >= LINES:
            self._left_out += 1
            return
        self._seen.add(key)
        more = {"left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        fields = {"client": client, "peer": peer, "action": action, "resource": resource, "rule": rule, **more}
        emit(30, "access", f'denied: {action} on "{resource}"', **fields)
