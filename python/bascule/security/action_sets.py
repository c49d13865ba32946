"""Sets of actions that a rule may name instead of single ones: those that a reader or a writer needs.

Each set allows actions on the resources of the rule, and a few on fixed resources that the tools need.
"""

from typing import Final, NamedTuple

__all__ = ["ACTION_SETS", "ActionSet"]


class ActionSet(NamedTuple):
    """The actions of a named set."""

    actions: frozenset[str]
    """Actions on the resources of the rule: streams, and groups for actions on groups."""
    elsewhere: tuple[tuple[str, str], ...]
    """Actions on one fixed resource each, independent of the resources of the rule."""


_METADATA: Final = ("FetchMetadata", "*")
CURSORS: Final = "__cursors"

ACTION_SETS: Final = {
    "reader": ActionSet(
        frozenset(
            {
                "Subscribe",
                "FetchPartitionMetadata",
                "FetchCursor",
                "SetCursor",
                "JoinConsumerGroup",
                "LeaveConsumerGroup",
                "FetchConsumerGroupAssignments",
                "ReportConsumerGroupCoordinator",
            }
        ),
        # `bascule group list` and `cursor list` read the stream of cursors.
        (_METADATA, ("Subscribe", CURSORS), ("FetchPartitionMetadata", CURSORS)),
    ),
    "writer": ActionSet(frozenset({"Publish", "FetchPartitionMetadata"}), (_METADATA,)),
}
