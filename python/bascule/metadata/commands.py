"""Commands: the entries of the metadata log.

An entry is canonical JSON: `{"v": 1, "type": "create_stream", "body": {…}}`, from level 2 on also with the id of its
proposal: `"proposal": {…}`. `v` grows when the meaning of an existing
type changes. A type, a version or a field that this program does not know was written by a newer one: reading it is an
error that stops the node, for skipping it would let this node's state differ from the others'.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from bascule.metadata.iggy import IggyTopic
from bascule.metadata.json_codec import ADDED, DecodeError, UnknownKeyError, canonical, from_plain, parse, to_plain
from bascule.metadata.model import LEVEL_2, DataKey, StreamSettings
from bascule.metadata.replica_commands import REPLICA_TYPES, ReplicaCommand
from bascule.metadata.replicas import Proposal
from bascule.metadata.sink_commands import (
    AdvanceClock,
    DeleteSink,
    ExpireSink,
    LinkSink,
    OpenSink,
    PublishSink,
    SetSinkOwner,
    SetSinkQuota,
    SkipSink,
)
from bascule.metadata.topic_commands import TOPIC_TYPES, Placement, TopicCommand
from bascule.metadata.user_commands import USER_TYPES, UserCommand

ENTRY_VERSION = 1
MAX_ENTRY_BYTES = 1 << 20
"""Largest entry the log takes."""


class CommandError(ValueError):
    """An entry that this program cannot read, or a command that cannot be written.

    Attributes:
        newer: a newer version of the program wrote it.
    """

    def __init__(self, message: str, *, newer: bool = False) -> None:
        super().__init__(message)
        self.newer = newer


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker started under this address; the entry's index is its boot epoch."""

    broker_id: str
    host: str
    port: int
    registered_ns: int


@dataclass(frozen=True, slots=True)
class CreateStream:
    """A stream with partitions 0…n−1 where `placements` says, all replicas in sync, encrypted if it has a data key.

    Attributes:
        id: number within the namespace that the creator chose; `None` = the next one.
        iggy: what a client of Iggy creates it with.
    """

    namespace: str
    name: str
    subject: str
    queue_group: str
    created_ns: int
    settings: StreamSettings
    placements: tuple[Placement, ...]
    data_keys: tuple[DataKey, ...] = ()
    id: int | None = field(default=None, metadata=ADDED)
    iggy: IggyTopic | None = field(default=None, metadata=ADDED)


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    """A namespace without streams.

    Attributes:
        id: number that the creator chose, ≥ 1; `None` = the next one.
    """

    name: str
    created_ns: int
    id: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteNamespace:
    """Delete the namespace of this name and number with all its streams and their data."""

    name: str
    id: int


@dataclass(frozen=True, slots=True)
class CreateTopicGroup:
    """A consumer group of Iggy's clients in the stream of this identity and incarnation.

    Attributes:
        group: its name.
        id: number that the creator chose; `None` = the next one.
    """

    namespace: str
    name: str
    incarnation: int
    group: str
    id: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicGroup:
    """Delete the group of the stream of this identity and incarnation that the entry `created` made."""

    namespace: str
    name: str
    incarnation: int
    created: int


@dataclass(frozen=True, slots=True)
class AddDataKey:
    """New batches of the stream of this identity and incarnation are encrypted with this key."""

    namespace: str
    name: str
    incarnation: int
    data_key: DataKey


@dataclass(frozen=True, slots=True)
class DeleteStream:
    """Delete the stream of this identity and incarnation with its data."""

    namespace: str
    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class PauseStream:
    """Pause partitions of the stream of this identity and incarnation.

    Attributes:
        partitions: numbers, distinct.
        resume_all: from now on a publish to any partition of the stream resumes all that are paused.
        changed_ns: when.
    """

    namespace: str
    name: str
    incarnation: int
    partitions: tuple[int, ...]
    resume_all: bool
    changed_ns: int


@dataclass(frozen=True, slots=True)
class ResumeStream:
    """Resume paused partitions.

    Attributes:
        partitions: numbers, distinct; those that are not paused stay as they are.
        clear_resume_all: the stream's resume-all flag has done its work.
        changed_ns: when.
    """

    namespace: str
    name: str
    incarnation: int
    partitions: tuple[int, ...]
    clear_resume_all: bool
    changed_ns: int


