"""The client over Iggy's protocol without a broker: URLs, frames as recorded ones, and replies that cannot be read."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from bascule import Tls
from bascule.client._core.iggy_target import Target, is_iggy, target
from bascule.client._iggy import wire
from bascule.client._iggy.failures import of_status
from bascule.client._iggy.wire import V1, V1B, Code, NewTopic, Sent, Strategy
from bascule.client._iggy.writing import Pending
from bascule.errors import AccessError, BrokerError, CapacityError, StateError, UnavailableError, UsageError

ROOT = Path(__file__).resolve().parents[3]
VECTORS: list[dict[str, Any]] = json.loads((ROOT / "specs/vectors/iggy/v1b.json").read_text())["captures"]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("iggy://ada:secret@host", Target((("host", 8090),), "ada", "secret", None)),
        ("iggy+tcp://a%40b:%2F%3A@[::1]:9,other:1", Target((("::1", 9), ("other", 1)), "a@b", "/:", None)),
        ("iggy://to%2Fken@host:1", Target((("host", 1),), "", "to/ken", None)),
        ("iggy+tls://a:b@host?ca=ca.pem", Target((("host", 8090),), "a", "b", Tls(ca="ca.pem"))),
    ],
)
def test_a_url_has_addresses_and_credentials(url: str, found: Target) -> None:
    assert is_iggy(url)
    assert target(url) == found
    assert found.secret not in repr(found).replace("host", "")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("iggy://host", "credentials come first"),
        ("iggy://:secret@host", "credentials come first"),
        ("iggy://ada:@host", "credentials come first"),
        ("iggy://a:b@host/path", "nothing follows"),
        ("iggy://a:b@host?ca=x", r"need iggy\+tls://"),
        ("iggy+tls://a:b@host?cert", "name=value"),
        ("iggy+tls://a:b@host?colour=red", "it may have ca, cert"),
        ("iggy://a:b@host:0", '"host:0" is not host'),
        ("iggy://a:b@::1:8090", "in brackets"),
        ("iggy://a:b@", '"" is not host'),
    ],
)
def test_a_url_that_is_not_valid_is_refused_without_its_credentials(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        target(url)
    assert "secret" not in str(caught.value)
    assert not is_iggy("liftbridge://host")


def test_tls_of_the_caller_needs_the_scheme() -> None:
    assert target("iggy+tls://a:b@host", Tls(ca="mine.pem")).tls == Tls(ca="mine.pem")
    with pytest.raises(UsageError, match=r"begins with iggy\+tls://"):
        target("iggy://a:b@host", Tls(ca="mine.pem"))


def recorded(command: str) -> bytes:
    """What release 0.8.0 of the published client sent, without its head."""
    found = next(item for item in VECTORS if (item["client"], item["command"]) == ("apache-iggy 0.8.0", command))
    return bytes.fromhex(found["request_hex"])[8:]


def test_frames_are_those_of_the_published_client() -> None:
    body = recorded("CREATE_STREAM")
    assert V1B.create_stream(body[1:].decode()) == body
    body = recorded("CREATE_TOPIC")
    stream, size = body[2 : 2 + body[1]].decode(), 2 + body[1]
    partitions, _, expiry, most, copies, length = struct.unpack_from("<IBQQBB", body, size)
    made = NewTopic(partitions, expiry, most, copies)
    assert V1B.create_topic(stream, body[-length:].decode(), made) == body
    body = recorded("SEND_MESSAGES")
    (head,) = struct.unpack_from("<I", body)
    (count,) = struct.unpack_from("<I", body, head)
    ours = V1B.send(body[4 : head - 6], body[head - 6 : head], [Sent(b"x")] * count)
    assert ours[: 4 + head] == body[: 4 + head]
    assert ours[4 + head : 4 + head + 4] == body[4 + head : 4 + head + 4] == bytes(4)


@pytest.mark.parametrize("generation", [V1, V1B])
def test_what_is_sent_is_what_is_polled(generation: wire.Generation) -> None:
    """A poll's reply has the layout of a send, so one is made of the other."""
    headers = (("a", b"1"), ("b", b"\0\xff"), ("a", b"2"))
    sent = Sent(b"payload", headers, 0 if generation.is_v1 else 5)
    body = generation.send(b"", wire.BALANCED, [sent])
    if generation.is_v1:
        id_headers = body[2 + 16 :]
        reply = struct.pack("<QBQ16sI", 7, 1, 9, (3).to_bytes(16, "little"), 0) + id_headers
    else:
        message = body[4 + 6 + 16 :]
        head = bytes(8) + (3).to_bytes(16, "little") + struct.pack("<QQ", 7, 9)
        reply = head + message[40:]
    polled = generation.polled(struct.pack("<IQI", generation.first, 7, 1) + reply)
    (found,) = polled.messages
    assert (polled.partition, polled.current) == (0, 7)
    assert (found.id, found.offset, found.timestamp_us, found.payload) == (3, 7, 9, b"payload")
    assert found.headers == list(headers)
    assert found.origin_us == (9 if generation.is_v1 else 5)
    whole = struct.pack("<IQI", 0, 7, 1) + reply
    for size in range(1, len(whole)):
        if size != 16:
            with pytest.raises(UnavailableError, match="cannot be read"):
                generation.polled(whole[:size])


