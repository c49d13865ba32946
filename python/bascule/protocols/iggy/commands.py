"""Requests of v1, v1b and v2 that are decided in Python: from payloads to values. Only the layout is checked here."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from bascule.protocols.iggy.fields import Identifier, MalformedError, Reader
from bascule.protocols.iggy.numbering import first_number, has_options, meant
from bascule.protocols.iggy.options import OptionValue, read_no_options, read_topic_options
from bascule.protocols.iggy.permissions import Permissions, read_permissions

__all__ = ["DECODERS", "MAX_PERMISSIONS_BYTES", "SINCE_V2", "Command", "decode"]

MAX_PERMISSIONS_BYTES = 64 << 10
"""Largest block of permissions: about 5,000 streams or 7,000 topics, which an entry of the metadata log can hold."""


@dataclass(frozen=True, slots=True)
class Empty:
    """A command without fields."""


@dataclass(frozen=True, slots=True)
class StatsFacts:
    """GET_STATS, with what the data plane adds: how many clients are connected, and whether this one is of v1b."""

    clients: int
    is_later: bool


@dataclass(frozen=True, slots=True)
class Login:
    """LOGIN_USER. Old clients send neither `version` nor `context`: both are empty then."""

    name: str
    password: str
    version: str
    context: str


@dataclass(frozen=True, slots=True)
class Text:
    """A command of one short text: the token to log in with, or the name of a token."""

    text: str


@dataclass(frozen=True, slots=True)
class CreateToken:
    """CREATE_PERSONAL_ACCESS_TOKEN. `expiry`: µs from now; 0 and 2^64 − 1 = never."""

    name: str
    expiry: int


@dataclass(frozen=True, slots=True)
class CreateUser:
    """CREATE_USER. `permissions`: `None` = none at all."""

    name: str
    password: str
    is_active: bool
    permissions: Permissions | None


@dataclass(frozen=True, slots=True)
class UpdateUser:
    """UPDATE_USER; `None` keeps what is."""

    user: Identifier
    name: str | None
    is_active: bool | None


@dataclass(frozen=True, slots=True)
class UpdatePermissions:
    """UPDATE_PERMISSIONS; `None` takes all away."""

    user: Identifier
    permissions: Permissions | None


@dataclass(frozen=True, slots=True)
class ChangePassword:
    """CHANGE_PASSWORD."""

    user: Identifier
    current: str
    new: str


@dataclass(frozen=True, slots=True)
class Named:
    """A command about one thing: a user or stream (one identifier), a topic (two), or a group (three)."""

    path: tuple[Identifier, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """CREATE_STREAM (empty `path`) and CREATE_CONSUMER_GROUP (stream and topic). `number`: 0 = chosen by the server."""

    path: tuple[Identifier, ...]
    number: int
    name: str


@dataclass(frozen=True, slots=True)
class UpdateStream:
    """UPDATE_STREAM."""

    stream: Identifier
    name: str


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What a topic is created or changed with.

    Attributes:
        compression: 1 none, 2 gzip.
        expiry: µs; 0 = the server's default, 2^64 − 1 = never.
        max_size: bytes; 0 = the server's default, 2^64 − 1 = unlimited.
        replication: 0 = the server's default.
        name: of the topic.
    """

    compression: Literal[1, 2]
    expiry: int
    max_size: int
    replication: int
    name: str


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """CREATE_TOPIC.

    Attributes:
        stream: in which.
        number: 0 = chosen by the server.
        partitions: how many.
        settings: of the topic.
        segment_bytes: where segments end, of v2; `None` = the server's default.
        fsync: sends are answered when they are on disk, of v2; otherwise the server's default.
    """

    stream: Identifier
    number: int
    partitions: int
    settings: TopicSettings
    segment_bytes: int | None = None
    fsync: bool = False


