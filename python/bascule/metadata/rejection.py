"""Why a request is rejected: one type from the state machine to the edge, where a protocol turns it into its status."""

from dataclasses import dataclass
from enum import StrEnum

from bascule.metadata.model import SETTING_BOUNDS

MAX_NAME_BYTES = 255


class RejectionCode(StrEnum):
    """The rule that the request breaks."""

    ALREADY_MEMBER = "already_member"
    BROKER_UNKNOWN = "broker_unknown"
    GROUP_NOT_FOUND = "group_not_found"
    INCARNATION_CHANGED = "incarnation_changed"
    INVALID = "invalid"
    INVALID_REPLICATION_FACTOR = "invalid_replication_factor"
    NOT_A_MEMBER = "not_a_member"
    NOT_COORDINATOR = "not_coordinator"
    NOT_ENOUGH_BROKERS = "not_enough_brokers"
    NOT_OPEN = "not_open"
    NOT_WATCHED = "not_watched"
    NO_COORDINATOR = "no_coordinator"
    NO_PARTITIONS = "no_partitions"
    NO_ROOM = "no_room"
    PARTITION_NOT_FOUND = "partition_not_found"
    PAUSED = "paused"
    READONLY = "readonly"
    SINK_BUSY = "sink_busy"
    SINK_CONFLICT = "sink_conflict"
    SINK_EPOCH = "sink_epoch"
    SINK_EXPIRED = "sink_expired"
    SINK_FENCED = "sink_fenced"
    SINK_NOT_FOUND = "sink_not_found"
    SINK_NOT_OWNED = "sink_not_owned"
    SINK_PUBLISHED = "sink_published"
    SINK_REPLAY_DIFFERS = "sink_replay_differs"
    STALE_COORDINATOR = "stale_coordinator"
    STALE_EPOCH = "stale_epoch"
    STREAM_EXISTS = "stream_exists"
    STREAM_NOT_FOUND = "stream_not_found"
    SUBJECT_HAS_NO_ROOM = "subject_has_no_room"
    TOO_MANY_PARTITIONS = "too_many_partitions"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected request, which changed nothing; `message` is one sentence with the values that matter."""

    code: RejectionCode
    message: str


class RejectedError(Exception):
    """Raised for a rejected request."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection


def rejected(code: RejectionCode, message: str) -> RejectedError:
    """The error for a rejection."""
    return RejectedError(Rejection(code, message))


def invalid(message: str) -> RejectedError:
    """The error for a command that no state would allow."""
    return rejected(RejectionCode.INVALID, message)


def check_name(what: str, name: str) -> None:
    """Names are 1 to `MAX_NAME_BYTES` bytes long."""
    if not 1 <= len(name.encode()) <= MAX_NAME_BYTES:
        raise invalid(f"{what} is not between 1 and {MAX_NAME_BYTES} bytes long")


def wrong_setting(setting: str, value: int, shown: str = "") -> str | None:
    """Why a stream's setting cannot be `value`; None when it can. `shown`: the name that the caller knows it by."""
    least, most = SETTING_BOUNDS[setting]
    return None if least <= value <= most else f"{shown or setting} is {value}, not between {least} and {most}"
