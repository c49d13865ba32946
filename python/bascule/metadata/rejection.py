"""Why a request is rejected: one type from the state machine to the edge, where a protocol turns it into its status."""

from dataclasses import dataclass
from enum import StrEnum

from bascule.metadata.model import SETTING_BOUNDS

MAX_NAME_BYTES = 255
MAX_PORT = 65535
MAX_ARCHIVE_BYTES = 1024


class RejectionCode(StrEnum):
    """The rule that the request breaks."""

    ALREADY_MEMBER = "already_member"
    ARCHIVE_CONFLICT = "archive_conflict"
    ARCHIVE_GAP = "archive_gap"
    BROKER_ID_IN_USE = "broker_id_in_use"
    BROKER_UNKNOWN = "broker_unknown"
    CLUSTER_VERSION = "cluster_version"
    GROUP_EXISTS = "group_exists"
    GROUP_NOT_FOUND = "group_not_found"
    HOLD_NOT_FOUND = "hold_not_found"
    INCARNATION_CHANGED = "incarnation_changed"
    INVALID = "invalid"
    INVALID_REPLICATION_FACTOR = "invalid_replication_factor"
    NAMESPACE_EXISTS = "namespace_exists"
    NAMESPACE_NOT_FOUND = "namespace_not_found"
    NOT_A_MEMBER = "not_a_member"
    NOT_COORDINATOR = "not_coordinator"
    NOT_ENOUGH_BROKERS = "not_enough_brokers"
    NOT_OPEN = "not_open"
    NOT_WATCHED = "not_watched"
    NAME_IN_USE = "name_in_use"
    NO_COORDINATOR = "no_coordinator"
    NO_LEASE = "no_lease"
    NO_PARTITIONS = "no_partitions"
    NO_ROOM = "no_room"
    NUMBER_IN_USE = "number_in_use"
    OUTCOME_UNKNOWN = "outcome_unknown"
    PARTITION_NOT_FOUND = "partition_not_found"
    PASSWORD_CHANGED = "password_changed"  # noqa: S105 - a code
    PARTITIONS_FIXED = "partitions_fixed"
    PAUSED = "paused"
    QUERY_ACTIVE = "query_active"
    QUERY_NOT_OWNED = "query_not_owned"
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
    TOKEN_EXISTS = "token_exists"  # noqa: S105 - a code
    TOKEN_NOT_FOUND = "token_not_found"  # noqa: S105 - a code
    TOO_MANY_PARTITIONS = "too_many_partitions"
    TOO_MANY_QUERIES = "too_many_queries"
    TOO_MANY_TOKENS = "too_many_tokens"
    TOO_MANY_USERS = "too_many_users"
    USER_EXISTS = "user_exists"
    USER_IS_ROOT = "user_is_root"
    USER_NOT_FOUND = "user_not_found"


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


def check_port(port: int) -> None:
    """Ports are 0 to `MAX_PORT`."""
    if not 0 <= port <= MAX_PORT:
        raise invalid(f"port {port} is not between 0 and {MAX_PORT}")


def wrong_setting(setting: str, value: int, shown: str = "") -> str | None:
    """Why a stream's setting cannot be `value`; None when it can. `shown`: the name that the caller knows it by."""
    least, most = SETTING_BOUNDS[setting]
    return None if least <= value <= most else f"{shown or setting} is {value}, not between {least} and {most}"
