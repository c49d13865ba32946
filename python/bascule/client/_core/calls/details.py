"""Calls of the client that extend Liftbridge; only a Bascule broker supports them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from bascule._admin_pb import message as admin
from bascule._liftbridge_pb import message
from bascule.client._core import cursors, requests
from bascule.client._core.calls.unary import Calls
from bascule.client._core.deadline import Deadline
from bascule.client._core.routes import CURSORS, CursorPlace
from bascule.client._core.subscribe_options import SubscribeOptions
from bascule.client._core.subscription import Subscription

__all__ = [
    "BrokerDetails",
    "Check",
    "CursorEntry",
    "Damage",
    "Details",
    "GroupDetails",
    "GroupMember",
    "PartitionDetails",
    "StreamDetails",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OPEN: Final = ("log_start", "high_watermark", "log_end", "size_bytes", "subscribers", "nats_dropped")
"""Values of a partition that only the broker has on which it is open."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged range of offsets [start, end) on disk; readers of it get an error."""

    start: int
    end: int
    fault: str
    path: str
    position: int
    """Position of the damage in the file, in bytes."""


@dataclass(frozen=True, slots=True)
class PartitionDetails:
    """One partition. Offsets and sizes are `None` if it is paused, or not open on the broker that answered."""

    number: int
    incarnation: int
    leader: str
    leader_epoch: int
    replicas: tuple[str, ...]
    in_sync: tuple[str, ...]
    paused: bool
    paused_at: datetime | None
    """When it was last paused or resumed; `None` = never."""
    readonly: bool
    readonly_at: datetime | None
    """When it was last made read-only or writable; `None` = never."""
    trimmed_to: int
    """Records below this offset were removed on request."""
    archived_to: int
    """An archive has every record below this offset; 0 = none has."""
    archive: str
    """The archive that reported it last; empty = none did."""
    log_start: int | None
    high_watermark: int | None
    """Offset after the last committed record."""
    log_end: int | None
    size_bytes: int | None
    received_at: datetime | None
    """When the last record arrived since the broker started; `None` = none did."""
    subscribers: int | None
    """Number of readers that wait for new records."""
    nats_dropped: int | None
    """Messages from NATS that were dropped or rejected since the partition was opened."""
    nats_subscription: str | None
    """State of its NATS subscription: `subscribed`, `waiting` for a connection, `denied` or `none`."""
    nats_refusal: str | None
    """The error of NATS if the state is `denied`."""
    nats_not_stored: Mapping[str, int] | None
    """Number of messages from NATS that were not stored since the broker started, by reason: `overload`, `paused`,
    `readonly`, `full`, `too_large`, `invalid`, `other`."""
    failure: str
    """Why opening failed and is retried; empty = it did not fail."""
    scrubbed_at: datetime | None
    """When the last complete scrub ended; `None` = never."""
    damaged: tuple[Damage, ...]

    @classmethod
    def of(cls, found: Any) -> Self:
        """From a PartitionDetails of FetchStreamDetails."""
        is_open = found.HasField("open")
        places = {name: getattr(found.open, name) if is_open else None for name in _OPEN}
        return cls(
            number=found.number,
            incarnation=found.incarnation,
            leader=found.leader,
            leader_epoch=found.leader_epoch,
            replicas=tuple(found.replicas),
            in_sync=tuple(found.in_sync),
            paused=found.paused,
            paused_at=_time(found.paused_ns),
            readonly=found.readonly,
            readonly_at=_time(found.readonly_ns),
            trimmed_to=found.trimmed_to,
            archived_to=found.archived_to,
            archive=found.archive,
            **places,
            received_at=_time(found.open.last_received_ns),
            nats_subscription=found.nats.subscription,
            nats_refusal=found.nats.refusal,
            nats_not_stored=dict(sorted(found.nats.not_stored.items())),
            failure=found.failure,
            scrubbed_at=_time(found.scrubbed_ns),
            damaged=tuple(Damage(item.start, item.end, item.fault, item.path, item.position) for item in found.damaged),
        )


