"""Silent calls: they are closed first, they end, health has separate limits, and memory use is low."""

import threading
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
import yaml
from bascule import testing
from bascule._liftbridge_pb import message

from .http2 import DATA, END_HEADERS, HEADERS, RST_STREAM, Http2, frame
from .process import wait_for
from .raw import EARLIEST, Raw, publish_request, refusal, resident_bytes

STREAM: Final = "calls"
PUBLISH: Final = "/proto.API/Publish"
CHECK: Final = "/grpc.health.v1.Health/Check"
WATCH: Final = "/grpc.health.v1.Health/Watch"
MIB: Final = 1 << 20
REFUSED_STREAM: Final = b"\x00\x00\x00\x07"
LIMITS_PAGE: Final = Path(__file__).resolve().parents[3] / "docs/reference/limits.md"


@pytest.fixture(scope="module")
def broker() -> Generator[testing.TestBroker]:
    """A broker with low limits and short timeouts."""
    settings = {
        "limits.calls": 40,
        "limits.health_checks": 8,
        "limits.health_watches": 8,
        "limits.first_message_ms": 1500,
    }
    with testing.broker(settings=settings) as running:
        with Raw(running.address) as raw:
            raw.create_stream(STREAM)
        yield running
        assert "panicked" not in running.log


def open_calls(connection: Http2, path: str, count: int, first: int = 1, *extra: tuple[str, str]) -> None:
    """Begin calls that send only headers."""
    block = connection.request(path, *extra)
    for stream in range(first, first + 2 * count, 2):
        assert connection.send(frame(HEADERS, END_HEADERS, stream, block))


def test_silent_calls_are_closed_for_active_ones(broker: testing.TestBroker) -> None:
    with ExitStack() as open_ones, Raw(broker.address) as raw:
        for _ in range(17):
            open_calls(open_ones.enter_context(Http2(broker.address)), PUBLISH, 20)
        began = time.monotonic()
        for number in range(20):
            raw.publish(STREAM, b"%d" % number)
        assert time.monotonic() - began < 1.4, "before the timeout of the first one"
        # A call whose request has arrived is not closed.
        body = message("SubscribeRequest")(stream=STREAM, startPosition=EARLIEST).SerializeToString()
        reading = raw.subscribe(body)
        next(reading)
        open_calls(open_ones.enter_context(Http2(broker.address)), PUBLISH, 100)
        raw.publish(STREAM, b"after")
        while message("Message").FromString(next(reading)).value != b"after":
            pass
        reading.cancel()


@pytest.mark.parametrize("said", [b"", b"\x00\x00\x00\x00\x02", publish_request(STREAM, b"x")])
def test_a_unary_call_whose_request_does_not_arrive_ends(broker: testing.TestBroker, said: bytes) -> None:
    """No message, an incomplete message (which has more time), and one that is never completed."""
    has_begun = len(said) == 5
    whole = said if has_begun or not said else b"\x00" + len(said).to_bytes(4) + said
    with Http2(broker.address) as connection:
        open_calls(connection, PUBLISH, 1)
        connection.send(frame(DATA, 0, 1, whole))
        began = time.monotonic()
        if has_begun:
            connection.socket.settimeout(2.5)
            assert connection.status(1) == -1, "no answer within 2.5 s"
        else:
            assert connection.status(1) == 2
            assert 1.0 < time.monotonic() - began < 5


def test_calls_beyond_the_share_of_a_connection_are_rejected_and_others_are_served() -> None:
    with testing.broker(settings={"limits.streams_per_connection": 4}) as running, ExitStack() as open_ones:
        greedy, other = (open_ones.enter_context(Http2(running.address)) for _ in range(2))
        check = b"\x00\x00\x00\x00\x00"
        assert greedy.call(CHECK, check) == 0, "and the client has received the broker's settings"
        open_calls(greedy, PUBLISH, 5, 3)
        first_reset = next(found for found in iter(greedy.next_frame, None) if found[0] == RST_STREAM)
        assert first_reset == (RST_STREAM, 0, 11, REFUSED_STREAM)
        assert other.call(CHECK, check) == 0
        with Raw(running.address) as raw:
            raw.create_stream(STREAM)
            raw.publish(STREAM, b"x")