def test_a_header_of_another_kind_of_key_is_shown_by_it() -> None:
    headers = bytes([6]) + struct.pack("<I", 4) + bytes(4) + struct.pack("<BI", 1, 1) + b"v"
    head = bytes(24) + struct.pack("<QQQIIQ", 0, 1, 1, len(headers), 1, 0)
    (found,) = V1B.polled(struct.pack("<IQI", 0, 0, 1) + head + b"x" + headers).messages
    assert found.headers == [("#6:00000000", b"v")]


def test_replies_about_topics_are_read_or_refused() -> None:
    topic = struct.pack("<IQIQBQBQQB", 1, 5, 2, 0, 1, 0, 1, 9, 3, 3) + b"abc"
    parts = struct.pack("<IQIQQQ", 0, 5, 1, 2, 9, 3) + struct.pack("<IQIQQQ", 1, 5, 1, 0, 0, 0)
    assert wire.topic_row(topic + parts) == wire.TopicRow("abc", 5, 2, (3, 0))
    assert [row.name for row in wire.topic_rows(topic * 2)] == ["abc", "abc"]
    for cut in (topic[:-1], topic[:-3] + b"\xff\xff\xff", topic + parts[:-1]):
        with pytest.raises(UnavailableError, match="cannot be read"):
            wire.topic_row(cut)
    assert V1.stored(b"") is None
    with pytest.raises(UnavailableError, match="an offset cannot be read"):
        V1.stored(b"abc")


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (1, CapacityError, "busy"),
        (3, UsageError, "unimplemented"),
        (5, StateError, "failed_precondition"),
        (40, AccessError, "unauthenticated"),
        (41, AccessError, "permission_denied"),
        (1010, StateError, "stream_not_found"),
        (2013, StateError, "stream_exists"),
        (3007, StateError, "partition_not_found"),
        (4022, UsageError, "too_large"),
        (9999, UsageError, "invalid_argument"),
    ],
)
def test_a_status_is_an_error_of_ours(status: int, kind: type[BrokerError], code: str) -> None:
    failure = of_status(status, "orders", 3)
    assert (type(failure), failure.code) == (kind, code)


def test_a_batch_is_sent_in_runs_of_one_target_and_of_a_bounded_size() -> None:
    batch = Pending(None)
    assert batch.fill(["a", "a", None, "a"], [b"1", b"22", b"3", b"4"], None) == 5
    sends = batch.sends(2)
    assert [(target, [item.payload for item in part]) for target, part in sends] == [
        (wire.by_key(b"a"), [b"1"]),
        (wire.by_key(b"a"), [b"22"]),
        (wire.BALANCED, [b"3"]),
        (wire.by_key(b"a"), [b"4"]),
    ]
    assert (len(batch), batch.partition, batch.places()) == (4, -1, [(-1, 0, -1)] * 4)
    with pytest.raises(ValueError, match="as many as the 1 values"):
        batch.fill([], [b"x"], None)
    with pytest.raises(TypeError, match="value is bytes or text, not int"):
        batch.push(None, 5, None)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_codes_and_strategies_are_those_of_the_protocol() -> None:
    assert (Code.POLL_MESSAGES, Code.SEND_MESSAGES, Strategy.TIMESTAMP) == (100, 101, 2)
    poll = V1B.poll(wire.consumer("c"), wire.place("s", "t"), 4, (Strategy.OFFSET, 9), 7)
    assert poll == b"\1\2\1c\2\1s\2\1t" + b"\1\4\0\0\0" + b"\1" + struct.pack("<QI", 9, 7) + b"\0"
    assert V1.poll(b"", b"", 4, (Strategy.OFFSET, 9), 7)[:4] == struct.pack("<I", 5)
