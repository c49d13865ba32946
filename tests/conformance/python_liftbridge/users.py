"""Scenarios of users of python-liftbridge 0.0.7: `users.py SCENARIO ADDRESS STREAM [CA]`, with an old protobuf API.

The client returns the handshake of a subscription to its user as an empty message with offset 0.
"""

# the client has no types
# pyright: basic

import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import python_liftbridge as client


def read(lift: Any, stream: Any, count: int) -> list[Any]:
    """The first `count` messages of a subscription, after its handshake."""
    messages = lift.subscribe(stream)
    handshake = next(messages)
    assert (handshake.offset, handshake.value) == (0, b"")
    return [next(messages) for _ in range(count)]


def fill(lift: Any, name: str, count: int = 5) -> None:
    """Create a stream and publish `0` … to it; the client's calls have no deadline, so answers come before acks."""
    lift.create_stream(client.Stream(subject=name, name=name))
    for number in range(count):
        lift.publish(client.Message(str(number), stream=name, key=f"k{number}"))
    assert [item.value for item in read(lift, client.Stream(name, name).start_at_earliest_received(), count)]


def creates(lift: Any, name: str) -> None:
    """Streams with every option, and the error for one that exists."""
    lift.create_stream(client.Stream(subject=f"{name}.*", name=name, group="workers", max_replication=True))
    lift.create_stream(client.Stream(subject=name, name=f"{name}-2", replication_factor=1))
    try:
        lift.create_stream(client.Stream(subject="another", name=name))
    except client.ErrStreamExists:
        pass
    else:
        raise AssertionError("created twice")
    metadata = lift.fetch_metadata()
    (found,) = [item for item in metadata.metadata if item.name == name]
    ((number, partition),) = [(item.key, item.value) for item in found.partitions]
    (broker,) = metadata.brokers
    assert (found.subject, number, partition.id, partition.leader) == (f"{name}.*", 0, 0, broker.id)


def publishes(lift: Any, name: str) -> None:
    """Records with key, policy and correlation id, and the errors for missing streams."""
    lift.create_stream(client.Stream(subject=f"on.{name}", name=name))
    lift.publish(client.Message("none", stream=name, key="k"))
    lift.publish(client.Message("leader", stream=name, correlation_id="c").ack_policy_leader())
    lift.publish(client.Message("all", stream=name, ack_inbox=f"acks.{name}").ack_policy_all())
    lift.publish(client.Message("none again", stream=name).ack_policy_none())
    found = read(lift, client.Stream(name, name).start_at_earliest_received(), 4)
    assert [item.value for item in found] == [b"none", b"leader", b"all", b"none again"]
    assert [item.offset for item in found] == [0, 1, 2, 3]
    assert (found[0].key, found[0].stream) == (b"k", f"on.{name}"), "the client sets stream to the subject"
    assert all(item.timestamp > 0 for item in found)
    for call in (
        lambda: lift.publish(client.Message("x", stream="nothing")),
        lambda: lift.publish(client.Message("x", stream=name, partition=7)),
        lambda: next(lift.subscribe(client.Stream("nothing", "nothing"))),
    ):
        try:
            call()
        except client.ErrNoSuchStream:
            continue
        raise AssertionError("there is no such stream")


def publishes_to_a_subject(lift: Any, name: str) -> None:
    """Publish through NATS; every stream on the subject stores the record."""
    lift.create_stream(client.Stream(subject=f"{name}.*", name=name))
    lift.publish_to_subject(client.Message("v", subject=f"{name}.a", key="k").ack_policy_leader())
    (found,) = read(lift, client.Stream(name, name).start_at_earliest_received(), 1)
    assert (found.value, found.key, found.stream) == (b"v", b"k", f"{name}.a")


def begins_anywhere(lift: Any, name: str) -> None:
    """All start positions except `start_at_time`, which needs a terabyte in the client (`"…%s" % a * 10**9`)."""
    fill(lift, name)

    def offsets(stream: Any, count: int) -> list[int]:
        return [item.offset for item in read(lift, stream, count)]

    def stream() -> Any:
        return client.Stream(subject=name, name=name)

    assert offsets(stream().start_at_offset(3), 2) == [3, 4]
    assert offsets(stream().start_at_offset(0), 5) == [0, 1, 2, 3, 4]
    assert offsets(stream().start_at_latest_received(), 1) == [4]
    assert offsets(stream().start_at_time_delta(timedelta(hours=1)), 5) == [0, 1, 2, 3, 4]
    # a position set later wins; the one given at the beginning is sent and ignored
    for given in (client.Stream(name, name, start_offset=3), client.Stream(name, name, start_timestamp=1)):
        assert offsets(given.start_at_earliest_received(), 5) == [0, 1, 2, 3, 4]
    new = lift.subscribe(stream())
    assert next(new).value == b"", "the handshake: all later messages are new"
    lift.publish(client.Message("new", stream=name))
    assert next(new).offset == 5


def closes(lift: Any, name: str) -> None:
    """The end of the connection ends its subscriptions with an error of the client."""
    fill(lift, name, 1)
    messages, ended, standing = lift.subscribe(client.Stream(name, name)), list[bool](), threading.Event()

    def wait() -> None:
        next(messages)
        standing.set()
        try:
            next(messages)
        except client.ErrChannelClosed:
            ended.append(True)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert standing.wait(60)
    lift.close()
    waiting.join(60)
    assert ended == [True]


SCENARIOS: dict[str, Callable[[Any, str], None]] = {
    item.__name__: item for item in (creates, publishes, publishes_to_a_subject, begins_anywhere, closes)
}


def main() -> None:
    """Run one scenario."""
    scenario, address, stream, *ca = sys.argv[1:]
    SCENARIOS[scenario](client.Lift(ip_address=address, timeout=60, tls_cert=ca[0] if ca else None), stream)


if __name__ == "__main__":
    main()