def test_a_stream_of_publishes_may_wait_for_its_first_message(broker: testing.TestBroker) -> None:
    begin = threading.Event()

    def requests() -> Generator[bytes]:
        begin.wait(10)
        yield publish_request(STREAM, b"late", ackPolicy=1)

    with Raw(broker.address) as raw:
        answers = raw.publish_async(requests())
        time.sleep(2)  # longer than a unary call may take
        begin.set()
        (answer,) = [message("PublishResponse").FromString(item) for item in answers]
        assert not answer.HasField("asyncError")


def test_health_has_separate_limits_and_checks_end(broker: testing.TestBroker) -> None:
    with ExitStack() as open_ones, grpc.insecure_channel(broker.address) as monitor:
        check = monitor.unary_unary(CHECK)
        connections = [open_ones.enter_context(Http2(broker.address)) for _ in range(6)]
        for connection in connections:
            open_calls(connection, CHECK, 50)
            assert check(b"", timeout=5) == b"\x08\x01"
        with Raw(broker.address) as raw:
            raw.publish(STREAM, b"calls have theirs")
        ended = {connection.status(99) for connection in connections}
        assert ended == {2}, "all are answered, none stays open"


def test_health_watches_are_limited_and_do_not_affect_checks(broker: testing.TestBroker) -> None:
    with ExitStack() as open_ones, grpc.insecure_channel(broker.address) as monitor:
        watching = [monitor.unary_stream(WATCH)(b"", timeout=30) for _ in range(4)]
        for watch in watching:
            assert next(watch) == b"\x08\x01"
        code, sentence = refusal(lambda: next(monitor.unary_stream(WATCH)(b"", timeout=5)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "limits.health_watches (4) calls of 127.0.0.1 are open" in sentence
        open_ones.enter_context(Http2(broker.address))
        assert monitor.unary_unary(CHECK)(b"", timeout=5) == b"\x08\x01"
        for watch in watching:
            watch.cancel()


def test_a_path_without_a_method_is_refused_at_once(broker: testing.TestBroker) -> None:
    with Http2(broker.address) as connection:
        assert connection.call("/" + "p" * 10_000, b"") == 2
        assert connection.call(PUBLISH, b"\x00\x00\x00\x00\x00") == 2, "and the connection stays open"


def small_machine() -> dict[str, Any]:
    """The settings for 256 MiB from the documentation."""
    block = LIMITS_PAGE.read_text().partition("For 256 MiB:")[2].partition("```yaml\n")[2].partition("```")[0]
    return {f"limits.{name}": value for name, value in yaml.safe_load(block)["limits"].items()}


@pytest.mark.parametrize("path", [PUBLISH, CHECK, WATCH, "/proto.API/FetchMetadata", "/proto.API/PublishAsync"])
def test_the_settings_for_a_small_machine_hold_with_calls_of_large_headers(path: str) -> None:
    large = [(f"x-{number}", "v" * 1000) for number in range(14)]
    peak = 0
    with testing.broker(settings=small_machine()) as broker, ExitStack() as open_ones:
        with Raw(broker.address) as raw:
            raw.create_stream(STREAM)
        ended = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not ended.wait(0.01):
                peak = max(peak, resident_bytes(broker.pid))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            flood(broker, path, large, open_ones)
            with Raw(broker.address) as raw, grpc.insecure_channel(broker.address) as monitor:
                raw.publish(STREAM, b"served all the same")
                assert monitor.unary_unary(CHECK)(b"", timeout=10) == b"\x08\x01"
            wait_for(lambda: peak > 0, 5, "measured")
        finally:
            ended.set()
            watching.join()
    print(f"{path}: the broker had {peak / MIB:.0f} MiB at most")
    assert peak < 256 * MIB


def flood(broker: testing.TestBroker, path: str, large: list[tuple[str, str]], open_ones: ExitStack) -> None:
    """16 concurrent connections with 1,000 calls each that send only headers of 15 KiB."""
    connections = [open_ones.enter_context(Http2(broker.address)) for _ in range(16)]

    def send(connection: Http2) -> None:
        block = connection.request(path, *large)
        assert 14_000 < len(block) < 16_384
        for stream in range(1, 2001, 2):
            if not connection.send(frame(HEADERS, END_HEADERS, stream, block)):
                return

    senders = [threading.Thread(target=send, args=(connection,)) for connection in connections]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(60)
    assert not any(sender.is_alive() for sender in senders)
