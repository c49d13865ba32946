"""The state as bytes, and its digest.

A snapshot is a line of text, `bascule-metadata 1 <SHA-256 of the rest, hex>`, then canonical JSON of the state with
every mapping as a list sorted by key. The digest is that same SHA-256: two nodes agree when their digests at the same
index are equal.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bascule.metadata.json_codec import ADDED, DecodeError, UnknownKeyError, canonical, from_plain, parse, to_plain
from bascule.metadata.model import LEVEL_2, Activity, Broker, Group, Namespace, State, Stream, StreamKey
from bascule.metadata.replicas import MAX_LEVEL, Answer, Proposal
from bascule.metadata.sinks import Sink
from bascule.metadata.users import User

SNAPSHOT_VERSION = 1
_HEADER = re.compile(rb"bascule-metadata ([1-9][0-9]{0,8}) ([0-9a-f]{64})")

V = TypeVar("V")


class SnapshotError(ValueError):
    """The bytes are not a snapshot that this program can read.

    Attributes:
        newer: a newer version of the program wrote it.
    """

    def __init__(self, message: str, *, newer: bool = False) -> None:
        super().__init__(message)
        self.newer = newer


@dataclass(frozen=True, slots=True)
class _Document:
    index: int
    next_namespace_id: int
    brokers: tuple[Broker, ...]
    namespaces: tuple[Namespace, ...]
    streams: tuple[Stream, ...]
    groups: tuple[Group, ...] = ()
    activity_on: bool = False
    activity: tuple[Activity, ...] = ()
    sinks: tuple[Sink, ...] = ()
    clock_ms: int = 0
    cluster_id: str = field(default="", metadata=LEVEL_2)
    rescues: int = field(default=0, metadata=LEVEL_2)
    level: int = field(default=1, metadata=LEVEL_2)
    voters: tuple[int, ...] = field(default=(), metadata=LEVEL_2)
    answers: tuple[Answer, ...] = field(default=(), metadata=LEVEL_2)
    answered_to: tuple[Proposal, ...] = field(default=(), metadata=LEVEL_2)
    users: tuple[User, ...] = field(default=(), metadata=ADDED)
    next_user_id: int = field(default=0, metadata=ADDED)


def digest(state: State) -> str:
    """SHA-256 of the canonical form of `state`, 64 hexadecimal digits."""
    return hashlib.sha256(_body(state)).hexdigest()


def encode_snapshot(state: State) -> bytes:
    """`state` as bytes; equal states give equal bytes."""
    body = _body(state)
    checksum = hashlib.sha256(body).hexdigest()
    return b"bascule-metadata %d %s\n%s" % (SNAPSHOT_VERSION, checksum.encode(), body)


def decode_snapshot(snapshot: bytes) -> State:
    """The state in `snapshot`.

    Raises:
        SnapshotError: a newer program wrote it (`newer`), the checksum does not match, or it is not a snapshot.
    """
    header, _, body = snapshot.partition(b"\n")
    found = _HEADER.fullmatch(header)
    if found is None:
        raise SnapshotError("the bytes are not a metadata snapshot")
    if int(found[1]) > SNAPSHOT_VERSION:
        raise SnapshotError(f"the metadata snapshot has version {int(found[1])}, newer than this program", newer=True)
    if hashlib.sha256(body).hexdigest().encode() != found[2]:
        raise SnapshotError("the checksum of the metadata snapshot does not match")
    try:
        document = from_plain(_Document, parse(body))
    except UnknownKeyError as error:
        raise SnapshotError(f"the metadata snapshot has a field that is newer: {error}", newer=True) from error
    except DecodeError as error:
        raise SnapshotError(f"the metadata snapshot is damaged: {error}") from error
    if not 1 <= document.level <= MAX_LEVEL:
        raise SnapshotError(
            f"the metadata snapshot has feature level {document.level}, and this program speaks 1 to {MAX_LEVEL}",
            newer=document.level > MAX_LEVEL,
        )
    return State(
        index=document.index,
        brokers={item.id: item for item in document.brokers},
        namespaces={item.name: item for item in document.namespaces},
        streams={item.key: item for item in document.streams},
        next_namespace_id=document.next_namespace_id,
        groups={item.id: item for item in document.groups},
        activity_on=document.activity_on,
        activity=document.activity,
        sinks={StreamKey(item.namespace, item.name): item for item in document.sinks},
        clock_ms=document.clock_ms,
        cluster_id=document.cluster_id,
        rescues=document.rescues,
        level=document.level,
        voters=document.voters,
        answers=document.answers,
        answered_to=document.answered_to,
        users={item.name: item for item in document.users},
        next_user_id=document.next_user_id,
    )


def _body(state: State) -> bytes:
    document = _Document(
        index=state.index,
        next_namespace_id=state.next_namespace_id,
        brokers=_sorted(state.brokers.items()),
        namespaces=_sorted(state.namespaces.items()),
        streams=_sorted(state.streams.items()),
        groups=_sorted(state.groups.items()),
        activity_on=state.activity_on,
        activity=state.activity,
        sinks=_sorted(state.sinks.items()),
        clock_ms=state.clock_ms,
        cluster_id=state.cluster_id,
        rescues=state.rescues,
        level=state.level,
        voters=state.voters,
        answers=state.answers,
        answered_to=state.answered_to,
        users=_sorted(state.users.items()),
        next_user_id=state.next_user_id,
    )
    return canonical(to_plain(document))


def _sorted(items: Iterable[tuple[Any, V]]) -> tuple[V, ...]:
    return tuple(value for _, value in sorted(items, key=lambda item: item[0]))
