"""Users, streams and topics of requests, by number or name; the latter as the namespaces and streams that they are.

Namespace n ≥ 1 is stream n. `default`, whose number is 0, is the last one, so that an application may create its first
stream with the number 1. Topic n of a stream is the stream of number n − 1 in the namespace.
"""

from collections.abc import Iterable
from typing import Final

from bascule.control.specs import INTERNAL_STREAMS
from bascule.metadata import DEFAULT_NAMESPACE, Namespace, State, Stream, User
from bascule.protocols.iggy.fields import Identifier
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = [
    "DEFAULT_NUMBER",
    "find_stream",
    "find_topic",
    "find_user",
    "stream_number",
    "streams_of",
    "topic_number",
    "topics_of",
    "user_number",
]

DEFAULT_NUMBER: Final = (1 << 32) - 1
"""The number of the namespace `default`."""


def stream_number(namespace: Namespace) -> int:
    """The number that a namespace is shown with, 1 to 2^32 − 1."""
    return namespace.id or DEFAULT_NUMBER


def topic_number(stream: Stream) -> int:
    """The number that a stream is shown with, from 1."""
    return stream.id + 1


def user_number(user: User) -> int:
    """The number that a user is shown with, from 1."""
    return user.id + 1


def find_user(state: State, wanted: Identifier) -> User | None:
    """The user of a number or name; `None` = there is none."""
    if isinstance(wanted, str):
        return state.users.get(wanted)
    return next((user for user in state.users.values() if user_number(user) == wanted), None)


def streams_of(state: State) -> list[Namespace]:
    """All namespaces, in the order of their shown numbers."""
    return sorted(state.namespaces.values(), key=stream_number)


def topics_of(state: State, namespace: Namespace) -> list[Stream]:
    """The streams of a namespace, in the order of their numbers; the broker's own are not shown."""
    return sorted(_shown(state, namespace), key=topic_number)


def find_stream(state: State, wanted: Identifier) -> Namespace:
    """The namespace of a number or name.

    Raises:
        IggyError: 1009, 1010.
    """
    if isinstance(wanted, str):
        found = state.namespaces.get(wanted)
        missing = IggyStatus.STREAM_NAME_NOT_FOUND
    else:
        found = next((item for item in state.namespaces.values() if stream_number(item) == wanted), None)
        missing = IggyStatus.STREAM_ID_NOT_FOUND
    if found is None:
        raise IggyError(missing, f"stream {wanted!r} does not exist")
    return found


def find_topic(state: State, namespace: Namespace, wanted: Identifier) -> Stream:
    """The stream of a number or name in a namespace.

    Raises:
        IggyError: 2010, 2011.
    """
    if isinstance(wanted, str):
        found = state.stream(namespace.name, wanted)
        missing = IggyStatus.TOPIC_NAME_NOT_FOUND
    else:
        found = next((item for item in _shown(state, namespace) if topic_number(item) == wanted), None)
        missing = IggyStatus.TOPIC_ID_NOT_FOUND
    if found is None or _is_internal(found):
        raise IggyError(missing, f"topic {wanted!r} does not exist in stream {namespace.name!r}")
    return found


def _shown(state: State, namespace: Namespace) -> Iterable[Stream]:
    return (
        stream for key, stream in state.streams.items() if key.namespace == namespace.name and not _is_internal(stream)
    )


def _is_internal(stream: Stream) -> bool:
    return stream.namespace == DEFAULT_NAMESPACE and stream.name in INTERNAL_STREAMS
