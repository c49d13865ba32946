"""The call of the client about the brokers of a cluster."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from bascule._admin_pb import message as admin
from bascule.client._core import requests
from bascule.client._core.calls.unary import Calls

__all__ = ["ClusterBroker", "ClusterStatus", "Clusters"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ClusterBroker:
    """A broker of a cluster, as the one that answered knows it."""

    id: str
    address: str
    """`host:port` for clients."""
    peer_address: str
    """`host:port` for other brokers; empty without a cluster."""
    state: str
    """`live`; `starting` = it has registered and may not lead yet; `fenced` = it was silent for too long, and leads
    nothing; `joining` = it has not started since it was named."""
    fenced: datetime | None
    """When it was fenced, UTC; `None` = it is not, or the time is unknown."""
    boot_epoch: int
    """Of its last run: grows with every start, and when it returns after it was fenced."""
    problem: str
    """Why the broker that answered has no connection to it; empty = it has one, or is this broker."""

    @classmethod
    def of(cls, found: Any) -> Self:
        """From a ClusterBroker of FetchClusterStatus."""
        fenced = _EPOCH + timedelta(microseconds=found.fenced_ns // 1000) if found.fenced_ns else None
        return cls(
            found.id, found.address, found.peer_address, found.state, fenced, found.boot_epoch, problem=found.problem
        )


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster, as the broker that answered knows it."""

    cluster_id: str
    """Chosen when it was founded; empty = a broker alone."""
    broker: str
    """The one that answered."""
    controller: str
    """The broker that decides for the cluster; empty = none is known to the one that answered."""
    term: int
    """Of the controller's office; 0 without a cluster."""
    index: int
    """The last entry of the metadata that the broker has applied."""
    brokers: tuple[ClusterBroker, ...]
    """By id."""


class Clusters(Calls):
    """The state of a cluster."""

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterStatus:
        """The brokers of the cluster, who decides for them, and who is fenced, as the broker knows that answers. One
        that is cut off knows what it knew last.

        Raises:
            UnavailableError: no broker answered in time.
        """
        answer = self._call("FetchClusterStatus", requests.cluster_status(), timeout)
        found = admin("FetchClusterStatusResponse").FromString(answer)
        brokers = tuple(ClusterBroker.of(item) for item in found.brokers)
        return ClusterStatus(found.cluster_id, found.broker, found.controller, found.term, found.index, brokers)
