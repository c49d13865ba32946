"""Rejections and failures of the metadata log as Liftbridge's statuses."""

from bascule.errors import BrokerError, CapacityError, OutcomeUnknownError
from bascule.metadata.rejection import RejectedError, RejectionCode
from bascule.protocols.grpc_status import Status, StatusError

_STATUS = {
    RejectionCode.NO_PARTITIONS: Status.INVALID_ARGUMENT,
    RejectionCode.TOO_MANY_PARTITIONS: Status.INVALID_ARGUMENT,
    RejectionCode.SUBJECT_HAS_NO_ROOM: Status.INVALID_ARGUMENT,
    RejectionCode.INVALID_REPLICATION_FACTOR: Status.INVALID_ARGUMENT,
    RejectionCode.NOT_ENOUGH_BROKERS: Status.INVALID_ARGUMENT,
    RejectionCode.STREAM_EXISTS: Status.ALREADY_EXISTS,
    RejectionCode.STREAM_NOT_FOUND: Status.NOT_FOUND,
    RejectionCode.PARTITION_NOT_FOUND: Status.NOT_FOUND,
    RejectionCode.GROUP_NOT_FOUND: Status.NOT_FOUND,
    RejectionCode.ALREADY_MEMBER: Status.FAILED_PRECONDITION,
    RejectionCode.NOT_A_MEMBER: Status.FAILED_PRECONDITION,
    RejectionCode.NOT_COORDINATOR: Status.FAILED_PRECONDITION,
    RejectionCode.STALE_EPOCH: Status.FAILED_PRECONDITION,
    RejectionCode.STALE_COORDINATOR: Status.FAILED_PRECONDITION,
    RejectionCode.NO_COORDINATOR: Status.FAILED_PRECONDITION,
    RejectionCode.NO_LEASE: Status.UNAVAILABLE,
    RejectionCode.PAUSED: Status.FAILED_PRECONDITION,
    RejectionCode.NOT_OPEN: Status.UNAVAILABLE,
    RejectionCode.NOT_WATCHED: Status.UNKNOWN,
    RejectionCode.BROKER_UNKNOWN: Status.INVALID_ARGUMENT,
    RejectionCode.BROKER_ID_IN_USE: Status.ALREADY_EXISTS,
    RejectionCode.CLUSTER_VERSION: Status.FAILED_PRECONDITION,
    RejectionCode.OUTCOME_UNKNOWN: Status.DEADLINE_EXCEEDED,
    RejectionCode.INVALID: Status.INVALID_ARGUMENT,
    RejectionCode.NO_ROOM: Status.RESOURCE_EXHAUSTED,
    RejectionCode.INCARNATION_CHANGED: Status.FAILED_PRECONDITION,
    RejectionCode.ARCHIVE_CONFLICT: Status.FAILED_PRECONDITION,
    RejectionCode.ARCHIVE_GAP: Status.FAILED_PRECONDITION,
    RejectionCode.HOLD_NOT_FOUND: Status.NOT_FOUND,
    RejectionCode.QUERY_ACTIVE: Status.FAILED_PRECONDITION,
    RejectionCode.QUERY_NOT_OWNED: Status.PERMISSION_DENIED,
    RejectionCode.READONLY: Status.FAILED_PRECONDITION,
    RejectionCode.SINK_BUSY: Status.UNAVAILABLE,
    RejectionCode.SINK_CONFLICT: Status.FAILED_PRECONDITION,
    RejectionCode.SINK_EPOCH: Status.FAILED_PRECONDITION,
    RejectionCode.SINK_EXPIRED: Status.FAILED_PRECONDITION,
    RejectionCode.SINK_FENCED: Status.FAILED_PRECONDITION,
    RejectionCode.SINK_NOT_FOUND: Status.NOT_FOUND,
    RejectionCode.SINK_NOT_OWNED: Status.PERMISSION_DENIED,
    RejectionCode.SINK_PUBLISHED: Status.FAILED_PRECONDITION,
    RejectionCode.SINK_REPLAY_DIFFERS: Status.FAILED_PRECONDITION,
    RejectionCode.TOO_MANY_QUERIES: Status.RESOURCE_EXHAUSTED,
    RejectionCode.NAMESPACE_EXISTS: Status.ALREADY_EXISTS,
    RejectionCode.NAMESPACE_NOT_FOUND: Status.NOT_FOUND,
    RejectionCode.GROUP_EXISTS: Status.ALREADY_EXISTS,
    RejectionCode.NUMBER_IN_USE: Status.ALREADY_EXISTS,
    RejectionCode.NAME_IN_USE: Status.FAILED_PRECONDITION,
    RejectionCode.PARTITIONS_FIXED: Status.FAILED_PRECONDITION,
    RejectionCode.USER_EXISTS: Status.ALREADY_EXISTS,
    RejectionCode.USER_IS_ROOT: Status.FAILED_PRECONDITION,
    RejectionCode.USER_NOT_FOUND: Status.NOT_FOUND,
    RejectionCode.PASSWORD_CHANGED: Status.ABORTED,
    RejectionCode.TOKEN_EXISTS: Status.ALREADY_EXISTS,
    RejectionCode.TOKEN_NOT_FOUND: Status.NOT_FOUND,
    RejectionCode.TOO_MANY_TOKENS: Status.RESOURCE_EXHAUSTED,
    RejectionCode.TOO_MANY_USERS: Status.RESOURCE_EXHAUSTED,
}
_CODES = {
    RejectionCode.STREAM_EXISTS: "stream_exists",
    RejectionCode.STREAM_NOT_FOUND: "stream_not_found",
    RejectionCode.PARTITION_NOT_FOUND: "partition_not_found",
    **{code: code.value for code in RejectionCode if code.startswith("sink_")},
    RejectionCode.INCARNATION_CHANGED: "incarnation_changed",
    RejectionCode.ARCHIVE_CONFLICT: "archive_conflict",
    RejectionCode.ARCHIVE_GAP: "archive_gap",
    RejectionCode.HOLD_NOT_FOUND: "hold_not_found",
    RejectionCode.QUERY_ACTIVE: "query_active",
    RejectionCode.QUERY_NOT_OWNED: "query_not_owned",
    RejectionCode.TOO_MANY_QUERIES: "too_many_queries",
    RejectionCode.READONLY: "readonly",
    RejectionCode.OUTCOME_UNKNOWN: "outcome_unknown",
}
"""Codes that differ from the usual one of the status."""
_TEXT = {
    RejectionCode.STREAM_EXISTS: "stream already exists",
    RejectionCode.STREAM_NOT_FOUND: "stream does not exist",
    RejectionCode.PARTITION_NOT_FOUND: "partition does not exist",
    RejectionCode.GROUP_NOT_FOUND: "consumer group does not exist",
    RejectionCode.ALREADY_MEMBER: "consumer is already a member of the consumer group",
    RejectionCode.NOT_A_MEMBER: "consumer is not a member of the consumer group",
}


def status_of_rejection(error: RejectedError) -> StatusError:
    """The status of a rejected request."""
    code = error.rejection.code
    text = _TEXT.get(code, error.rejection.message)
    return StatusError(_STATUS[code], text, _CODES.get(code), reason=code.value)


def not_applied(prefix: str, failure: BrokerError) -> StatusError:
    """The status of a request whose entry did not get through the metadata log, or could not be carried out."""
    reason = "raft operation timed out" if isinstance(failure, OutcomeUnknownError) else str(failure)
    status = Status.RESOURCE_EXHAUSTED if isinstance(failure, CapacityError) else Status.INTERNAL
    return StatusError(status, f"{prefix}: {reason}", failure.code, **failure.details)