@dataclass(frozen=True, slots=True)
class StreamDetails:
    """A stream with its settings. Names are those of `specs/formats/metadata.md`, durations in milliseconds."""

    name: str
    subject: str
    group: str
    """NATS queue group; empty = none."""
    created: datetime
    resume_all: bool
    """Whether a publish to a paused partition resumes them all."""
    encrypted: bool
    settings: Mapping[str, Any]
    """Settings of the stream; `None` = as the broker's configuration says."""
    in_effect: Mapping[str, Any]
    """Effective values on the broker that answered, of the settings that its data plane uses."""
    partitions: tuple[PartitionDetails, ...]

    @classmethod
    def of(cls, found: Any) -> Self:
        """From a FetchStreamDetailsResponse."""
        return cls(
            found.name,
            found.subject,
            found.queue_group,
            _EPOCH + timedelta(microseconds=found.created_ns // 1000),
            found.resume_all,
            found.encrypted,
            requests.read_settings(found.settings),
            {field.name: value for field, value in found.in_effect.ListFields()},
            tuple(PartitionDetails.of(item) for item in found.partitions),
        )


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group."""

    id: str
    streams: tuple[str, ...]
    """The streams that it subscribed to."""
    assignments: Mapping[str, tuple[int, ...]]
    """The partitions that it reads, by stream."""


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """A consumer group with its members, in the order in which they joined."""

    id: str
    coordinator: str
    epoch: int
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """One health check of a broker."""

    name: str
    outcome: str
    """`ok`, `warning` (the broker serves nevertheless) or `failed` (the broker is not ready)."""
    reason: str


@dataclass(frozen=True, slots=True)
class BrokerDetails:
    """The broker that answered."""

    id: str
    host: str
    port: int
    statistics: Mapping[str, int]
    """Counters since its start and gauges, by the names of `specs/metrics.toml`."""
    version: str = ""
    checks: tuple[Check, ...] = ()
    """The checks of `/readyz?verbose` of its HTTP listener, in that order; none = an older broker without them."""


@dataclass(frozen=True, slots=True)
class CursorEntry:
    """A stored position."""

    cursor: str
    stream: str
    partition: int
    offset: int
    """Offset of the last record that was processed."""


class Details(Calls):
    """Details of streams, groups and brokers, and changes that Liftbridge does not have."""

    def describe_stream(self, name: str, *, timeout: float | None = None) -> StreamDetails:
        """A stream with its settings, sizes and damage.

        Raises:
            StateError: code `stream_not_found`.
            UnavailableError: no broker answered in time.
        """
        return self._describe_stream(name, self._deadline(timeout))

    def edit_stream(
        self, name: str, changes: Mapping[str, Any], *, dry_run: bool = False, timeout: float | None = None
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Change settings of a stream while it runs.

        Args:
            name: of the stream.
            changes: names as in `StreamDetails.settings` to new values; `None` = as the broker's configuration says.
                `encryption` and `partition_by_subject` stay as the stream was created.
            dry_run: only return what would happen.
            timeout: seconds; `None` = the client's.

        Returns:
            All settings before and after (with `dry_run`: as they would be).

        Raises:
            StateError: code `stream_not_found`.
            UsageError: code `invalid_argument`: a name or a value.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.edit_stream(name, changes, dry_run=dry_run)
        answer = admin("EditStreamResponse").FromString(self._call("EditStream", request, timeout, stream=name))
        return requests.read_settings(answer.before), requests.read_settings(answer.after)

    def resume_stream(
        self, name: str, *, partitions: Sequence[int] = (), dry_run: bool = False, timeout: float | None = None
    ) -> tuple[int, ...]:
        """Resume paused partitions.

        Args:
            name: of the stream.
            partitions: numbers, from 0; none = all paused ones.
            dry_run: only return what would happen.
            timeout: seconds; `None` = the client's.

        Returns:
            The numbers of the resumed partitions.

        Raises:
            StateError: code `stream_not_found` or `partition_not_found`.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.resume_stream(name, partitions, dry_run=dry_run)
        most = max(partitions, default=None)
        answer = self._call("ResumeStream", request, timeout, stream=name, partition=most)
        return tuple(admin("ResumeStreamResponse").FromString(answer).resumed)

    def describe_groups(self, groups: Sequence[str] = (), *, timeout: float | None = None) -> list[GroupDetails]:
        """Consumer groups that have members, ordered by id.

        Args:
            groups: ids; none = all. Groups that do not exist are left out.
            timeout: seconds; `None` = the client's.

        Raises:
            UnavailableError: no broker answered in time.
        """
        answer = self._call("FetchGroupDetails", requests.group_details(groups), timeout)
        return [_group(item) for item in admin("FetchGroupDetailsResponse").FromString(answer).groups]

    def describe_broker(self, *, timeout: float | None = None) -> BrokerDetails:
        """The broker that answers, with its counters.

        Raises:
            UnavailableError: no broker answered in time.
        """
        answer = self._call("FetchBrokerDetails", requests.broker_details(), timeout)
        found = admin("FetchBrokerDetailsResponse").FromString(answer)
        checks = tuple(Check(item.name, item.outcome, item.reason) for item in found.checks)
        statistics = dict(sorted(found.statistics.items()))
        return BrokerDetails(found.id, found.host, found.port, statistics, found.version, checks)

    def list_cursors(self, *, prefix: str = "", timeout: float | None = None) -> list[CursorEntry]:
        """All stored positions in existing streams, ordered by cursor, stream and partition.

        Reads the stream of cursors from its beginning: meant for people and tools, not for frequent calls.

        Args:
            prefix: only ids that begin with it.
            timeout: seconds for each call; `None` = the client's.

        Raises:
            StateError: code `failed_precondition`: the broker keeps no cursors.
            UnavailableError: no broker answered in time.
        """
        places: set[tuple[str, str, int]] = set()
        for partition in cursors.partitions(self._pool, self._deadline(timeout)):
            places |= self._stored(partition, prefix)
        found: list[CursorEntry] = []
        for cursor, name, number in sorted(places):
            offset = cursors.find(self._pool, self._deadline(timeout), CursorPlace(cursor, name, number)).offset
            if offset is not None:
                found.append(CursorEntry(cursor, name, number, offset))
        return found

    def _describe_stream(self, name: str, deadline: Deadline) -> StreamDetails:
        answer = self._call("FetchStreamDetails", requests.stream_details(name), deadline, stream=name)
        return StreamDetails.of(admin("FetchStreamDetailsResponse").FromString(answer))

    def _stored(self, partition: int, prefix: str) -> set[tuple[str, str, int]]:
        """Cursor, stream and partition of the positions in one partition of `__cursors`; other values are ignored."""
        options = SubscribeOptions(stream=CURSORS, partition=partition, start="earliest", stop="latest", resume=True)
        places: set[tuple[str, str, int]] = set()
        with Subscription(self._pool, options, timeout=self._timeout, reconnect=self._reconnect) as subscription:
            for batch in subscription:
                for record in batch:
                    place = _place(record.key, record.value)
                    if place is not None and place[0].startswith(prefix):
                        places.add(place)
        return places


def _place(key: bytes | None, value: bytes | None) -> tuple[str, str, int] | None:
    # the stored message and the request have the same first four fields
    kind = message("SetCursorRequest")
    try:
        cursor = kind.FromString(value or b"")
    except ValueError:
        return None
    place = (cursor.cursorId, cursor.stream, cursor.partition)
    keys = {",".join(map(str, ids)).encode() for ids in (place, (*map(_escaped, place[:2]), place[2]))}
    return place if key in keys and all(place[:2]) else None


def _escaped(name: str) -> str:
    """A name as it is escaped in keys of `__cursors`, where commas separate the parts."""
    return name.replace("\\", "\\\\").replace(",", "\\,")


def _group(found: Any) -> GroupDetails:
    members = tuple(
        GroupMember(
            member.id, tuple(member.streams), {item.stream: tuple(item.partitions) for item in member.assignments}
        )
        for member in found.members
    )
    return GroupDetails(found.id, found.coordinator, found.epoch, members)


def _time(timestamp_ns: int) -> datetime | None:
    return _EPOCH + timedelta(microseconds=timestamp_ns // 1000) if timestamp_ns else None