@dataclass(frozen=True, slots=True)
class SetStreamReadonly:
    """Make partitions read-only, or writable again."""

    namespace: str
    name: str
    incarnation: int
    partitions: tuple[int, ...]
    readonly: bool
    changed_ns: int


@dataclass(frozen=True, slots=True)
class EditStream:
    """The settings of the stream of this identity and incarnation are these from now on; whether it is encrypted and
    how subjects choose partitions stays as it was created.

    Attributes:
        seen: the settings that the proposer saw; from level 2 on they have to be those of the stream, below it is None.
    """

    namespace: str
    name: str
    incarnation: int
    settings: StreamSettings
    seen: StreamSettings | None = field(default=None, metadata=LEVEL_2)


@dataclass(frozen=True, slots=True)
class TrimPartition:
    """Remove the records of one partition below an offset.

    Attributes:
        partition: its number.
        partition_incarnation: its incarnation: an offset means nothing in another one.
        before: first offset that stays, ≥ 0, at most what was committed when it was proposed.
    """

    namespace: str
    name: str
    incarnation: int
    partition: int
    partition_incarnation: int
    before: int


@dataclass(frozen=True, slots=True)
class ArchivedEnd:
    """An archive has every record of a partition below `end`, at most what was committed when it was proposed."""

    number: int
    incarnation: int
    end: int


@dataclass(frozen=True, slots=True)
class ReportArchived:
    """Set up to where an archive has the records of partitions. Lower than before: its table was lost or rolled back;
    0: it lacks the first ones of the log.

    Attributes:
        archive: what it is called.
        partitions: of which it is so.
        take_over: replace another archive, and its offsets.
    """

    namespace: str
    name: str
    incarnation: int
    archive: str
    partitions: tuple[ArchivedEnd, ...]
    take_over: bool = False


@dataclass(frozen=True, slots=True)
class VoidArchived:
    """The log of a partition ends before `archived_to`, which therefore means other records.

    Attributes:
        partition: its number.
        partition_incarnation: its incarnation.
        archived_to: what is void, if it is still so.
    """

    namespace: str
    name: str
    incarnation: int
    partition: int
    partition_incarnation: int
    archived_to: int


@dataclass(frozen=True, slots=True)
class PurgeStream:
    """Remove all records of a stream; its partitions begin again at offset 0 as new incarnations.

    Attributes:
        partition_incarnations: those that the proposer saw, by number; from level 2 on they have to be those of the
            stream, below it is empty.
    """

    namespace: str
    name: str
    incarnation: int
    partition_incarnations: tuple[int, ...] = field(default=(), metadata=LEVEL_2)


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """A consumer becomes a member of a group, which is created with its first member.

    Attributes:
        group: the group's id.
        consumer: the consumer's id.
        streams: what it wants to read, of the namespace `default`; distinct.
        coordinator: broker that coordinates the group if this entry creates it.
        hands_over: it names what it reads, so that the next reader of a partition can wait for it.
    """

    group: str
    consumer: str
    streams: tuple[str, ...]
    coordinator: str
    hands_over: bool = False


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """End the membership that began with entry `joined`; a group is removed with its last member.

    Attributes:
        expired: the coordinator had not heard of the consumer for too long.
    """

    group: str
    consumer: str
    joined: int
    expired: bool


@dataclass(frozen=True, slots=True)
class SetGroupCoordinator:
    """Another broker coordinates the group, unless it has changed since `epoch`."""

    group: str
    coordinator: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SetActivity:
    """Turn the recording of activity on or off."""

    on: bool


@dataclass(frozen=True, slots=True)
class SettleActivity:
    """Everything up to the event `id` is written to the activity stream."""

    id: int


