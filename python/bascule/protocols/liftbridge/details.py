"""FetchStreamDetails, FetchGroupDetails and FetchBrokerDetails: ours, JSON objects; see `specs/formats/admin.md`.

Data that Liftbridge's metadata lacks: settings, sizes, damage, members. Sizes are of partitions open on this broker.
"""

import asyncio
import json
from importlib.metadata import version
from typing import Any

from bascule.control import Controller
from bascule.control.controller import PartitionStatus
from bascule.metadata import DEFAULT_NAMESPACE, Group, Partition, Stream
from bascule.metadata.json_codec import to_plain
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.messages import read_object
from bascule.protocols.liftbridge.metadata import MAX_ANSWER_BYTES, MAX_NAMES
from bascule.protocols.router import AdminRequest, Handler

MAX_GROUPS_BYTES = 4 << 20
"""Of a request that names groups."""

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

    def handlers(self) -> dict[str, Handler]:
        """Handler by method."""
        return {
            "FetchStreamDetails": self.fetch_stream_details,
            "FetchGroupDetails": self.fetch_group_details,
            "FetchBrokerDetails": self.fetch_broker_details,
        }

    async def fetch_stream_details(self, request: AdminRequest) -> bytes:
        """`{"name"}` to the stream with its settings and partitions."""
        name: str = read_object(request.body, {"name": str})["name"]
        stream = self._controller.state.stream(DEFAULT_NAMESPACE, name)
        if stream is None:
            raise StatusError(Status.NOT_FOUND, "stream does not exist", "stream_not_found")
        document = {
            "name": stream.name,
            "subject": stream.subject,
            "queue_group": stream.queue_group,
            "created_ns": stream.created_ns,
            "resume_all": stream.resume_all,
            "encrypted": bool(stream.data_keys),
            "settings": to_plain(stream.settings),
            "in_effect": self._in_effect(stream),
            "partitions": self._partitions(stream),
        }
        return json.dumps(document).encode()

    async def fetch_group_details(self, request: AdminRequest) -> bytes:
        """`{"groups"}` (ids; none = all) to `{"groups": [...]}`, by id; those that do not exist are left out."""
        wanted: list[object] = read_object(request.body, {"groups": list}, most_bytes=MAX_GROUPS_BYTES)["groups"]
        if len(wanted) > MAX_NAMES:
            text = f"{len(wanted)} groups are asked for, at most {MAX_NAMES} are answered at once"
            raise StatusError(Status.INVALID_ARGUMENT, text)
        groups = self._controller.state.groups
        names = [item for item in wanted if isinstance(item, str)] if wanted else [*groups]
        shown: list[str] = []
        size = 0
        for name in sorted(groups.keys() & names):
            shown.append(json.dumps(_group(groups[name])))
            size += len(shown[-1])
            if size > MAX_ANSWER_BYTES:
                text = f"the answer would have more than {MAX_ANSWER_BYTES >> 20} MiB: ask for fewer groups at once"
                raise StatusError(Status.RESOURCE_EXHAUSTED, text)
        return f'{{"groups": [{", ".join(shown)}]}}'.encode()

    async def fetch_broker_details(self, request: AdminRequest) -> bytes:
        """`{}` to the broker that answers."""
        read_object(request.body, {})
        here = self._controller.broker_id
        broker = self._controller.state.brokers.get(here)
        document = {
            "id": here,
            "host": broker.host if broker else "",
            "port": broker.port if broker else 0,
            "version": version("bascule"),
            "checks": await asyncio.to_thread(self._controller.checks),
            "statistics": await asyncio.to_thread(self._controller.statistics),
        }
        return json.dumps(document).encode()

    def _in_effect(self, stream: Stream) -> dict[str, Any]:
        spec = self._controller.in_effect(stream)
        return {name: spec[key] for name, key in _IN_EFFECT.items()} if spec else {}

    def _partitions(self, stream: Stream) -> list[dict[str, Any]]:
        incarnations = [item.incarnation for item in stream.partitions if not item.paused]
        status = self._controller.status(incarnations)
        damage = self._controller.damage(incarnations)
        nats = self._controller.nats_partitions([item.incarnation for item in stream.partitions])
        return [
            {
                **_partition(item),
                **_status(status.get(item.incarnation)),
                "nats_subscription": nats[item.incarnation]["subscription"],
                "nats_refusal": nats[item.incarnation]["text"],
                "nats_not_stored": nats[item.incarnation]["not_stored"],
                "failure": "" if item.paused else self._controller.failure(item.incarnation),
                "scrubbed_ns": damage.get(item.incarnation, {}).get("scrubbed_ns", 0),
                "damaged": damage.get(item.incarnation, {}).get("damaged", []),
            }
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


def _status(status: PartitionStatus | None) -> dict[str, Any]:
    """Where it stands; nulls when it is not open here."""
    names = (
        "log_start", "high_watermark", "log_end", "size_bytes", "last_received_ns", "subscribers", "nats_dropped",
    )  # fmt: skip
    return {name: getattr(status, name, None) for name in names}


def _group(group: Group) -> dict[str, Any]:
    members = [
        {
            "id": member.id,
            "streams": member.streams,
            "assignments": [{"stream": item.stream, "partitions": item.partitions} for item in member.assignments],
        }
        for member in group.members
    ]
    return {"id": group.id, "coordinator": group.coordinator, "epoch": group.epoch, "members": members}
