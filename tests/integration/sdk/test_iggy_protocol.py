"""The SDK over Iggy's protocol against a real broker: what it does, and what it refuses by name."""

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import bascule
import pyarrow as pa
import pytest
from bascule import StreamOptions
from bascule.client._iggy.client import IggyClient
from bascule.errors import AccessError, BrokerError, StateError, UnavailableError, UsageError
from bascule.testing import TestBroker, broker

from tests.certificates import Authority
from tests.integration.server.process import free_port
from tests.names import fresh

PASSWORD = "a p@ss/word"
QUOTED = "a%20p%40ss%2Fword"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    file = tmp_path_factory.mktemp("iggy") / "password"
    file.write_text(PASSWORD)
    settings = {"iggy.listen": "127.0.0.1:0", "iggy.root_password_file": str(file), "cursors.partitions": 1}
    with broker(settings=settings) as running:
        yield running


def url(serving: TestBroker) -> str:
    return f"iggy://iggy:{QUOTED}@{serving.iggy_address}"


@pytest.fixture(scope="module")
def client(serving: TestBroker) -> Iterator[bascule.Client]:
    with bascule.connect(url(serving)) as connected:
        yield connected


@pytest.fixture(scope="module")
def by_token(serving: TestBroker) -> Iterator[bascule.Client]:
    with serving.connect() as admin:
        token = admin.create_iggy_token("iggy", "sdk")
    with bascule.connect(f"iggy://{token.replace('/', '%2F').replace('+', '%2B')}@{serving.iggy_address}") as connected:
        yield connected


def values(client: bascule.Client, stream: str, **how: object) -> list[bytes | None]:
    reading = client.subscribe(stream, **{"stop": "latest", **how})  # type: ignore[arg-type]
    return [record.value for record in reading.records()]


@pytest.mark.parametrize("login", ["client", "by_token"])
def test_streams_are_created_shown_purged_and_deleted(login: str, request: pytest.FixtureRequest) -> None:
    client: bascule.Client = request.getfixturevalue(login)
    name = f"{fresh('sdk')}/t"
    options = StreamOptions(partitions=2, retention_max_age=timedelta(hours=1))
    client.create_stream(name, options=options)
    with pytest.raises(StateError, match="exists already") as exists:
        client.create_stream(name)
    assert exists.value.code == "stream_exists"
    client.create_stream(name, options=options, exist_ok=True)
    with pytest.raises(StateError, match="exists with 2 partitions, not 3"):
        client.create_stream(name, options=StreamOptions(partitions=3), exist_ok=True)
    for number in (0, 1, 1):
        client.publish(name, b"x", partition=number)
    (listed,) = client.list_streams(namespace=name.split("/", maxsplit=1)[0])
    assert listed == client.get_stream(name)
    assert [item.high_watermark for item in listed.partitions] == [1, 2]
    assert abs(listed.created - datetime.now(UTC)) < timedelta(minutes=5)
    assert client.get_partition(name, 1).log_end_offset == 2
    assert client.purge_stream(name).records == 3
    assert values(client, name, partition=1) == []
    client.delete_stream(name)
    client.delete_stream(name, missing_ok=True)
    for call in (client.get_stream, client.delete_stream):
        with pytest.raises(StateError, match="does not exist"):
            call(name)


def test_a_record_comes_back_with_what_the_protocol_has(client: bascule.Client) -> None:
    name = f"{fresh('sdk')}/t"
    client.create_stream(name)
    headers = [("a", b"\0\1"), ("b", b"text"), ("a", b"2")]
    receipt = client.publish(name, "text", headers=headers, origin_time_ns=1_700_000_000_000_001_000, partition=0)
    assert receipt == bascule.Receipt(-1, 0, 0)
    client.publish(name, b"keyed", key="k")
    first, second = client.subscribe(name, stop="latest").records()
    assert (first.offset, first.value, first.key, first.headers) == (0, b"text", None, headers)
    assert first.origin_time_ns == 1_700_000_000_000_001_000
    assert abs(first.timestamp_ns / 1e9 - datetime.now(UTC).timestamp()) < 300
    assert (second.offset, second.value, second.headers, second.origin_time_ns) == (1, b"keyed", [], None)


def test_other_clients_see_the_key_that_chose_the_partition(client: bascule.Client, serving: TestBroker) -> None:
    name = fresh("sdk")
    with serving.connect() as other:
        other.create_stream(name)
        client.publish(name, b"v", key=b"k", headers={"h": b"1"})
        (record,) = other.subscribe(name, stop="latest").records()
        assert (record.key, record.value, record.headers) == (b"k", b"v", [("h", b"1")])
        other.publish(name, b"theirs", key=b"lost", headers=[("h", b"2")])
    shown = list(client.subscribe(name, start=1, stop="latest").records())
    assert [(item.key, item.value, item.headers) for item in shown] == [(None, b"theirs", [("h", b"2")])]


