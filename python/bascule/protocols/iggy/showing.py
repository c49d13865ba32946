"""Streams, topics and partitions as clients see them, with what their logs hold now."""

from collections.abc import Mapping, Sequence

from bascule.control import Controller
from bascule.control.dataplane import PartitionStatus
from bascule.metadata import Namespace, State, Stream
from bascule.protocols.iggy import replies
from bascule.protocols.iggy.lookup import stream_number, topic_number, topics_of
from bascule.protocols.iggy.numbering import has_options
from bascule.protocols.iggy.options import MAX_U64, TOPIC_OPTIONS, OptionValue

__all__ = ["MAX_U64", "Showing"]

_NS_PER_US, _US_PER_MS = 1000, 1000


class Showing:
    """Makes replies out of the state and the status of open partitions."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def streams(self, state: State, namespaces: Sequence[Namespace]) -> list[bytes]:
        """Each namespace as in lists."""
        topics = {item.name: topics_of(state, item) for item in namespaces}
        status = self._status([stream for item in topics.values() for stream in item])
        return [self._stream(item, topics[item.name], status) for item in namespaces]

    def stream(self, state: State, namespace: Namespace) -> bytes:
        """A namespace with its streams."""
        topics = topics_of(state, namespace)
        status = self._status(topics)
        return b"".join([self._stream(namespace, topics, status), *(self._topic(item, status) for item in topics)])

    def topics(self, topics: Sequence[Stream]) -> bytes:
        """Streams of a namespace, as in lists; v2 has their number before them."""
        status = self._status(topics)
        count = len(topics).to_bytes(4, "little") if has_options() else b""
        return count + b"".join(self._topic(item, status) for item in topics)

    def topic(self, topic: Stream) -> bytes:
        """A stream with its partitions."""
        incarnations = [item.incarnation for item in topic.partitions]
        status, files = self._controller.status(incarnations), self._controller.damage(incarnations)
        partitions = [
            replies.Partition(
                number=item.number + 1,
                created_at=topic.created_ns // _NS_PER_US,
                # The segment that is being written counts too.
                segments=files[item.incarnation]["sealed_segments"] + 1 if item.incarnation in files else 0,
                current_offset=max(0, known.high_watermark - 1) if (known := status.get(item.incarnation)) else 0,
                size=known.size_bytes if known else 0,
                messages=known.high_watermark - known.log_start if known else 0,
            ).encode()
            for item in topic.partitions
        ]
        return b"".join([self._topic(topic, status), *partitions])

    def _status(self, streams: Sequence[Stream]) -> dict[int, PartitionStatus]:
        return self._controller.status([item.incarnation for stream in streams for item in stream.partitions])

    def _stream(self, namespace: Namespace, topics: Sequence[Stream], status: Mapping[int, PartitionStatus]) -> bytes:
        held = [_held(item, status) for item in topics]
        return replies.Stream(
            number=stream_number(namespace),
            created_at=namespace.created_ns // _NS_PER_US,
            topics=len(topics),
            size=sum(size for size, _ in held),
            messages=sum(messages for _, messages in held),
            name=namespace.name,
        ).encode()

    def _topic(self, stream: Stream, status: Mapping[int, PartitionStatus]) -> bytes:
        size, messages = _held(stream, status)
        explicit, derived = self._options(stream)
        return replies.Topic(
            number=topic_number(stream),
            created_at=stream.created_ns // _NS_PER_US,
            partitions=len(stream.partitions),
            expiry=self._expiry(stream),
            compression=stream.iggy.compression if stream.iggy else 1,
            max_size=self._max_size(stream),
            replication=(stream.iggy.replication if stream.iggy else 0) or _replicas(stream),
            size=size,
            messages=messages,
            name=stream.name,
            explicit=explicit,
            derived=derived,
        ).encode()

    def _options(self, stream: Stream) -> tuple[dict[str, OptionValue], dict[str, OptionValue]]:
        """The options that the creator gave, and the others as they have effect."""
        in_effect, kept = self._controller.in_effect(stream), stream.iggy
        options: dict[str, OptionValue] = {key: option.default for key, option in TOPIC_OPTIONS.items()} | {
            "compression_algorithm": "gzip" if kept and kept.compression != 1 else "none",
            "enforce_fsync": stream.settings.durability == "disk",
            "max_topic_size": self._max_size(stream),
            "message_expiry": self._expiry(stream),
            "segment_size": in_effect["segment_bytes"],
        }
        given = {
            "compression_algorithm": kept is not None and kept.compression != 1,
            "max_topic_size": kept is not None and kept.max_size != 0,
            "message_expiry": kept is not None and kept.expiry_us != 0,
            "segment_size": stream.settings.segment_bytes is not None,
        }
        explicit = {key: options.pop(key) for key, is_given in given.items() if is_given}
        return explicit, options

    def _expiry(self, stream: Stream) -> int:
        """µs: as it was given, else what is in effect."""
        if stream.iggy is not None and stream.iggy.expiry_us:
            return stream.iggy.expiry_us & MAX_U64
        age_ms: int = self._controller.in_effect(stream).get("retention_age_ms", 0)
        return age_ms * _US_PER_MS or MAX_U64

    def _max_size(self, stream: Stream) -> int:
        """Bytes of all partitions together: as it was given, else what is in effect."""
        if stream.iggy is not None and stream.iggy.max_size:
            return stream.iggy.max_size & MAX_U64
        size: int = self._controller.in_effect(stream).get("retention_bytes", 0)
        return size * len(stream.partitions) or MAX_U64


def _held(stream: Stream, status: Mapping[int, PartitionStatus]) -> tuple[int, int]:
    """Bytes and messages of a stream's partitions that are open here."""
    known = [status[item.incarnation] for item in stream.partitions if item.incarnation in status]
    return sum(item.size_bytes for item in known), sum(item.high_watermark - item.log_start for item in known)


def _replicas(stream: Stream) -> int:
    return max((len(item.replicas) for item in stream.partitions), default=1)
