"""Refusals of the controller and failures of the metadata log as Liftbridge's statuses."""

from bascule.control import RefusalCode
from bascule.control.controller import RefusedError
from bascule.errors import BrokerError, CapacityError, OutcomeUnknownError
from bascule.protocols.grpc_status import Status, StatusError

_REFUSED = {
    RefusalCode.NO_PARTITIONS: Status.INVALID_ARGUMENT,
    RefusalCode.TOO_MANY_PARTITIONS: Status.INVALID_ARGUMENT,
    RefusalCode.SUBJECT_HAS_NO_ROOM: Status.INVALID_ARGUMENT,
    RefusalCode.INVALID_REPLICATION_FACTOR: Status.INVALID_ARGUMENT,
    RefusalCode.NOT_ENOUGH_BROKERS: Status.INVALID_ARGUMENT,
    RefusalCode.STREAM_EXISTS: Status.ALREADY_EXISTS,
    RefusalCode.STREAM_NOT_FOUND: Status.NOT_FOUND,
    RefusalCode.PARTITION_NOT_FOUND: Status.NOT_FOUND,
    RefusalCode.GROUP_NOT_FOUND: Status.NOT_FOUND,
    RefusalCode.ALREADY_MEMBER: Status.FAILED_PRECONDITION,
    RefusalCode.NOT_A_MEMBER: Status.FAILED_PRECONDITION,
    RefusalCode.NOT_COORDINATOR: Status.FAILED_PRECONDITION,
    RefusalCode.STALE_EPOCH: Status.FAILED_PRECONDITION,
    RefusalCode.STALE_COORDINATOR: Status.FAILED_PRECONDITION,
    RefusalCode.NO_COORDINATOR: Status.FAILED_PRECONDITION,
    RefusalCode.PAUSED: Status.FAILED_PRECONDITION,
    RefusalCode.NOT_OPEN: Status.UNAVAILABLE,
    RefusalCode.INVALID: Status.INVALID_ARGUMENT,
    RefusalCode.NO_ROOM: Status.RESOURCE_EXHAUSTED,
}
_CODES = {
    RefusalCode.STREAM_EXISTS: "stream_exists",
    RefusalCode.STREAM_NOT_FOUND: "stream_not_found",
    RefusalCode.PARTITION_NOT_FOUND: "partition_not_found",
}
"""Where the status says less; the other refusals have the usual code of their status."""
_TEXT = {
    RefusalCode.STREAM_EXISTS: "stream already exists",
    RefusalCode.STREAM_NOT_FOUND: "stream does not exist",
    RefusalCode.PARTITION_NOT_FOUND: "partition does not exist",
    RefusalCode.GROUP_NOT_FOUND: "consumer group does not exist",
    RefusalCode.ALREADY_MEMBER: "consumer is already a member of the consumer group",
    RefusalCode.NOT_A_MEMBER: "consumer is not a member of the consumer group",
}


def refused(refusal: RefusedError) -> StatusError:
    """The status of a wish that was not granted."""
    code = refusal.refusal.code
    text = _TEXT.get(code, refusal.refusal.message)
    return StatusError(_REFUSED[code], text, _CODES.get(code), reason=code.value)


def not_applied(prefix: str, failure: BrokerError) -> StatusError:
    """The status of a wish whose entry did not get through the metadata log, or could not be carried out."""
    reason = "raft operation timed out" if isinstance(failure, OutcomeUnknownError) else str(failure)
    status = Status.RESOURCE_EXHAUSTED if isinstance(failure, CapacityError) else Status.INTERNAL
    return StatusError(status, f"{prefix}: {reason}", failure.code, **failure.details)
