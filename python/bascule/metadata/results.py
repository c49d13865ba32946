"""What applying a command gives its proposer."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class RefusedCode(StrEnum):
    """Why a command changed nothing."""

    ALREADY_MEMBER = "already_member"
    BROKER_UNKNOWN = "broker_unknown"
    GROUP_NOT_FOUND = "group_not_found"
    INVALID_COMMAND = "invalid_command"
    NOT_A_MEMBER = "not_a_member"
    PARTITION_NOT_FOUND = "partition_not_found"
    STREAM_EXISTS = "stream_exists"
    STREAM_NOT_FOUND = "stream_not_found"


@dataclass(frozen=True, slots=True)
class Applied:
    """The command took effect as entry `index`."""

    index: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The command changed nothing; `message` is one sentence with the values that matter."""

    index: int
    code: RefusedCode
    message: str


Result: TypeAlias = Applied | Refused
