"""A line in the log for requests that are denied: who, what, from where, by which rule.

Whoever is denied may try again as fast as the network carries it, so the lines are bounded: the same denial once in
`WINDOW_S`, and at most `LINES` of them. What was left out is counted, and said with the next line. The data plane does
the same for the calls that it answers.
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
        """`clock`: seconds, never back."""
        self._clock = clock
        self._since = clock()
        self._seen: set[tuple[str | None, str, str, str]] = set()
        self._left_out = 0

    def note(self, client: str | None, peer: str, action: str, resource: str, rule: str) -> None:
        """Take note of a denial. `resource` is bounded; `peer`: `host:port`."""
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
