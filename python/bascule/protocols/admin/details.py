"""FetchStreamDetails, FetchStreams, FetchGroupDetails, FetchBrokerDetails and FetchClusterStatus.

Data that Liftbridge's metadata lacks: settings, sizes, damage, members. Sizes are of partitions open on this broker.
"""

import asyncio
from importlib.metadata import version
from typing import Any

from bascule._admin_pb import message
from bascule._text import host_port
from bascule.control import Controller
from bascule.control.dataplane import PartitionStatus
from bascule.metadata import DEFAULT_NAMESPACE, Broker, Group, Partition, Stream
from bascule.metadata.json_codec import to_plain
from bascule.protocols.admin.requests import MethodHandler
from bascule.protocols.admin.settings import settings_message
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.messages import check_count
from bascule.protocols.liftbridge.metadata import MAX_ANSWER_BYTES, MAX_NAMES, open_incarnations, shown_stream
from bascule.protocols.router import AdminRequest

_FetchStreamDetailsResponse = message("FetchStreamDetailsResponse")
_FetchGroupDetailsResponse = message("FetchGroupDetailsResponse")
_FetchBrokerDetailsResponse = message("FetchBrokerDetailsResponse")
_FetchClusterStatusResponse = message("FetchClusterStatusResponse")
_ClusterBroker = message("ClusterBroker")
_PartitionDetails = message("PartitionDetails")
_OpenPartition = message("OpenPartition")
_GroupDetails = message("GroupDetails")

_IN_EFFECT = {
    "durability": "durability",
    "codec": "codec",
    "nats_copy": "nats_copy",
    "nats_acks": "nats_acks",
    "concurrency_control": "concurrency_control",
    "max_record_bytes": "max_record_bytes",
    "retention_bytes": "retention_bytes",
    "retention_messages": "retention_messages",
    "retention_age_ms": "retention_age_ms",
    "cleaner_interval_ms": "cleaner_interval_ms",
    "segment_bytes": "segment_bytes",
    "segment_age_ms": "segment_age_ms",
    "compact_enabled": "compact",
    "retention_after_archive_max_bytes": "archive_wait_bytes",
    "retention_hold_max_bytes": "hold_bytes",
    "retention_hold_expiry_ms": "hold_ms",
}
"""Settings whose value in effect is known here, with their names in a partition's spec."""


