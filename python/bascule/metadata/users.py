"""Users of Iggy's clients: who logs in, what each may do, and the tokens that stand for them. Immutable values.

Rights are bits, in the order in which the protocol lists them. They name namespaces and streams by number, so they
never pass to what is created later under the same name; a deletion removes the rights that name what is deleted.
"""

from dataclasses import dataclass, field
from enum import IntFlag, auto
from typing import Final

from bascule.metadata.json_codec import ADDED

ROOT_ID: Final = 0
"""The first user: may do everything, and cannot be deleted, deactivated or given other rights."""
MAX_USERS: Final = 10_000
DEFAULT_TOKENS: Final = 100
"""Most tokens of one user, if no broker is configured otherwise; those that have expired do not count."""
MAX_TOKENS: Final = 1_000
"""Most tokens of one user that a broker may be configured to allow."""
MAX_GRANTS: Final = 100_000
"""Most streams and topics that the rights of all users name together."""


class GlobalRight(IntFlag):
    """What a user may do everywhere."""

    MANAGE_SERVERS = auto()
    READ_SERVERS = auto()
    MANAGE_USERS = auto()
    READ_USERS = auto()
    MANAGE_STREAMS = auto()
    READ_STREAMS = auto()
    MANAGE_TOPICS = auto()
    READ_TOPICS = auto()
    POLL_MESSAGES = auto()
    SEND_MESSAGES = auto()


class StreamRight(IntFlag):
    """What a user may do with one namespace, which clients call a stream."""

    MANAGE_STREAM = auto()
    READ_STREAM = auto()
    MANAGE_TOPICS = auto()
    READ_TOPICS = auto()
    POLL_MESSAGES = auto()
    SEND_MESSAGES = auto()


class TopicRight(IntFlag):
    """What a user may do with one stream, which clients call a topic."""

    MANAGE_TOPIC = auto()
    READ_TOPIC = auto()
    POLL_MESSAGES = auto()
    SEND_MESSAGES = auto()


@dataclass(frozen=True, slots=True)
class TopicRights:
    """Rights on one stream: its number, 0-based, and `TopicRight` bits."""

    id: int
    rights: int


@dataclass(frozen=True, slots=True)
class StreamRights:
    """Rights on one namespace: its number, `StreamRight` bits, and those on its streams, ascending by number."""

    id: int
    rights: int
    topics: tuple[TopicRights, ...] = ()


@dataclass(frozen=True, slots=True)
class Rights:
    """All rights of a user: `GlobalRight` bits, and those on namespaces, ascending by number."""

    rights: int = 0
    streams: tuple[StreamRights, ...] = ()

    @property
    def grants(self) -> int:
        """How many namespaces and streams it names."""
        return len(self.streams) + sum(len(item.topics) for item in self.streams)


EVERYTHING: Final = Rights(int(~GlobalRight(0)))
"""The rights of root."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A text that stands for a name and a password.

    Attributes:
        name: 3 to 30 bytes, unique among those of the user.
        digest: SHA-256 of the text, hexadecimal.
        expires_ns: from then on it is refused; 0 = never.
    """

    name: str
    digest: str
    expires_ns: int

    def is_valid_at(self, now_ns: int) -> bool:
        """Whether it has not expired."""
        return self.expires_ns == 0 or now_ns < self.expires_ns


@dataclass(frozen=True, slots=True)
class User:
    """Who logs in with a password: a user of Iggy's clients.

    Attributes:
        name: 3 to 50 bytes, unique.
        id: number, 0-based, never used again; 0 is root.
        password: its hash, with the parameters (Argon2id, PHC string format).
        created_ns: when it was made.
        is_active: whether it may log in.
        rights: `None` = none; root needs none.
        tokens: ascending by name.
    """

    name: str
    id: int
    password: str
    created_ns: int
    is_active: bool = field(default=True, metadata=ADDED)
    rights: Rights | None = field(default=None, metadata=ADDED)
    tokens: tuple[AccessToken, ...] = field(default=(), metadata=ADDED)

    @property
    def granted(self) -> Rights | None:
        """Its rights; root has all of them everywhere."""
        return EVERYTHING if self.id == ROOT_ID else self.rights
