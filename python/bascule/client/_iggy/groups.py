"""Commands about one consumer group of a topic over one connection, which is its member."""

from typing import Final

from bascule.client._core.deadline import Deadline
from bascule.client._iggy import wire
from bascule.client._iggy.link import Link
from bascule.client._iggy.topics import split
from bascule.client._iggy.wire import Code, Polled, Strategy
from bascule.errors import StateError

__all__ = ["Group"]


class Group:
    """The commands. `stream`: as the client names it; `name`: of the group."""

    def __init__(self, link: Link, stream: str, name: str) -> None:
        self.stream: Final = stream
        self._link: Final = link
        self._topic: Final = wire.place(*split(stream))
        self._name: Final = name

    def join(self, deadline: Deadline) -> None:
        """Make the connection a member, of a group that is created if it is missing. Idempotent.

        Raises:
            StateError: code `stream_not_found`.
        """
        try:
            self._ask(Code.JOIN_GROUP, deadline)
        except StateError as missing:
            if missing.code != "not_found":
                raise
            self._create(deadline)
            self._ask(Code.JOIN_GROUP, deadline)

    def _create(self, deadline: Deadline) -> None:
        """Create the group, unless another client has created it meanwhile."""
        payload = self._topic + self._link.generation.new_group(self._name)
        try:
            self._link.ask(Code.CREATE_GROUP, payload, deadline, stream=self.stream)
        except StateError as failure:
            if failure.code != "stream_exists":
                raise

    def leave(self, deadline: Deadline) -> None:
        """End the membership, if there is one."""
        try:
            self._ask(Code.LEAVE_GROUP, deadline)
        except StateError as over:
            if over.code != "not_found":
                raise

    def assigned(self, client: int, deadline: Deadline) -> frozenset[int] | None:
        """The partitions of the member with this number of a connection; `None` = it is not a member."""
        reply = self._link.ask(
            Code.GET_GROUP, self._topic + wire.place(self._name), deadline, stream=self.stream, repeatable=True
        )
        found = self._link.generation.members(reply).get(client)
        return None if found is None else frozenset(found)

    def poll(self, partition: int, offset: int, count: int, deadline: Deadline) -> Polled:
        """Up to `count` messages from an offset on."""
        generation = self._link.generation
        payload = generation.poll(
            wire.group(self._name), self._topic, partition, (Strategy.OFFSET, offset), min(count, wire.MAX_U32)
        )
        reply = self._link.ask(
            Code.POLL_MESSAGES, payload, deadline, stream=self.stream, partition=partition, repeatable=True
        )
        return generation.polled(reply)

    def stored(self, partition: int, deadline: Deadline) -> int | None:
        """The offset that is stored for the group."""
        reply = self._link.ask(
            Code.GET_OFFSET,
            self._position(partition),
            deadline,
            stream=self.stream,
            partition=partition,
            repeatable=True,
        )
        return self._link.generation.stored(reply)

    def store(self, partition: int, offset: int, deadline: Deadline) -> None:
        """Store an offset for the group."""
        payload = self._position(partition) + offset.to_bytes(8, "little")
        self._link.ask(Code.STORE_OFFSET, payload, deadline, stream=self.stream, partition=partition, repeatable=True)

    def _position(self, partition: int) -> bytes:
        return wire.group(self._name) + self._topic + self._link.generation.partition(partition)

    def _ask(self, code: Code, deadline: Deadline) -> None:
        self._link.ask(code, self._topic + wire.place(self._name), deadline, stream=self.stream, repeatable=True)
