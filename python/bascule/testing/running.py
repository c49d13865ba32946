"""What both kinds of test broker have in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import bascule

__all__ = ["RunningBroker"]

_DEFAULTS: Final = {"http.listen": "off", "nats.first_port": 0, "cursors.partitions": 0}
"""Brokers of tests run side by side, and start fast."""


class RunningBroker(ABC):
    """A broker and where to reach it. Not safe to share between threads."""

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        """Prepare; `start` starts it.

        Args:
            directory: existing directory for data and log; kept when the broker ends.
            settings: dotted keys as in `bascule config show`. Unless they say otherwise there is no HTTP listener,
                nats-server has any free port, and cursors are off.
        """
        self.directory: Final = directory
        self._settings: Final = {**_DEFAULTS, **settings}
        self._ready: dict[str, Any] = {}

    @property
    def address(self) -> str:
        """`host:port` of the Liftbridge and Flight service; the same after a restart."""
        return str(self._ready["address"])

    @property
    def url(self) -> str:
        """What `bascule.connect` takes."""
        scheme = "bascules" if "tls.certificate_file" in self._settings else "liftbridge"
        return f"{scheme}://{self.address}"

    @property
    def nats_url(self) -> str:
        """URL of the nats-server that it started."""
        return str(self._ready["nats_url"])

    @property
    def http_address(self) -> str:
        """`host:port` of probes and metrics; empty without `http.listen`."""
        return str(self._ready["http_address"])

    @property
    def ready_seconds(self) -> float:
        """How long the last start took, as the broker measured it."""
        return float(self._ready["ready_seconds"])

    def connect(self, **options: Any) -> bascule.Client:
        """A connected client; the options are those of `bascule.connect`."""
        return bascule.connect(self.url, **options)

    def connect_async(self, **options: Any) -> bascule.AsyncClient:
        """An asynchronous client, to be entered; the options are those of `bascule.connect_async`."""
        return bascule.connect_async(self.url, **options)

    @abstractmethod
    def start(self) -> None:
        """Start it, on the same data and addresses when it ran before; returns when it is ready.

        Raises:
            BrokerError: it could not start; the message says why.
        """

    @abstractmethod
    def stop(self) -> None:
        """Let it drain, and wait for its end. Idempotent."""

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()