def test_batches_have_the_columns_of_other_protocols(client: bascule.Client, serving: TestBroker) -> None:
    name = fresh("sdk")
    with serving.connect() as other:
        other.create_stream(name)
        other.publish_many(name, [b"0", b"1"], headers=[{"h": b"x"}, None])
        (theirs,) = other.subscribe(name, stop="latest")
    (ours,) = client.subscribe(name, stop="latest")
    mine, wanted = pa.record_batch(ours), pa.record_batch(theirs)
    assert mine.schema == wanted.schema
    assert mine.select(["offset", "value", "headers"]) == wanted.select(["offset", "value", "headers"])
    assert ours.to_pylist()[0]["headers"] == [("h", b"x")]


@pytest.mark.parametrize("login", ["client", "by_token"])
def test_many_are_published_in_order_and_read_from_any_place(login: str, request: pytest.FixtureRequest) -> None:
    client: bascule.Client = request.getfixturevalue(login)
    name = f"{fresh('sdk')}/t"
    client.create_stream(name)
    sent = [str(number).encode() for number in range(3_000)]
    receipts = client.publish_many(name, sent[:2_000], partition=0)
    assert receipts == [bascule.Receipt(-1, 0, 0)] * 2_000
    acked: list[int] = []
    with client.producer(name, batch_records=400, on_ack=lambda items: acked.append(len(items))) as producer:
        for value in sent[2_000:2_500]:
            producer.send(value)
        producer.send_many(sent[2_500:])
    assert (producer.published, sum(acked)) == (1_000, 1_000)
    assert values(client, name) == sent
    assert values(client, name, start=2_990, batch_records=3) == sent[2_990:]
    assert values(client, name, start=10, stop=12) == sent[10:12]
    assert values(client, name, start="latest") == sent[-1:]
    assert values(client, name, start="new") == []
    assert values(client, name, start=9_999) == []
    (batch,) = client.subscribe(name, start=1_000, stop=1_001)
    at = datetime.fromtimestamp(next(iter(batch)).timestamp_ns / 1e9, UTC)
    found = values(client, name, start=at + timedelta(microseconds=1))
    assert found == sent[len(sent) - len(found) :]
    assert values(client, name, stop=at - timedelta(hours=1)) == []
    assert values(client, name, start=datetime.now(UTC) + timedelta(hours=1)) == []


def test_a_reader_waits_for_records_and_stores_its_position(client: bascule.Client) -> None:
    name, cursor = f"{fresh('sdk')}/t", fresh("reader")
    client.create_stream(name)
    assert client.fetch_cursor(cursor, name) is None
    with client.subscribe(name, cursor=cursor) as reading:
        assert reading.commit() is None
        assert reading.next_batch(timeout=0) is None
        client.publish_many(name, [b"0", b"1"], partition=0)
        batch = reading.next_batch(timeout=30)
        assert batch is not None
        assert (batch.values, reading.position, reading.commit()) == ([b"0", b"1"], 2, 1)
    assert client.fetch_cursor(cursor, name) == 1
    client.publish(name, b"2")
    assert values(client, name, cursor=cursor) == [b"2"]
    client.set_cursor(cursor, name, 0)
    assert values(client, name, cursor=cursor) == [b"1", b"2"]
    client.set_cursor(cursor, name, None)
    client.set_cursor(cursor, name, None)
    assert client.fetch_cursor(cursor, name) is None
    with pytest.raises(UsageError, match="closed"):
        reading.next_batch()


def test_a_reader_of_a_purged_stream_is_not_left_waiting(client: bascule.Client) -> None:
    name = f"{fresh('sdk')}/t"
    client.create_stream(name)
    client.publish_many(name, [b"0", b"1", b"2"], partition=0)
    reading = client.subscribe(name)
    batch = reading.next_batch(timeout=30)
    assert batch is not None
    assert len(batch) == 3
    client.purge_stream(name)
    with pytest.raises(StateError, match=r"is at offset 3 .* was purged"):
        reading.next_batch(timeout=30)
    assert client.subscribe(name).next_batch(timeout=0) is None


