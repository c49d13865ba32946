"""Commands about topics over one connection. A stream is `stream/topic`, or a topic of the stream `default`."""

from typing import Final

from bascule.client._core.deadline import Deadline
from bascule.client._core.refusals import no_partition, no_stream
from bascule.client._core.requests.bounds import check_offset, check_partition
from bascule.client._iggy import wire
from bascule.client._iggy.link import Link
from bascule.client._iggy.wire import Code, NewTopic, Polled, Sent, Strategy, TopicRow
from bascule.errors import StateError

__all__ = ["DEFAULT", "Topics", "split"]

DEFAULT: Final = "default"
READER: Final = wire.consumer("bascule")
"""Consumer of polls that state their offset; nothing is stored for it."""


class Topics:
    """The commands. `link`: the connection."""

    def __init__(self, link: Link) -> None:
        self.link: Final = link

    def me(self, deadline: Deadline) -> int:
        """The number of the connection.

        Raises:
            AccessError: code `permission_denied`: the user has not the right `read_servers`.
        """
        return wire.client_number(self.link.ask(Code.GET_ME, b"", deadline, repeatable=True))

    def find(self, stream: str, deadline: Deadline) -> TopicRow:
        """A topic with its partitions.

        Raises:
            StateError: code `stream_not_found`.
        """
        reply = self.link.ask(Code.GET_TOPIC, _place(stream), deadline, stream=stream, repeatable=True)
        if not reply:
            raise no_stream(stream)
        return wire.topic_row(reply)

    def list_in(self, namespace: str, deadline: Deadline) -> list[TopicRow]:
        """The topics of a stream of Iggy, with their partitions."""
        reply = self.link.ask(Code.GET_TOPICS, wire.place(namespace), deadline, stream=namespace, repeatable=True)
        return [self.find(f"{namespace}/{row.name}", deadline) for row in wire.topic_rows(reply)]

    def end(self, stream: str, partition: int, deadline: Deadline) -> int:
        """The offset after the newest record of a partition.

        Raises:
            StateError: code `stream_not_found` or `partition_not_found`.
        """
        ends = self.find(stream, deadline).ends
        if check_partition(partition) >= len(ends):
            raise no_partition(stream, partition, len(ends))
        return ends[partition]

    def create(self, stream: str, topic: NewTopic, deadline: Deadline) -> None:
        """Create a topic, and its stream of Iggy if that does not exist."""
        namespace, name = split(stream)
        fields = self.link.generation.create_topic(namespace, name, topic)
        try:
            self.link.ask(Code.CREATE_TOPIC, fields, deadline, stream=stream)
        except StateError as failure:
            if failure.code != "stream_not_found":
                raise
            self._create_namespace(namespace, deadline)
            self.link.ask(Code.CREATE_TOPIC, fields, deadline, stream=stream)

    def _create_namespace(self, name: str, deadline: Deadline) -> None:
        """Create a stream of Iggy, unless another client has created it meanwhile."""
        try:
            self.link.ask(Code.CREATE_STREAM, self.link.generation.create_stream(name), deadline, stream=name)
        except StateError as failure:
            if failure.code != "stream_exists":
                raise

    def delete(self, stream: str, deadline: Deadline) -> None:
        """Delete a topic."""
        self.link.ask(Code.DELETE_TOPIC, _place(stream), deadline, stream=stream)

    def purge(self, stream: str, deadline: Deadline) -> None:
        """Remove all messages of a topic."""
        self.link.ask(Code.PURGE_TOPIC, _place(stream), deadline, stream=stream)

    def send(self, stream: str, partitioning: int | bytes, messages: list[Sent], deadline: Deadline) -> None:
        """Send messages to one partition: by number, or as `wire.BALANCED` or `wire.by_key` say."""
        generation = self.link.generation
        number = partitioning if isinstance(partitioning, int) else None
        target = partitioning if isinstance(partitioning, bytes) else generation.to_partition(partitioning)
        payload = generation.send(_place(stream), target, messages)
        self.link.ask(Code.SEND_MESSAGES, payload, deadline, stream=stream, partition=number)

    def poll(
        self, stream: str, partition: int, strategy: tuple[Strategy, int], count: int, deadline: Deadline
    ) -> Polled:
        """Up to `count` messages."""
        generation = self.link.generation
        payload = generation.poll(READER, _place(stream), partition, strategy, min(count, wire.MAX_U32))
        reply = self.link.ask(
            Code.POLL_MESSAGES, payload, deadline, stream=stream, partition=partition, repeatable=True
        )
        return generation.polled(reply)

    def stored(self, consumer: str, stream: str, partition: int, deadline: Deadline) -> int | None:
        """The offset that is stored for a consumer."""
        payload = self._position(consumer, stream, partition)
        reply = self.link.ask(Code.GET_OFFSET, payload, deadline, stream=stream, partition=partition, repeatable=True)
        return self.link.generation.stored(reply)

    def store(self, consumer: str, stream: str, partition: int, offset: int | None, deadline: Deadline) -> None:
        """Store an offset for a consumer; `None` = remove it."""
        payload = self._position(consumer, stream, partition)
        if offset is None:
            if self.stored(consumer, stream, partition, deadline) is not None:
                self.link.ask(Code.DELETE_OFFSET, payload, deadline, stream=stream, partition=partition)
            return
        payload += check_offset("offset", offset).to_bytes(8, "little")
        self.link.ask(Code.STORE_OFFSET, payload, deadline, stream=stream, partition=partition, repeatable=True)

    def _position(self, consumer: str, stream: str, partition: int) -> bytes:
        return wire.consumer(consumer) + _place(stream) + self.link.generation.partition(check_partition(partition))


def split(stream: str) -> tuple[str, str]:
    """Stream and topic of Iggy."""
    namespace, slash, name = stream.partition("/")
    return (namespace, name) if slash else (DEFAULT, stream)


def _place(stream: str) -> bytes:
    return wire.place(*split(stream))
