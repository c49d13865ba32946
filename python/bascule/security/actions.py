"""The actions of policies and of errors. The data plane has the same list."""

from typing import Final

__all__ = ["ACTIONS"]

ACTIONS: Final = (
    "CreateStream",
    "DeleteStream",
    "PauseStream",
    "SetStreamReadonly",
    "EditStream",
    "TrimPartition",
    "PurgeStream",
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
)
"""Methods of the protocol. `Publish` includes PublishAsync and Flight's DoPut; `Subscribe` includes DoGet."""
