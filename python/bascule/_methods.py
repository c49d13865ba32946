"""Generated from specs/proto and specs/methods.toml by specs/generate_methods.py: change them there."""

from typing import Final, NamedTuple

__all__ = ["ACTIONS", "METHODS", "Method"]


class Method(NamedTuple):
    """A method of the gRPC port.

    Attributes:
        service: full name of its service.
        request: message of the request, in the package of the service.
        action: the right in a policy that it needs.
        resource: what the right is needed on, see specs/methods.toml; empty = the data plane checks.
        in_control: the control plane answers it.
        request_bytes: largest request message; `None` = only `limits.message_bytes` bounds it.
    """

    service: str
    request: str
    action: str
    resource: str
    in_control: bool
    request_bytes: int | None


METHODS: Final[dict[str, Method]] = {
    "CreateStream": Method("proto.API", "CreateStreamRequest", "CreateStream", "computed", True, None),
    "DeleteStream": Method("proto.API", "DeleteStreamRequest", "DeleteStream", "name", True, None),
    "PauseStream": Method("proto.API", "PauseStreamRequest", "PauseStream", "name", True, None),
    "SetStreamReadonly": Method("proto.API", "SetStreamReadonlyRequest", "SetStreamReadonly", "name", True, None),
    "Subscribe": Method("proto.API", "SubscribeRequest", "Subscribe", "", False, None),
    "FetchMetadata": Method("proto.API", "FetchMetadataRequest", "FetchMetadata", "*", True, None),
    "FetchPartitionMetadata": Method(
        "proto.API", "FetchPartitionMetadataRequest", "FetchPartitionMetadata", "stream", True, None
    ),
    "Publish": Method("proto.API", "PublishRequest", "Publish", "", False, None),
    "PublishAsync": Method("proto.API", "PublishRequest", "Publish", "", False, None),
    "PublishToSubject": Method("proto.API", "PublishToSubjectRequest", "PublishToSubject", "", False, None),
    "SetCursor": Method("proto.API", "SetCursorRequest", "SetCursor", "", False, None),
    "FetchCursor": Method("proto.API", "FetchCursorRequest", "FetchCursor", "", False, None),
    "JoinConsumerGroup": Method("proto.API", "JoinConsumerGroupRequest", "JoinConsumerGroup", "computed", True, None),
    "LeaveConsumerGroup": Method(
        "proto.API", "LeaveConsumerGroupRequest", "LeaveConsumerGroup", "computed", True, None
    ),
    "FetchConsumerGroupAssignments": Method(
        "proto.API", "FetchConsumerGroupAssignmentsRequest", "FetchConsumerGroupAssignments", "computed", True, None
    ),
    "ReportConsumerGroupCoordinator": Method(
        "proto.API", "ReportConsumerGroupCoordinatorRequest", "ReportConsumerGroupCoordinator", "computed", True, None
    ),
    "TrimPartition": Method("bascule.admin.v1.Admin", "TrimPartitionRequest", "TrimPartition", "name", True, 65536),
    "PurgeStream": Method("bascule.admin.v1.Admin", "PurgeStreamRequest", "PurgeStream", "name", True, 65536),
    "EditStream": Method("bascule.admin.v1.Admin", "EditStreamRequest", "EditStream", "name", True, 65536),
    "ResumeStream": Method("bascule.admin.v1.Admin", "ResumeStreamRequest", "PauseStream", "name", True, 65536),
    "CheckCreateStream": Method(
        "bascule.admin.v1.Admin", "CheckCreateStreamRequest", "CreateStream", "computed", True, 65536
    ),
    "FetchStreamDetails": Method(
        "bascule.admin.v1.Admin", "FetchStreamDetailsRequest", "FetchPartitionMetadata", "name", True, 65536
    ),
    "FetchStreams": Method("bascule.admin.v1.Admin", "FetchStreamsRequest", "FetchMetadata", "*", True, 65536),
    "FetchGroupDetails": Method(
        "bascule.admin.v1.Admin", "FetchGroupDetailsRequest", "FetchMetadata", "*", True, 4194304
    ),
    "FetchBrokerDetails": Method(
        "bascule.admin.v1.Admin", "FetchBrokerDetailsRequest", "FetchMetadata", "*", True, 65536
    ),
    "FetchClusterStatus": Method(
        "bascule.admin.v1.Admin", "FetchClusterStatusRequest", "FetchMetadata", "*", True, 65536
    ),
    "ReportQuery": Method("bascule.admin.v1.Admin", "ReportQueryRequest", "Subscribe", "computed", True, 1048576),
    "FetchLags": Method("bascule.admin.v1.Admin", "FetchLagsRequest", "FetchMetadata", "*", True, 65536),
    "ReleaseHold": Method("bascule.admin.v1.Admin", "ReleaseHoldRequest", "EditStream", "computed", True, 65536),
    "ReportArchived": Method("bascule.admin.v1.Admin", "ReportArchivedRequest", "EditStream", "computed", True, 131072),
    "OpenSink": Method("bascule.admin.v1.Admin", "OpenSinkRequest", "Publish", "computed", True, 65536),
    "PublishSink": Method("bascule.admin.v1.Admin", "PublishSinkRequest", "Publish", "computed", True, 1048576),
    "AbortSink": Method("bascule.admin.v1.Admin", "AbortSinkRequest", "Publish", "computed", True, 65536),
    "RenewSink": Method("bascule.admin.v1.Admin", "RenewSinkRequest", "Publish", "computed", True, 65536),
    "FetchSinkStreams": Method("bascule.admin.v1.Admin", "FetchSinkStreamsRequest", "Publish", "computed", True, 65536),
    "FetchSinks": Method("bascule.admin.v1.Admin", "FetchSinksRequest", "ManageSinks", "*", True, 65536),
    "DeleteSink": Method("bascule.admin.v1.Admin", "DeleteSinkRequest", "ManageSinks", "computed", True, 65536),
    "SkipSink": Method("bascule.admin.v1.Admin", "SkipSinkRequest", "ManageSinks", "computed", True, 65536),
    "SetSinkQuota": Method("bascule.admin.v1.Admin", "SetSinkQuotaRequest", "ManageSinks", "computed", True, 65536),
    "SetSinkOwner": Method("bascule.admin.v1.Admin", "SetSinkOwnerRequest", "ManageSinks", "computed", True, 65536),
    "FetchUsers": Method("bascule.admin.v1.Admin", "FetchUsersRequest", "ManageUsers", "*", True, 65536),
    "CreateUser": Method("bascule.admin.v1.Admin", "CreateUserRequest", "ManageUsers", "*", True, 65536),
    "DeleteUser": Method("bascule.admin.v1.Admin", "DeleteUserRequest", "ManageUsers", "*", True, 65536),
    "SetUserPassword": Method("bascule.admin.v1.Admin", "SetUserPasswordRequest", "ManageUsers", "*", True, 65536),
    "SetUserStatus": Method("bascule.admin.v1.Admin", "SetUserStatusRequest", "ManageUsers", "*", True, 65536),
    "SetUserRights": Method("bascule.admin.v1.Admin", "SetUserRightsRequest", "ManageUsers", "*", True, 65536),
    "CreateUserToken": Method("bascule.admin.v1.Admin", "CreateUserTokenRequest", "ManageUsers", "*", True, 65536),
    "DeleteUserToken": Method("bascule.admin.v1.Admin", "DeleteUserTokenRequest", "ManageUsers", "*", True, 65536),
}
"""By name."""

ACTIONS: Final = (
    "CreateStream",
    "DeleteStream",
    "PauseStream",
    "SetStreamReadonly",
    "Subscribe",
    "FetchMetadata",
    "FetchPartitionMetadata",
    "Publish",
    "PublishToSubject",
    "SetCursor",
    "FetchCursor",
    "JoinConsumerGroup",
    "LeaveConsumerGroup",
    "FetchConsumerGroupAssignments",
    "ReportConsumerGroupCoordinator",
    "TrimPartition",
    "PurgeStream",
    "EditStream",
    "HoldRetention",
    "ManageSinks",
    "ManageUsers",
)
"""Actions of policies and of errors, each once. Similar methods share one."""