def test_what_the_protocol_lacks_is_refused_by_name(client: bascule.Client) -> None:
    lacking = {
        name
        for name, _ in inspect.getmembers(bascule.Client, inspect.isfunction)
        if not name.startswith("_") and name not in vars(IggyClient)
    }
    assert not lacking
    refused = {
        "pause_stream": lambda: client.pause_stream("s"),
        "consumer of consumer": lambda: client.consumer("g", "s", consumer="c"),
        "lags": client.lags,
        "iggy_users": client.iggy_users,
        "describe_broker": client.describe_broker,
        "subject of create_stream": lambda: client.create_stream("s", "subject"),
        "an option of create_stream": lambda: client.create_stream("s", options=StreamOptions(encryption=True)),
        "now of purge_stream": lambda: client.purge_stream("s", now=True),
        "ack of publish": lambda: client.publish("s", b"x", ack="none"),
        "expected_offset of publish": lambda: client.publish("s", b"x", expected_offset=0, partition=0),
        "a function as partition of publish": lambda: client.publish("s", b"x", partition=lambda *_: 0),
        "a key together with a partition": lambda: client.publish("s", b"x", key=b"k", partition=0),
        "an empty value or a tombstone": lambda: client.publish("s", None),
        "partitions of publish_many": lambda: client.publish_many("s", [b"x"], partitions=[0]),
        "reverse of subscribe": lambda: client.subscribe("s", reverse=True),
        "subject of subscribe": lambda: client.subscribe("s", subject="a"),
    }
    for name, call in refused.items():
        with pytest.raises(UsageError, match=f"^{name}.* is not available over Iggy's protocol") as caught:
            call()
        assert caught.value.code == "unimplemented", name


def test_failures_name_what_was_wrong(client: bascule.Client, serving: TestBroker) -> None:
    name = f"{fresh('sdk')}/t"
    client.create_stream(name)
    wrong = [
        (lambda: client.publish(f"{name}x", b"x"), "stream_not_found"),
        (lambda: client.publish(name, b"x", partition=7), "partition_not_found"),
        (lambda: next(iter(client.subscribe(name, partition=7))), "partition_not_found"),
        (lambda: client.publish(name, b"x", key=b"k" * 256), "invalid_argument"),
        (lambda: client.publish(name, b"x", headers={"": b"x"}), "invalid_argument"),
        (lambda: client.publish(name, bytes(64_000_001)), "too_large"),
        (lambda: client.create_stream("a" * 256), "invalid_argument"),
        (lambda: bascule.connect(f"iggy://iggy:wrong@{serving.iggy_address}"), "unauthenticated"),
        (lambda: bascule.connect(f"iggy://wrong@{serving.iggy_address}"), "unauthenticated"),
        (lambda: bascule.connect("iggy://a:b@127.0.0.1:1", wait=False), "unavailable"),
        (lambda: bascule.connect("iggy://127.0.0.1:8090"), "invalid_argument"),
        (lambda: bascule.connect("iggy://a:b@127.0.0.1", max_in_flight=1), "unimplemented"),
    ]
    for call, code in wrong:
        with pytest.raises(BrokerError) as caught:
            call()
        assert caught.value.code == code, caught.value
    assert values(client, name) == []


def test_a_user_without_the_right_is_denied(serving: TestBroker, client: bascule.Client) -> None:
    user = fresh("u")[-40:]
    name = f"{fresh('sdk')}/t"
    client.create_stream(name)
    with serving.connect() as admin:
        admin.create_iggy_user(user, "secret")
    with bascule.connect(f"iggy://{user}:secret@{serving.iggy_address}") as mine:
        with pytest.raises(AccessError, match="no right") as caught:
            mine.publish(name, b"x")
        assert caught.value.code == "permission_denied"


async def test_the_asynchronous_client_does_the_same(serving: TestBroker) -> None:
    name = f"{fresh('sdk')}/t"
    async with bascule.connect_async(url(serving)) as client:
        await client.create_stream(name)
        async with client.producer(name) as producer:
            await producer.send(b"0")
        await client.publish(name, b"1")
        async with client.subscribe(name, stop="latest") as reading:
            assert [record.value async for record in reading.records()] == [b"0", b"1"]
        with pytest.raises(UsageError, match="pause_stream is not available"):
            await client.pause_stream(name)


def test_a_connection_that_was_lost_is_made_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("iggy") / "password"
    file.write_text(PASSWORD)
    authority = Authority(tmp_path_factory.mktemp("tls"))
    pair = authority.issue("broker")
    settings = {
        "iggy.listen": f"127.0.0.1:{free_port()}",
        "iggy.root_password_file": str(file),
        "tls.certificate_file": str(pair.cert),
        "tls.key_file": str(pair.key),
    }
    with broker(settings=settings) as running:
        plain = f"iggy://iggy:{QUOTED}@{running.iggy_address}"
        protected = f"iggy+tls://iggy:{QUOTED}@{running.iggy_address}?ca={authority.ca}"
        with pytest.raises(UnavailableError):
            bascule.connect(plain, wait=False, timeout=5)
        with pytest.raises(AccessError, match="TLS handshake"):
            bascule.connect(protected.split("?", maxsplit=1)[0])
        with bascule.connect(protected, timeout=60, reconnect=60) as client:
            client.create_stream("s/t")
            client.publish("s/t", b"0")
            reading = client.subscribe("s/t")
            assert next(iter(reading)).values == [b"0"]
            running.restart()
            assert client.get_stream("s/t").partitions[0].high_watermark == 1
            assert client.reconnects == 1
            client.publish("s/t", b"1")
            assert next(iter(reading)).values == [b"1"]
