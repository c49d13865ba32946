"""Statuses of Iggy's protocol, and errors of ours as such."""

from enum import IntEnum
from typing import Final

from bascule.errors import BrokerError, CapacityError
from bascule.metadata.rejection import RejectedError, RejectionCode
from bascule.protocols.grpc_status import Status, StatusError

__all__ = ["IggyError", "IggyStatus", "from_failure", "from_rejection"]


class IggyStatus(IntEnum):
    """The statuses that commands decided here are answered with."""

    ERROR = 1
    INVALID_COMMAND = 3
    FEATURE_UNAVAILABLE = 5
    RESOURCE_NOT_FOUND = 20
    UNAUTHENTICATED = 40
    UNAUTHORIZED = 41
    INVALID_CREDENTIALS = 42
    INVALID_USERNAME = 43
    INVALID_PASSWORD = 44
    USER_EXISTS = 46
    USER_INACTIVE = 47
    CANNOT_DELETE_USER = 48
    CANNOT_CHANGE_PERMISSIONS = 49
    INVALID_TOKEN_NAME = 50
    TOKEN_EXISTS = 51
    TOO_MANY_TOKENS = 52
    INVALID_TOKEN = 53
    TOKEN_EXPIRED = 54
    TOO_MANY_USERS = 55
    INVALID_ACCESS_TOKEN = 78
    STREAM_ID_NOT_FOUND = 1009
    STREAM_NAME_NOT_FOUND = 1010
    STREAM_ID_EXISTS = 1011
    STREAM_NAME_EXISTS = 1012
    INVALID_STREAM_NAME = 1013
    INVALID_STREAM_ID = 1014
    TOPIC_ID_NOT_FOUND = 2010
    TOPIC_NAME_NOT_FOUND = 2011
    TOPIC_ID_EXISTS = 2012
    TOPIC_NAME_EXISTS = 2013
    INVALID_TOPIC_NAME = 2014
    TOO_MANY_PARTITIONS = 2015
    INVALID_TOPIC_ID = 2016
    INVALID_REPLICATION_FACTOR = 2018
    PARTITION_NOT_FOUND = 3007
    UNSUPPORTED_OPTION = 4041
    INVALID_OPTION = 4042
    OPTIONS_TOO_LARGE = 4043
    GROUP_ID_NOT_FOUND = 5000
    GROUP_ID_EXISTS = 5001
    INVALID_GROUP_ID = 5002
    GROUP_NAME_NOT_FOUND = 5003
    GROUP_NAME_EXISTS = 5004
    INVALID_GROUP_NAME = 5005


class IggyError(StatusError):
    """A command that fails with a status of Iggy; `message` is for the log only, clients get the number."""

    def __init__(self, status: IggyStatus, message: str) -> None:
        super().__init__(_GRPC.get(status, Status.FAILED_PRECONDITION), message)
        self.iggy_status = int(status)


_GRPC: Final = {
    IggyStatus.INVALID_COMMAND: Status.INVALID_ARGUMENT,
    IggyStatus.INVALID_USERNAME: Status.INVALID_ARGUMENT,
    IggyStatus.INVALID_PASSWORD: Status.INVALID_ARGUMENT,
    IggyStatus.INVALID_TOKEN_NAME: Status.INVALID_ARGUMENT,
    IggyStatus.UNSUPPORTED_OPTION: Status.INVALID_ARGUMENT,
    IggyStatus.INVALID_OPTION: Status.INVALID_ARGUMENT,
    IggyStatus.OPTIONS_TOO_LARGE: Status.INVALID_ARGUMENT,
    IggyStatus.USER_EXISTS: Status.ALREADY_EXISTS,
    IggyStatus.TOKEN_EXISTS: Status.ALREADY_EXISTS,
    IggyStatus.TOO_MANY_TOKENS: Status.RESOURCE_EXHAUSTED,
    IggyStatus.RESOURCE_NOT_FOUND: Status.NOT_FOUND,
    IggyStatus.STREAM_NAME_NOT_FOUND: Status.NOT_FOUND,
    IggyStatus.TOPIC_NAME_NOT_FOUND: Status.NOT_FOUND,
}
"""Statuses as the administration of the broker shows them; others are FAILED_PRECONDITION."""


_OF_REJECTION: Final = {
    RejectionCode.NAMESPACE_EXISTS: IggyStatus.STREAM_NAME_EXISTS,
    RejectionCode.NAMESPACE_NOT_FOUND: IggyStatus.STREAM_NAME_NOT_FOUND,
    RejectionCode.STREAM_EXISTS: IggyStatus.TOPIC_NAME_EXISTS,
    RejectionCode.STREAM_NOT_FOUND: IggyStatus.TOPIC_NAME_NOT_FOUND,
    RejectionCode.GROUP_EXISTS: IggyStatus.GROUP_NAME_EXISTS,
    RejectionCode.GROUP_NOT_FOUND: IggyStatus.GROUP_NAME_NOT_FOUND,
    RejectionCode.NO_PARTITIONS: IggyStatus.FEATURE_UNAVAILABLE,
    RejectionCode.TOO_MANY_PARTITIONS: IggyStatus.TOO_MANY_PARTITIONS,
    RejectionCode.NAME_IN_USE: IggyStatus.FEATURE_UNAVAILABLE,
    RejectionCode.PARTITIONS_FIXED: IggyStatus.FEATURE_UNAVAILABLE,
    RejectionCode.INVALID_REPLICATION_FACTOR: IggyStatus.INVALID_REPLICATION_FACTOR,
    RejectionCode.NOT_ENOUGH_BROKERS: IggyStatus.INVALID_REPLICATION_FACTOR,
    RejectionCode.USER_EXISTS: IggyStatus.USER_EXISTS,
    RejectionCode.USER_IS_ROOT: IggyStatus.CANNOT_CHANGE_PERMISSIONS,
    RejectionCode.USER_NOT_FOUND: IggyStatus.RESOURCE_NOT_FOUND,
    RejectionCode.PASSWORD_CHANGED: IggyStatus.INVALID_CREDENTIALS,
    RejectionCode.TOKEN_EXISTS: IggyStatus.TOKEN_EXISTS,
    RejectionCode.TOKEN_NOT_FOUND: IggyStatus.RESOURCE_NOT_FOUND,
    RejectionCode.TOO_MANY_TOKENS: IggyStatus.TOO_MANY_TOKENS,
    RejectionCode.TOO_MANY_USERS: IggyStatus.TOO_MANY_USERS,
}


def from_rejection(rejected: RejectedError, number_in_use: IggyStatus = IggyStatus.ERROR) -> IggyError:
    """The status of a rejected request. `number_in_use`: of one whose number another has."""
    rejection = rejected.rejection
    if rejection.code is RejectionCode.NUMBER_IN_USE:
        return IggyError(number_in_use, rejection.message)
    return IggyError(_OF_REJECTION.get(rejection.code, IggyStatus.ERROR), rejection.message)


def from_failure(failure: BrokerError) -> IggyError:
    """The status of a request that did not get through the metadata log, or could not be carried out."""
    what = "there is no room" if isinstance(failure, CapacityError) else "it could not be carried out"
    return IggyError(IggyStatus.ERROR, f"{what}: {failure}")
