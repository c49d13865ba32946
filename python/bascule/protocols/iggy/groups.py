"""Commands about consumer groups of topics; who is a member is known to the data plane alone."""

from bascule.control import Controller
from bascule.metadata import MAX_NUMBERS, CreateTopicGroup, DeleteTopicGroup, Stream, TopicGroup
from bascule.protocols.iggy import replies
from bascule.protocols.iggy.commands import Create, Named
from bascule.protocols.iggy.fields import Identifier
from bascule.protocols.iggy.lookup import find_stream, find_topic
from bascule.protocols.iggy.names import check_name
from bascule.protocols.iggy.requests import IggyHandler, IggyRequest
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = ["GroupCommands"]


class GroupCommands:
    """The handlers."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> dict[str, IggyHandler]:
        """Handler by command."""
        return {"CREATE_CONSUMER_GROUP": self.create, "DELETE_CONSUMER_GROUP": self.delete}

    async def create(self, request: IggyRequest[Create]) -> bytes:
        """CREATE_CONSUMER_GROUP: without members."""
        asked = request.command
        topic = self._topic(asked.path)
        check_name(asked.name, IggyStatus.INVALID_GROUP_NAME)
        if asked.number > MAX_NUMBERS:
            raise IggyError(IggyStatus.INVALID_GROUP_ID, f"number {asked.number} of a group is above {MAX_NUMBERS}")
        number = asked.number - 1 if asked.number else None
        await self._controller.decide(
            lambda _: CreateTopicGroup(topic.namespace, topic.name, topic.incarnation, asked.name, number),
            request.timeout_s,
        )
        made = _find(self._topic(asked.path), asked.name)
        return replies.Group(made.id + 1, len(topic.partitions), 0, made.name).encode()

    async def delete(self, request: IggyRequest[Named]) -> bytes:
        """DELETE_CONSUMER_GROUP."""
        *path, wanted = request.command.path
        topic = self._topic(tuple(path))
        group = _find(topic, wanted)
        await self._controller.decide(
            lambda _: DeleteTopicGroup(topic.namespace, topic.name, topic.incarnation, group.created),
            request.timeout_s,
        )
        return b""

    def _topic(self, path: tuple[Identifier, ...]) -> Stream:
        state, (stream, topic) = self._controller.state, path
        return find_topic(state, find_stream(state, stream), topic)


def _find(topic: Stream, wanted: Identifier) -> TopicGroup:
    """The group of a number or name.

    Raises:
        IggyError: 5000, 5003.
    """
    if isinstance(wanted, str):
        found = next((item for item in topic.topic_groups if item.name == wanted), None)
        missing = IggyStatus.GROUP_NAME_NOT_FOUND
    else:
        found = next((item for item in topic.topic_groups if item.id + 1 == wanted), None)
        missing = IggyStatus.GROUP_ID_NOT_FOUND
    if found is None:
        raise IggyError(missing, f"group {wanted!r} does not exist in topic {topic.name!r}")
    return found
