"""Base class of both kinds of test broker."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import bascule

__all__ = ["RunningBroker"]

_DEFAULTS: Final = {"http.listen": "off", "nats.first_port": 0, "cursors.partitions": 0}
"""Settings with which test brokers run side by side and start fast."""


class RunningBroker(ABC):
    """A broker and its addresses. Not safe to share between threads."""

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        """Prepares the broker; `start` starts it.

        Args:
            directory: existing directory for data and log; kept when the broker ends.
            settings: dotted keys as in `bascule config show`. By default there is no HTTP listener, nats-server uses a
                free port, and cursors are off.
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
        """URL for `bascule.connect`."""
        scheme = "bascules" if "tls.certificate_file" in self._settings else "liftbridge"
        return f"{scheme}://{self.address}"

    @property
    def nats_url(self) -> str:
        """URL of its nats-server."""
        return str(self._ready["nats_url"])

    @property
    def http_address(self) -> str:
        """`host:port` of probes and metrics; empty without `http.listen`."""
        return str(self._ready["http_address"])

    @property
    def iggy_address(self) -> str:
        """`host:port` of the listener for Iggy's clients; empty without `iggy.listen`."""
        return str(self._ready["iggy_address"])

    @property
    def iggy_http_address(self) -> str:
        """The same of clients that speak HTTP; empty without `iggy.http_listen`."""
        return str(self._ready["iggy_http_address"])

    @property
    def iggy_quic_address(self) -> str:
        """The same of clients that speak QUIC; empty without `iggy.quic_listen`."""
        return str(self._ready["iggy_quic_address"])

    @property
    def ready_seconds(self) -> float:
        """Duration of the last start, as measured by the broker."""
        return float(self._ready["ready_seconds"])

    def connect(self, **options: Any) -> bascule.Client:
        """A connected client; the options are those of `bascule.connect`."""
        return bascule.connect(self.url, **options)

    def connect_async(self, **options: Any) -> bascule.AsyncClient:
        """An asynchronous client, to be used with `async with`; the options are those of `bascule.connect_async`."""
        return bascule.connect_async(self.url, **options)

    @abstractmethod
    def start(self) -> None:
        """Start it; after a stop, on the same data and addresses. Returns when it is ready.

        Raises:
            BrokerError: it could not start; the message has the reason.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop it and wait for its end. Idempotent."""

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()
