"""What the rights of a user of Iggy's clients allow. Pure.

Any one right of a rule suffices. The rules are those of the current servers, for clients of every generation. The data
plane gets the outcome for the actions that it decides (`NATIVE`), so it knows no rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from bascule.metadata import ROOT_ID, GlobalRight, Rights, StreamRight, StreamRights, TopicRight, TopicRights, User

__all__ = ["RULES", "UserAction", "may", "user_spec"]


class UserAction(Enum):
    """What a user may be allowed to do."""

    READ_SERVERS = auto()
    READ_USERS = auto()
    MANAGE_USERS = auto()
    LIST_STREAMS = auto()
    READ_STREAM = auto()
    CREATE_STREAM = auto()
    MANAGE_STREAM = auto()
    LIST_TOPICS = auto()
    READ_TOPIC = auto()
    """A topic, and every command about its consumer groups."""
    CREATE_TOPIC = auto()
    MANAGE_TOPIC = auto()
    """A topic and its partitions."""
    POLL = auto()
    """Messages, and stored offsets."""
    SEND = auto()


@dataclass(frozen=True, slots=True)
class Rule:
    """The rights of which one suffices: everywhere, on the stream, on the topic."""

    everywhere: int = 0
    stream: int = 0
    topic: int = 0


_G, _S, _T = GlobalRight, StreamRight, TopicRight
_ANY_STREAM: Final = _G.MANAGE_STREAMS | _G.READ_STREAMS
_ANY_TOPIC: Final = _ANY_STREAM | _G.MANAGE_TOPICS | _G.READ_TOPICS
_ANY_TOPIC_OF_STREAM: Final = _S.MANAGE_STREAM | _S.READ_STREAM | _S.MANAGE_TOPICS | _S.READ_TOPICS
_MANAGE_TOPICS: Final = _G.MANAGE_STREAMS | _G.MANAGE_TOPICS
_MANAGE_TOPICS_OF_STREAM: Final = _S.MANAGE_STREAM | _S.MANAGE_TOPICS

RULES: Final[Mapping[UserAction, Rule]] = {
    UserAction.READ_SERVERS: Rule(_G.MANAGE_SERVERS | _G.READ_SERVERS),
    UserAction.READ_USERS: Rule(_G.MANAGE_USERS | _G.READ_USERS),
    UserAction.MANAGE_USERS: Rule(_G.MANAGE_USERS),
    UserAction.LIST_STREAMS: Rule(_ANY_STREAM),
    UserAction.READ_STREAM: Rule(_ANY_STREAM, _S.MANAGE_STREAM | _S.READ_STREAM),
    UserAction.CREATE_STREAM: Rule(_G.MANAGE_STREAMS),
    UserAction.MANAGE_STREAM: Rule(_G.MANAGE_STREAMS, _S.MANAGE_STREAM),
    UserAction.LIST_TOPICS: Rule(_ANY_TOPIC, _ANY_TOPIC_OF_STREAM),
    UserAction.READ_TOPIC: Rule(_ANY_TOPIC, _ANY_TOPIC_OF_STREAM, _T.MANAGE_TOPIC | _T.READ_TOPIC),
    UserAction.CREATE_TOPIC: Rule(_MANAGE_TOPICS, _MANAGE_TOPICS_OF_STREAM),
    UserAction.MANAGE_TOPIC: Rule(_MANAGE_TOPICS, _MANAGE_TOPICS_OF_STREAM, _T.MANAGE_TOPIC),
    UserAction.POLL: Rule(
        _G.POLL_MESSAGES | _ANY_TOPIC,
        _S.POLL_MESSAGES | _ANY_TOPIC_OF_STREAM,
        _T.POLL_MESSAGES | _T.READ_TOPIC | _T.MANAGE_TOPIC,
    ),
    UserAction.SEND: Rule(
        _G.SEND_MESSAGES | _MANAGE_TOPICS,
        _S.SEND_MESSAGES | _MANAGE_TOPICS_OF_STREAM,
        _T.SEND_MESSAGES | _T.MANAGE_TOPIC,
    ),
}

NATIVE: Final = (UserAction.POLL, UserAction.SEND, UserAction.READ_TOPIC, UserAction.READ_SERVERS)
"""The actions that the data plane decides: bit 0, 1, … of the masks of `user_spec`."""


def may(user: User, action: UserAction, stream: int | None = None, topic: int | None = None) -> bool:
    """Whether `user` may do this.

    Args:
        user: who asks, active.
        action: what.
        stream: number of the namespace; `None` = none, or one that does not exist.
        topic: number of the stream in it; `None` = none, or one that does not exist.
    """
    if user.id == ROOT_ID:
        return True
    if user.rights is None:
        return False
    rule = RULES[action]
    on_stream = next((item for item in user.rights.streams if item.id == stream), StreamRights(0, 0))
    on_topic = next((item for item in on_stream.topics if item.id == topic), TopicRights(0, 0))
    found = user.rights.rights & rule.everywhere, on_stream.rights & rule.stream, on_topic.rights & rule.topic
    return any(found)


def user_spec(user: User) -> dict[str, Any]:
    """One of the `users` of `Engine.publish_view`."""
    granted = user.granted or Rights()
    return {
        "id": user.id,
        "name": user.name,
        "everywhere": _mask([bool(granted.rights & RULES[action].everywhere) for action in NATIVE]),
        "streams": [
            (item.id, _mask([bool(item.rights & RULES[action].stream) for action in NATIVE]))
            for item in granted.streams
        ],
        "topics": [
            (item.id, topic.id, _mask([bool(topic.rights & RULES[action].topic) for action in NATIVE]))
            for item in granted.streams
            for topic in item.topics
        ],
    }


def _mask(allowed: Sequence[bool]) -> int:
    return sum(1 << bit for bit, is_allowed in enumerate(allowed) if is_allowed)