class DetailMethods:
    """The handlers."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> dict[str, MethodHandler]:
        """Handler by method."""
        return {
            "FetchStreamDetails": self.fetch_stream_details,
            "FetchStreams": self.fetch_streams,
            "FetchGroupDetails": self.fetch_group_details,
            "FetchBrokerDetails": self.fetch_broker_details,
            "FetchClusterStatus": self.fetch_cluster_status,
        }

    async def fetch_stream_details(self, asked: Any, _: AdminRequest) -> Any:
        """FetchStreamDetails."""
        stream = self._controller.state.stream(DEFAULT_NAMESPACE, asked.name)
        if stream is None:
            raise StatusError(Status.NOT_FOUND, "stream does not exist", "stream_not_found")
        return _FetchStreamDetailsResponse(
            name=stream.name,
            subject=stream.subject,
            queue_group=stream.queue_group,
            created_ns=stream.created_ns,
            resume_all=stream.resume_all,
            encrypted=bool(stream.data_keys),
            settings=settings_message(to_plain(stream.settings)),
            in_effect=settings_message(self._in_effect(stream)),
            partitions=self._partitions(stream),
        )

    async def fetch_streams(self, asked: Any, _: AdminRequest) -> Any:
        """FetchStreams."""
        state, namespace = self._controller.state, asked.namespace or DEFAULT_NAMESPACE
        if namespace not in state.namespaces:
            raise StatusError(Status.NOT_FOUND, f"namespace {namespace!r} does not exist", "not_found")
        found = sorted((key.name, stream) for key, stream in state.streams.items() if key.namespace == namespace)
        status = self._controller.status(open_incarnations(stream for _, stream in found))
        answer, size = message("FetchStreamsResponse")(), 0
        for name, stream in found:
            shown = shown_stream(name, stream, status)
            size += shown.ByteSize()
            if size > MAX_ANSWER_BYTES:
                text = (
                    f"the answer would have more than {MAX_ANSWER_BYTES >> 20} MiB: list the topics with an Iggy client"
                )
                raise StatusError(Status.RESOURCE_EXHAUSTED, text)
            answer.streams.append(shown)
        return answer

    async def fetch_group_details(self, asked: Any, _: AdminRequest) -> Any:
        """FetchGroupDetails."""
        check_count("groups", len(asked.groups), MAX_NAMES, "ask for fewer groups at once")
        groups = self._controller.state.groups
        names = groups.keys() & asked.groups if asked.groups else groups.keys()
        answer = _FetchGroupDetailsResponse()
        size = 0
        for name in sorted(names):
            shown = _group(groups[name])
            size += shown.ByteSize()
            if size > MAX_ANSWER_BYTES:
                text = f"the answer would have more than {MAX_ANSWER_BYTES >> 20} MiB: ask for fewer groups at once"
                raise StatusError(Status.RESOURCE_EXHAUSTED, text)
            answer.groups.append(shown)
        return answer

    async def fetch_broker_details(self, _: Any, __: AdminRequest) -> Any:
        """FetchBrokerDetails."""
        here = self._controller.broker_id
        broker = self._controller.state.brokers.get(here)
        return _FetchBrokerDetailsResponse(
            id=here,
            host=broker.host if broker else "",
            port=broker.port if broker else 0,
            version=version("bascule"),
            checks=await asyncio.to_thread(self._controller.checks),
            statistics=await asyncio.to_thread(self._controller.statistics),
        )

    async def fetch_cluster_status(self, _: Any, __: AdminRequest) -> Any:
        """FetchClusterStatus."""
        found = await asyncio.to_thread(self._controller.cluster_status)
        state = self._controller.state
        return _FetchClusterStatusResponse(
            cluster_id=state.cluster_id,
            broker=self._controller.broker_id,
            controller=found["controller"] or "",
            term=found["term"],
            index=state.index,
            brokers=[
                _ClusterBroker(
                    id=item.id,
                    address=host_port(item.host, item.port),
                    peer_address=host_port(item.peer_host, item.peer_port) if item.peer_host else "",
                    state=_broker_state(item, is_alone=state.level == 1),
                    fenced_ns=item.fenced_ns,
                    boot_epoch=item.boot_epoch,
                    problem=found["missing"].get(item.id, ""),
                )
                for _, item in sorted(state.brokers.items())
            ],
        )

    def _in_effect(self, stream: Stream) -> dict[str, Any]:
        spec = self._controller.in_effect(stream)
        if not spec:
            return {}
        waits = spec["archive_wait_bytes"] > 0
        return {**{name: spec[key] for name, key in _IN_EFFECT.items()}, "retention_after_archive": waits}

    def _partitions(self, stream: Stream) -> list[Any]:
        incarnations = [item.incarnation for item in stream.partitions if not item.paused]
        status = self._controller.status(incarnations)
        damage = self._controller.damage(incarnations)
        nats = self._controller.nats_partitions([item.incarnation for item in stream.partitions])
        return [
            _PartitionDetails(
                **_partition(item),
                open=_open(status.get(item.incarnation)),
                nats={
                    "subscription": nats[item.incarnation]["subscription"],
                    "refusal": nats[item.incarnation]["text"],
                    "not_stored": nats[item.incarnation]["not_stored"],
                },
                failure="" if item.paused else self._controller.failure(item.incarnation),
                scrubbed_ns=damage.get(item.incarnation, {}).get("scrubbed_ns", 0),
                damaged=damage.get(item.incarnation, {}).get("damaged", []),
            )
            for item in stream.partitions
        ]


def _partition(partition: Partition) -> dict[str, Any]:
    return {
        "number": partition.number,
        "incarnation": partition.incarnation,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "in_sync": partition.isr,
        "paused": partition.paused,
        "paused_ns": partition.last_paused_ns,
        "readonly": partition.readonly,
        "readonly_ns": partition.last_readonly_ns,
        "archived_to": partition.archived_to,
        "archive": partition.archive,
        "trimmed_to": partition.trimmed_to,
    }


def _open(status: PartitionStatus | None) -> Any:
    """Where it stands; `None` when it is not open here."""
    if status is None:
        return None
    return _OpenPartition(
        log_start=status.log_start,
        high_watermark=status.high_watermark,
        log_end=status.log_end,
        size_bytes=status.size_bytes,
        last_received_ns=status.last_received_ns,
        subscribers=status.subscribers,
        nats_dropped=status.nats_dropped,
    )


def _group(group: Group) -> Any:
    members = [
        {
            "id": member.id,
            "streams": member.streams,
            "assignments": [{"stream": item.stream, "partitions": item.partitions} for item in member.assignments],
        }
        for member in group.members
    ]
    return _GroupDetails(id=group.id, coordinator=group.coordinator, epoch=group.epoch, members=members)


def _broker_state(broker: Broker, *, is_alone: bool) -> str:
    if is_alone or broker.run == "confirmed":
        return "live"
    if broker.run == "registered":
        return "starting"
    return "fenced" if broker.boot_epoch else "joining"