Plain: TypeAlias = (
    RegisterBroker
    | CreateStream
    | AddDataKey
    | DeleteStream
    | PauseStream
    | ResumeStream
    | SetStreamReadonly
    | EditStream
    | TrimPartition
    | ReportArchived
    | VoidArchived
    | PurgeStream
    | JoinGroup
    | LeaveGroup
    | SetGroupCoordinator
    | SetActivity
    | SettleActivity
    | OpenSink
    | PublishSink
    | LinkSink
    | ExpireSink
    | SkipSink
    | DeleteSink
    | SetSinkQuota
    | SetSinkOwner
    | AdvanceClock
    | CreateNamespace
    | DeleteNamespace
    | CreateTopicGroup
    | DeleteTopicGroup
    | UserCommand
    | TopicCommand
    | ReplicaCommand
)
"""A command by itself."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A command whose repetition is answered as the first time."""

    proposal: Proposal
    command: Plain


Command: TypeAlias = Plain | Proposed

_TYPES: dict[str, type[Plain]] = {
    "register_broker": RegisterBroker,
    "create_stream": CreateStream,
    "add_data_key": AddDataKey,
    "delete_stream": DeleteStream,
    "pause_stream": PauseStream,
    "resume_stream": ResumeStream,
    "set_stream_readonly": SetStreamReadonly,
    "edit_stream": EditStream,
    "trim_partition": TrimPartition,
    "report_archived": ReportArchived,
    "void_archived": VoidArchived,
    "purge_stream": PurgeStream,
    "join_group": JoinGroup,
    "leave_group": LeaveGroup,
    "set_group_coordinator": SetGroupCoordinator,
    "set_activity": SetActivity,
    "settle_activity": SettleActivity,
    "open_sink": OpenSink,
    "publish_sink": PublishSink,
    "link_sink": LinkSink,
    "expire_sink": ExpireSink,
    "skip_sink": SkipSink,
    "delete_sink": DeleteSink,
    "set_sink_quota": SetSinkQuota,
    "set_sink_owner": SetSinkOwner,
    "advance_clock": AdvanceClock,
    "create_namespace": CreateNamespace,
    "delete_namespace": DeleteNamespace,
    "create_topic_group": CreateTopicGroup,
    "delete_topic_group": DeleteTopicGroup,
    **USER_TYPES,
    **TOPIC_TYPES,
    **REPLICA_TYPES,
}
_NAMES = {kind: name for name, kind in _TYPES.items()}


def encode_command(command: Command) -> bytes:
    """The entry for `command`; equal commands give equal bytes.

    Raises:
        CommandError: longer than `MAX_ENTRY_BYTES`, or it holds what the entry cannot (an integer beyond 64 bits,
            a string that is not valid Unicode).
    """
    plain = command.command if isinstance(command, Proposed) else command
    body = to_plain(plain)
    document = {"v": ENTRY_VERSION, "type": _NAMES[type(plain)], "body": body}
    if isinstance(command, Proposed):
        document["proposal"] = to_plain(command.proposal)
    try:
        entry = canonical(document)
        from_plain(type(plain), body)
        if isinstance(command, Proposed):
            from_plain(Proposal, document["proposal"])
    except DecodeError as error:
        raise CommandError(str(error)) from error
    if len(entry) > MAX_ENTRY_BYTES:
        raise CommandError(f"the command takes {len(entry)} bytes, more than the {MAX_ENTRY_BYTES} of an entry")
    return entry


def decode_command(entry: bytes) -> Command:
    """The command in `entry`.

    Raises:
        CommandError: a newer program wrote it (`newer`), or it is damaged.
    """
    try:
        document = parse(entry)
        version, name = document.get("v"), document.get("type")
        if not isinstance(version, int) or not isinstance(name, str):
            raise CommandError("the entry has no version or no type")
        if version > ENTRY_VERSION or name not in _TYPES or set(document) - {"v", "type", "body", "proposal"}:
            raise CommandError(f"the entry {name!r} of version {version} is not known to this version", newer=True)
        command = from_plain(_TYPES[name], document.get("body"))
        if "proposal" not in document:
            return command
        return Proposed(from_plain(Proposal, document["proposal"], "proposal."), command)
    except UnknownKeyError as error:
        raise CommandError(f"the entry has a field that is newer: {error}", newer=True) from error
    except DecodeError as error:
        raise CommandError(f"the entry is damaged: {error}") from error