@dataclass(frozen=True, slots=True)
class UpdateTopic:
    """UPDATE_TOPIC. `kept`: the settings that stay as they are, by the keys of options; of v2."""

    path: tuple[Identifier, ...]
    settings: TopicSettings
    kept: AbstractSet[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DescribeOptions:
    """DESCRIBE_OPTIONS: of topics, or of streams and users, which have none."""

    of_topics: bool


@dataclass(frozen=True, slots=True)
class Partitions:
    """CREATE_PARTITIONS and DELETE_PARTITIONS: how many, of a stream's topic."""

    path: tuple[Identifier, ...]
    count: int


@dataclass(frozen=True, slots=True)
class DeleteSegments:
    """DELETE_SEGMENTS: how many of the oldest segments, of a partition of a stream's topic, counted from 1."""

    path: tuple[Identifier, ...]
    partition: int
    count: int


Command: TypeAlias = (
    Empty
    | StatsFacts
    | Login
    | Text
    | CreateToken
    | CreateUser
    | UpdateUser
    | UpdatePermissions
    | ChangePassword
    | Named
    | Create
    | UpdateStream
    | CreateTopic
    | UpdateTopic
    | DescribeOptions
    | Partitions
    | DeleteSegments
)


def decode(name: str, payload: bytes) -> Command:
    """The command of this name, a key of `DECODERS`.

    Raises:
        MalformedError: the payload is not this command's.
    """
    reader = Reader(payload)
    command = DECODERS[name](reader)
    reader.finish()
    return command


def _empty(_reader: Reader) -> Empty:
    return Empty()


def _login(reader: Reader) -> Login:
    name, password = reader.short_text("the user's name"), reader.short_text("the password")
    if reader.is_at_end:
        return Login(name, password, "", "")
    return Login(name, password, reader.long_text("the version"), reader.long_text("the context"))


def _create_token(reader: Reader) -> CreateToken:
    return CreateToken(reader.short_text("the token's name"), reader.u64("the expiry"))


def _create_user(reader: Reader) -> CreateUser:
    name, password = reader.short_text("the user's name"), reader.short_text("the password")
    user = CreateUser(name, password, _status(reader), _permissions(reader))
    _no_options(reader)
    return user


def _update_user(reader: Reader) -> UpdateUser:
    user = reader.identifier("the user")
    name = reader.short_text("the new name") if reader.flag("has_name") else None
    update = UpdateUser(user, name, _status(reader) if reader.flag("has_status") else None)
    _no_options(reader)
    return update


def _update_permissions(reader: Reader) -> UpdatePermissions:
    return UpdatePermissions(reader.identifier("the user"), _permissions(reader))


def _change_password(reader: Reader) -> ChangePassword:
    user = reader.identifier("the user")
    return ChangePassword(user, reader.short_text("the password"), reader.short_text("the new password"))


def _update_stream(reader: Reader) -> UpdateStream:
    update = UpdateStream(reader.identifier("the stream"), reader.short_text("the new name"))
    _no_options(reader)
    return update


def _create_topic(reader: Reader) -> CreateTopic:
    stream = reader.identifier("the stream")
    if not has_options():
        return CreateTopic(stream, _chosen(reader), reader.u32("the partitions"), _settings(reader))
    partitions, name = reader.u32("the partitions"), reader.short_text("the topic's name")
    options = read_topic_options(reader, is_change=False)
    segment = options.get("segment_size")
    return CreateTopic(
        stream,
        0,
        partitions,
        _of_options(name, options),
        None if segment is None else int(segment),
        bool(options.get("enforce_fsync")),
    )


def _update_topic(reader: Reader) -> UpdateTopic:
    path = _path(reader, 2)
    if not has_options():
        return UpdateTopic(path, _settings(reader))
    name = reader.short_text("the topic's name")
    options = read_topic_options(reader, is_change=True)
    return UpdateTopic(path, _of_options(name, options), _CHANGEABLE - options.keys())


def _of_options(name: str, options: Mapping[str, OptionValue]) -> TopicSettings:
    """Settings of v2; what is not given is the server's default."""
    compression = options.get("compression_algorithm")
    expiry, max_size = (int(options.get(key, 0)) for key in ("message_expiry", "max_topic_size"))
    return TopicSettings(2 if compression == "gzip" else 1, expiry, max_size, 0, name)


def _no_options(reader: Reader) -> None:
    """Of a stream or user of v2, which may have options but has none."""
    if has_options():
        read_no_options(reader)


def _describe_options(reader: Reader) -> DescribeOptions:
    scope = reader.u8("the scope")
    if scope not in _SCOPES:
        raise MalformedError(f"the scope is {scope}, and only {sorted(_SCOPES)} have a meaning")
    return DescribeOptions(_SCOPES[scope])


def _partitions(reader: Reader) -> Partitions:
    return Partitions(_path(reader, 2), reader.u32("the count"))


def _delete_segments(reader: Reader) -> DeleteSegments:
    return DeleteSegments(_path(reader, 2), meant(reader.u32("the partition")), reader.u32("the count"))


def _text(reader: Reader) -> Text:
    return Text(reader.short_text("the token"))


def _stats(reader: Reader) -> StatsFacts:
    return StatsFacts(reader.u32("the clients"), reader.flag("is_later"))


def _named(depth: int) -> Callable[[Reader], Named]:
    return lambda reader: Named(_path(reader, depth))


def _create(depth: int) -> Callable[[Reader], Create]:
    def read(reader: Reader) -> Create:
        create = Create(_path(reader, depth), _chosen(reader), reader.short_text("the name"))
        if not depth:
            _no_options(reader)
        return create

    return read


def _chosen(reader: Reader) -> int:
    """The number that a client chooses, 0 = none: those that count from 0 cannot."""
    return reader.u32("the number") if first_number() else 0


def _path(reader: Reader, depth: int) -> tuple[Identifier, ...]:
    return tuple(reader.identifier(f"identifier {i + 1}") for i in range(depth))


def _settings(reader: Reader) -> TopicSettings:
    compression = reader.u8("the compression")
    if compression not in {1, 2}:
        raise MalformedError(f"the compression is {compression}, and only 1 and 2 have a meaning")
    return TopicSettings(
        1 if compression == 1 else 2,
        reader.u64("the expiry"),
        reader.u64("the maximum size"),
        reader.u8("the replication factor"),
        reader.short_text("the topic's name"),
    )


def _status(reader: Reader) -> bool:
    status = reader.u8("the user's status")
    if status not in {1, 2}:
        raise MalformedError(f"the user's status is {status}, and only 1 and 2 have a meaning")
    return status == 1


def _permissions(reader: Reader) -> Permissions | None:
    if not reader.flag("has_permissions"):
        return None
    block = reader.take(reader.u32("the rights"), "the rights")
    if len(block) > MAX_PERMISSIONS_BYTES:
        raise MalformedError(f"the rights take {len(block)} bytes, more than {MAX_PERMISSIONS_BYTES}")
    return read_permissions(block)


_CHANGEABLE: Final = frozenset({"compression_algorithm", "message_expiry", "max_topic_size"})
_SCOPES: Final = {1: True, 2: False, 3: False}
"""Whether topics are meant."""

SINCE_V2: Final = frozenset({"DESCRIBE_OPTIONS", "GET_CLUSTER_METADATA"})
"""Commands that older clients do not have, or can do without."""

DECODERS: Mapping[str, Callable[[Reader], Command]] = {
    "GET_STATS": _stats,
    "GET_CLUSTER_METADATA": _empty,
    "DESCRIBE_OPTIONS": _describe_options,
    "GET_USER": _named(1),
    "GET_USERS": _empty,
    "CREATE_USER": _create_user,
    "DELETE_USER": _named(1),
    "UPDATE_USER": _update_user,
    "UPDATE_PERMISSIONS": _update_permissions,
    "CHANGE_PASSWORD": _change_password,
    "LOGIN_USER": _login,
    "LOGOUT_USER": _empty,
    "GET_PERSONAL_ACCESS_TOKENS": _empty,
    "CREATE_PERSONAL_ACCESS_TOKEN": _create_token,
    "DELETE_PERSONAL_ACCESS_TOKEN": _text,
    "LOGIN_WITH_PERSONAL_ACCESS_TOKEN": _text,
    "GET_STREAM": _named(1),
    "GET_STREAMS": _empty,
    "CREATE_STREAM": _create(0),
    "DELETE_STREAM": _named(1),
    "UPDATE_STREAM": _update_stream,
    "PURGE_STREAM": _named(1),
    "GET_TOPIC": _named(2),
    "GET_TOPICS": _named(1),
    "CREATE_TOPIC": _create_topic,
    "DELETE_TOPIC": _named(2),
    "UPDATE_TOPIC": _update_topic,
    "PURGE_TOPIC": _named(2),
    "CREATE_PARTITIONS": _partitions,
    "DELETE_PARTITIONS": _partitions,
    "DELETE_SEGMENTS": _delete_segments,
    "GET_CONSUMER_GROUP": _named(3),
    "GET_CONSUMER_GROUPS": _named(2),
    "CREATE_CONSUMER_GROUP": _create(2),
    "DELETE_CONSUMER_GROUP": _named(3),
    "JOIN_CONSUMER_GROUP": _named(3),
    "LEAVE_CONSUMER_GROUP": _named(3),
}
"""By the protocol's name of the command; GET_SNAPSHOT is not read yet."""
