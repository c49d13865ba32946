"""Commands: the entries of the metadata log.

An entry is canonical JSON: `{"v": 1, "type": "create_stream", "body": {…}}`. `v` grows when the meaning of an existing
type changes. A type, a version or a field that this program does not know was written by a newer one: reading it is an
error that stops the node, for skipping it would let this node's state differ from the others'.
"""

from dataclasses import dataclass
from typing import TypeAlias

from bascule.metadata.model import StreamSettings
from bascule.metadata.plain import PlainError, UnknownKeyError, canonical, from_plain, parse, to_plain

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
class Placement:
    """Where one partition lives: broker ids, distinct, the leader among them."""

    replicas: tuple[str, ...]
    leader: str


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker started: it exists from now on, under this address, with the entry's index as its boot epoch."""

    broker_id: str
    host: str
    port: int
    registered_ns: int


@dataclass(frozen=True, slots=True)
class CreateStream:
    """A stream with partitions 0…n−1 where `placements` says, all replicas in sync."""

    namespace: str
    name: str
    subject: str
    queue_group: str
    created_ns: int
    settings: StreamSettings
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class DeleteStream:
    """The stream of this identity and this incarnation goes, with its data."""

    namespace: str
    name: str
    incarnation: int


Command: TypeAlias = RegisterBroker | CreateStream | DeleteStream

_TYPES: dict[str, type[RegisterBroker] | type[CreateStream] | type[DeleteStream]] = {
    "register_broker": RegisterBroker,
    "create_stream": CreateStream,
    "delete_stream": DeleteStream,
}
_NAMES = {kind: name for name, kind in _TYPES.items()}


def encode_command(command: Command) -> bytes:
    """The entry for `command`; equal commands give equal bytes.

    Raises:
        CommandError: longer than `MAX_ENTRY_BYTES`, or it holds what the entry cannot (an integer beyond 64 bits,
            a string that is not valid Unicode).
    """
    body = to_plain(command)
    try:
        entry = canonical({"v": ENTRY_VERSION, "type": _NAMES[type(command)], "body": body})
        from_plain(type(command), body)
    except PlainError as error:
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
        if version > ENTRY_VERSION or name not in _TYPES or set(document) - {"v", "type", "body"}:
            raise CommandError(f"the entry {name!r} of version {version} is not known to this version", newer=True)
        return from_plain(_TYPES[name], document.get("body"))
    except UnknownKeyError as error:
        raise CommandError(f"the entry has a field that is newer: {error}", newer=True) from error
    except PlainError as error:
        raise CommandError(f"the entry is damaged: {error}") from error
