"""Commands about the broker itself."""

import asyncio
import os
import platform
import struct
from importlib.metadata import version
from ipaddress import ip_address
from itertools import chain

from bascule.control import Controller
from bascule.protocols.iggy.commands import DescribeOptions, Empty, StatsFacts
from bascule.protocols.iggy.fields import long_text
from bascule.protocols.iggy.lookup import streams_of, topics_of
from bascule.protocols.iggy.machine import Machine, Usage
from bascule.protocols.iggy.options import describe
from bascule.protocols.iggy.requests import IggyHandler, IggyRequest
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = ["SystemCommands"]

_EVERYWHERE = {"0.0.0.0", "::", ""}  # noqa: S104 - recognised, not bound
_CLUSTER, _NODE = "bascule", "broker"
_LEADER, _HEALTHY = 0, 0


class SystemCommands:
    """The handlers.

    Attributes:
        address: host and port where clients are served; `None` = not yet.
        quic_address: the same of those that speak QUIC; `None` = none are.
    """

    address: tuple[str, int] | None = None
    quic_address: tuple[str, int] | None = None

    def __init__(self, controller: Controller, machine: Machine) -> None:
        self._controller = controller
        self._machine = machine
        self._version = version("bascule")

    def handlers(self) -> dict[str, IggyHandler]:
        """Handler by command."""
        return {
            "GET_STATS": self.stats,
            "DESCRIBE_OPTIONS": self.describe_options,
            "GET_CLUSTER_METADATA": self.cluster,
        }

    async def cluster(self, request: IggyRequest[Empty]) -> bytes:
        """GET_CLUSTER_METADATA: one node, this broker at the address that the client dialled.

        Raises:
            IggyError: 5: the listener is on every interface, or TCP and QUIC are on different ones, and which one the
                client dialled is not known.
        """
        if self.address is None:
            raise IggyError(IggyStatus.FEATURE_UNAVAILABLE, "clients are not served yet")
        host, port = self.address
        quic_host, quic_port = self.quic_address or (host, 0)
        if quic_host != host:
            text = f"iggy.listen is on {host}, iggy.quic_listen on {quic_host}: set both to what clients dial"
            raise IggyError(IggyStatus.FEATURE_UNAVAILABLE, text)
        if host in _EVERYWHERE:
            host = request.peer.rpartition(":")[0].strip("[]")
            if not ip_address(host).is_loopback:
                text = f"iggy.listen is on every interface: set it to the address that clients dial, {request.peer} too"
                raise IggyError(IggyStatus.FEATURE_UNAVAILABLE, text)
        node = long_text(_NODE) + long_text(host) + struct.pack("<HHHHBB", port, quic_port, 0, 0, _LEADER, _HEALTHY)
        return long_text(_CLUSTER) + struct.pack("<I", 1) + node

    async def describe_options(self, request: IggyRequest[DescribeOptions]) -> bytes:
        """DESCRIBE_OPTIONS: keys, types and defaults of the options of topics; of streams and users none."""
        return describe() if request.command.of_topics else bytes(4)

    async def stats(self, request: IggyRequest[StatsFacts]) -> bytes:
        """GET_STATS: of this broker, and of the streams whose partitions are open here."""
        usage = await asyncio.to_thread(self._machine.look)
        facts = request.command
        system = platform.uname()
        parts = [
            struct.pack("<Iff", os.getpid(), usage.cpu, usage.total_cpu),
            struct.pack("<QQQ", usage.memory, usage.total_memory, usage.available_memory),
            struct.pack("<QQQQ", usage.run_time_us, usage.started_us, usage.read, usage.written),
            self._holdings(facts.clients),
            *(long_text(item) for item in (system.node, system.system, system.version, system.release)),
            long_text(f"bascule {self._version}"),
            # No number of a version of Iggy's server; no caches.
            struct.pack("<II", 0, 0),
        ]
        if facts.is_later:
            parts.append(_later(usage))
        return b"".join(parts)

    def _holdings(self, clients: int) -> bytes:
        """Bytes, streams, topics, partitions, segments, messages, clients, groups."""
        state = self._controller.state
        streams = streams_of(state)
        topics = [topic for stream in streams for topic in topics_of(state, stream)]
        incarnations = [item.incarnation for item in chain.from_iterable(topic.partitions for topic in topics)]
        status = self._controller.status(incarnations).values()
        # The segment that is being written counts too.
        segments = sum(item["sealed_segments"] + 1 for item in self._controller.damage(incarnations).values())
        messages = sum(item.high_watermark - item.log_start for item in status)
        groups = sum(len(topic.topic_groups) for topic in topics)
        counts = (len(streams), len(topics), len(incarnations), segments)
        size = sum(item.size_bytes for item in status)
        return struct.pack("<QIIIIQII", size, *counts, messages, clients, groups)


def _later(usage: Usage) -> bytes:
    """What v1b shows beside."""
    return struct.pack("<IQQ", usage.threads, usage.free_disk, usage.total_disk)
