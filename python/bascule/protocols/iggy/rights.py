"""Rights between the state and the protocol, and users as clients see them.

The state numbers namespaces and streams as it does everywhere; clients see the numbers of `lookup`.
"""

from collections.abc import Sequence
from dataclasses import astuple
from typing import Final

from bascule.metadata import MAX_NUMBERS, Rights, StreamRights, TopicRights, User
from bascule.protocols.iggy import replies
from bascule.protocols.iggy.lookup import DEFAULT_NUMBER, user_number
from bascule.protocols.iggy.permissions import (
    GlobalFlags,
    Permissions,
    StreamFlags,
    TopicFlags,
    encode_permissions,
)
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = ["shown_user", "shown_user_details", "to_permissions", "to_rights"]

NS_PER_US: Final = 1000


def to_rights(permissions: Permissions | None) -> Rights | None:
    """Permissions of a request as rights.

    Raises:
        IggyError: 3: a number that no stream or topic can have.
    """
    if permissions is None:
        return None
    topics: dict[int, list[TopicRights]] = {}
    for (stream, topic), flags in sorted(permissions.topics.items()):
        if not 1 <= topic <= MAX_NUMBERS:
            raise _impossible("topic", topic)
        topics.setdefault(stream, []).append(TopicRights(topic - 1, _bits(astuple(flags))))
    streams = [
        StreamRights(_namespace(number), _bits(astuple(flags)), tuple(topics.get(number, ())))
        for number, flags in permissions.streams.items()
    ]
    ordered = tuple(sorted(streams, key=lambda item: item.id))
    return Rights(_bits(astuple(permissions.everywhere)), ordered)


def to_permissions(rights: Rights) -> Permissions:
    """Rights as clients see them."""
    streams, topics = dict[int, StreamFlags](), dict[tuple[int, int], TopicFlags]()
    for stream in rights.streams:
        number = stream.id or DEFAULT_NUMBER
        streams[number] = StreamFlags(*_flags(stream.rights, 6))
        for topic in stream.topics:
            topics[number, topic.id + 1] = TopicFlags(*_flags(topic.rights, 4))
    return Permissions(GlobalFlags(*_flags(rights.rights, 10)), streams, topics)


def shown_user(user: User) -> bytes:
    """A user as in lists."""
    shown = replies.User(user_number(user), user.created_ns // NS_PER_US, user.name, is_active=user.is_active)
    return shown.encode()


def shown_user_details(user: User) -> bytes:
    """A user with its rights."""
    block = encode_permissions(to_permissions(user.granted)) if user.granted is not None else None
    return shown_user(user) + replies.permissions(block)


def _namespace(number: int) -> int:
    if number == DEFAULT_NUMBER:
        return 0
    if not 1 <= number < MAX_NUMBERS:
        raise _impossible("stream", number)
    return number


def _impossible(what: str, number: int) -> IggyError:
    return IggyError(IggyStatus.INVALID_COMMAND, f"rights name {what} {number}, and no {what} can have this number")


def _bits(flags: Sequence[bool]) -> int:
    return sum(1 << bit for bit, is_set in enumerate(flags) if is_set)


def _flags(bits: int, count: int) -> list[bool]:
    return [bool(bits >> bit & 1) for bit in range(count)]
