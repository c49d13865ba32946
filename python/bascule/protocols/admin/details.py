"""FetchStreamDetails, FetchGroupDetails and FetchBrokerDetails.

Data that Liftbridge's metadata lacks: settings, sizes, damage, members. Sizes are of partitions open on this broker.
"""

import asyncio
from importlib.metadata import version
from typing import Any

from bascule._admin_pb import message
from bascule.control import Controller
from bascule.control.controller import PartitionStatus
from bascule.metadata import DEFAULT_NAMESPACE, Group, Partition, Stream
from bascule.metadata.json_codec import to_plain
from bascule.protocols.admin.requests import MethodHandler
from bascule.protocols.admin.settings import settings_message
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.messages import check_count
from bascule.protocols.liftbridge.metadata import MAX_ANSWER_BYTES, MAX_NAMES
from bascule.protocols.router import AdminRequest

_FetchStreamDetailsResponse = message("FetchStreamDetailsResponse")
_FetchGroupDetailsResponse = message("FetchGroupDetailsResponse")
_FetchBrokerDetailsResponse = message("FetchBrokerDetailsResponse")
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
            "FetchGroupDetails": self.fetch_group_details,
            "FetchBrokerDetails": self.fetch_broker_details,
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

    def _in_effect(self, stream: Stream) -> dict[str, Any]:
        spec = self._controller.in_effect(stream)
        return {name: spec[key] for name, key in _IN_EFFECT.items()} if spec else {}

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
