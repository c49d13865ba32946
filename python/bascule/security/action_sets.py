"""Sets of actions that a rule may name instead of single ones: what a reader and what a writer need.

Each gives actions on the resources of the rule, and a few on fixed resources without which the tools do not work.
"""

from typing import Final, NamedTuple

__all__ = ["ACTION_SETS", "ActionSet"]


class ActionSet(NamedTuple):
    """What a name in `allow` stands for."""

    actions: frozenset[str]
    """Allowed on the resources of the rule: streams, and groups for the actions of groups."""
    elsewhere: tuple[tuple[str, str], ...]
    """Actions allowed on one named resource each, whatever the rule's own are."""


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
        # To list positions, as `bascule group list` and `cursor list` do, is to read the stream of cursors.
        (_METADATA, ("Subscribe", CURSORS), ("FetchPartitionMetadata", CURSORS)),
    ),
    "writer": ActionSet(frozenset({"Publish", "FetchPartitionMetadata"}), (_METADATA,)),
}
