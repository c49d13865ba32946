"""SetCursor and FetchCursor (liftbridge §3.11), linearizable and bound to an incarnation (reliability P10)."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator

import nats
import pyarrow as pa
import pytest
from bascule.testing import TestBroker, broker
from pyarrow import flight

from tests.conformance.api import ALL, BAD_REQUEST, NONE, Api, Failed, failed
from tests.waiting import until

CURSORS = {"cursors.partitions": 3}


@pytest.fixture(scope="module")
def keeping() -> Iterator[TestBroker]:
    """A broker with cursors."""
    with broker(settings=CURSORS) as started:
        yield started


@pytest.fixture
def api(keeping: TestBroker) -> Iterator[Api]:
    with Api(keeping.address) as it:
        yield it


def put(api: Api, stream: str, cursor: str, offset: int, partition: int = 0) -> None:
    api.call("SetCursor", stream=stream, partition=partition, cursorId=cursor, offset=offset)


def fetch(api: Api, stream: str, cursor: str, partition: int = 0) -> int:
    return api.call("FetchCursor", stream=stream, partition=partition, cursorId=cursor).offset


def test_the_last_one_set_is_found_and_an_unknown_one_is_minus_1(api: Api, stream: str) -> None:
    assert fetch(api, stream, "c") == -1
    api.create(stream, partitions=2)
    for offset in (2, 4):
        put(api, stream, "c", offset)
        assert fetch(api, stream, "c") == offset
    put(api, stream, "d", 7)
    put(api, stream, "c", -3, partition=1)
    assert [fetch(api, stream, "c"), fetch(api, stream, "d"), fetch(api, stream, "c", 1)] == [4, 7, -3]
    assert fetch(api, stream, "e") == -1


def test_a_cursor_whose_id_nobody_meant_does_not_begin(api: Api, stream: str) -> None:
    new = "a\u200b"
    with pytest.raises(Failed) as refused:
        put(api, stream, new, 1)
    assert str(refused.value) == (
        r'INVALID_ARGUMENT cursorId "a\u{200b}" has U+200B, which cannot be seen: leave it out'
    )
    assert fetch(api, stream, new) == -1
    for taken in ("\u00e1 a,b", "a\u0301", "orders\u00a0x"):
        put(api, stream, taken, 1)
        assert fetch(api, stream, taken) == 1


def test_ids_with_commas_are_places_of_their_own(api: Api, keeping: TestBroker) -> None:
    places = [("x,a", "b"), ("x", "a,b"), ("x\\", "a,b"), ("x\\,a", "b"), ("x", "a"), (",", ",")]
    for offset, (cursor, stream) in enumerate(places):
        put(api, stream, cursor, offset)
    assert [fetch(api, stream, cursor) for cursor, stream in places] == list(range(len(places)))
    with keeping.connect() as client:
        assert [client.fetch_cursor(cursor, stream) for cursor, stream in places] == list(range(len(places)))


def test_nobody_but_the_broker_writes_to_the_stream(api: Api, keeping: TestBroker, stream: str) -> None:
    """The stream is hidden by name and by subject, on all protocols."""
    put(api, stream, "c", 5)
    key = f"c,{stream},0".encode()
    ends = [api.partition("__cursors", number).newestOffset for number in range(3)]
    reserved = "Stream is reserved: the broker alone writes to it"
    for number in range(3):
        with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", reserved)):
            api.publish("__cursors", b"junk", key=key, partition=number)
    (answer,) = api.publish_async([{"stream": "__cursors", "key": key, "ackPolicy": ALL}])
    assert (answer.asyncError.code, answer.asyncError.message) == (BAD_REQUEST, reserved)
    with flight.FlightClient(f"grpc://{keeping.address}") as client:
        descriptor = flight.FlightDescriptor.for_path("__cursors")
        writer, _ = client.do_put(descriptor, pa.schema([("value", pa.binary())]))
        with pytest.raises(pa.ArrowInvalid, match="__cursors: stream is reserved"):
            writer.close()
    subjects = [f"liftbridge-default.cursors{suffix}" for suffix in ("", ".1", ".2")]
    asyncio.run(publish_on_nats(keeping, subjects, b"junk"))
    for subject in subjects:
        api.call("PublishToSubject", subject=subject, value=b"junk", key=key, ackPolicy=NONE)
    api.create(stream)
    asyncio.run(publish_on_nats(keeping, [stream], b"behind them"))
    until(lambda: api.partition(stream).newestOffset == 0)
    assert [api.partition("__cursors", number).newestOffset for number in range(3)] == ends
    assert fetch(api, stream, "c") == -1, "the stream was created later"


async def publish_on_nats(keeping: TestBroker, subjects: list[str], value: bytes) -> None:
    client = await nats.connect(keeping.nats_url)
    for subject in subjects:
        await client.publish(subject, value)
    await client.flush()
    await client.close()


@pytest.mark.parametrize("method", ["SetCursor", "FetchCursor"])
def test_missing_arguments_of_cursor_calls_are_named(api: Api, running: TestBroker, method: str) -> None:
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "No stream provided")):
        api.call(method, cursorId="c")
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "No cursorId provided")):
        api.call(method, stream="s")
    with (
        Api(running.address) as other,
        pytest.raises(Failed, check=failed("INTERNAL", "Cursors stream does not exist")),
    ):
        other.call(method, stream="s", cursorId="c")


def test_the_stream_is_shown_and_guarded_and_wakes_when_it_is_paused(api: Api, stream: str) -> None:
    shown = api.stream("__cursors")
    assert (shown.subject, len(shown.partitions)) == ("liftbridge-default.cursors", 3)
    reserved = failed("INVALID_ARGUMENT", "Stream is reserved")
    with pytest.raises(Failed, check=reserved):
        api.create("__cursors", subject="x")
    with pytest.raises(Failed, check=reserved):
        api.call("DeleteStream", name="__cursors")
    put(api, stream, "c", 5)
    api.call("PauseStream", name="__cursors")
    assert fetch(api, stream, "c") == 5
    api.call("PauseStream", name="__cursors")
    put(api, stream, "c", 6)
    assert fetch(api, stream, "c") == 6


def test_a_position_in_another_history_of_the_partition_is_refused(api: Api, stream: str) -> None:
    def present() -> int:
        return api.call("FetchCursor", stream=stream, partition=0, cursorId="c").incarnation

    assert present() == 0, "there is no stream"
    api.create(stream)
    api.fill(stream, 3)
    first = present()
    assert first > 0
    api.admin("PurgeStream", name=stream)
    until(lambda: present() != first)
    for incarnation, refused in ((first, True), (0, False), (present(), False)):
        calls: list[Callable[[], object]] = [
            lambda it=incarnation: api.call(
                "SetCursor", stream=stream, partition=0, cursorId="c", offset=1, incarnation=it
            ),
            lambda it=incarnation: api.subscribe(stream, incarnation=it).cancel(),
        ]
        for call in calls:
            if refused:
                with pytest.raises(Failed, check=failed("NOT_FOUND", "commit log was deleted")):
                    call()
            else:
                call()


def test_a_cursor_of_a_deleted_stream_does_not_point_into_its_successor(api: Api, stream: str) -> None:
    api.create(stream)
    put(api, stream, "c", 41)
    api.call("DeleteStream", name=stream)
    api.create(stream)
    assert fetch(api, stream, "c") == -1
    put(api, stream, "c", 2)
    assert fetch(api, stream, "c") == 2


def test_names_are_bounded(api: Api) -> None:
    with pytest.raises(Failed) as refusal:
        put(api, "s", "c" * 1025, 1)
    assert refusal.value.code.name == "INVALID_ARGUMENT"
    put(api, "s", "c" * 1024, 1)


def test_readers_never_see_a_cursor_go_back_while_one_writer_moves_it_forward(api: Api, stream: str) -> None:
    api.create(stream)
    done = threading.Event()
    wrong: list[tuple[int, int]] = []
    ends: list[int] = []
    reported = [-1]

    def read() -> None:
        last = -1
        while True:
            ending, least = done.is_set(), reported[0]
            found = fetch(api, stream, "c")
            if found < max(last, least):
                wrong.append((found, max(last, least)))
            last = found
            if ending:
                ends.append(found)
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for offset in range(300):
            put(api, stream, "c", offset)
            reported[0] = offset
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert not wrong
    assert ends == [299] * 3, "the last position that each reader fetched"


def test_cursors_survive_kills() -> None:
    chance = random.Random(7)
    expected: dict[tuple[str, int], int] = {}
    with broker(durability="disk", settings=CURSORS) as running:
        for _ in range(3):
            with Api(running.address) as api:
                for key, offset in expected.items():
                    assert fetch(api, "s", *key) == offset
                for _ in range(60):
                    key = (f"c{chance.randrange(8)}", chance.randrange(4))
                    offset = chance.randrange(1 << 40)
                    put(api, "s", key[0], offset, key[1])
                    expected[key] = offset
            running.kill()
            running.start()
        with Api(running.address) as api:
            assert {key: fetch(api, "s", *key) for key in expected} == expected


def test_the_stream_keeps_cursors_for_ever() -> None:
    hasty = {
        **CURSORS,
        "streams.retention_max_age_ms": 200,
        "streams.retention_max_messages": 1,
        "streams.retention_min_age_ms": 0,
        "streams.cleaner_interval_ms": 50,
        "streams.segment_max_bytes": 1,
    }
    with broker(durability="disk", settings=hasty) as running:
        with Api(running.address) as api:
            for number in range(10):
                put(api, "s", f"c{number}", number)
            api.create("aging")
            api.fill("aging", 5)
            time.sleep(0.6)
        running.kill()
        running.start()
        with Api(running.address) as api:
            assert [fetch(api, "s", f"c{number}") for number in range(10)] == list(range(10))
