"""The partition of a record, nulls and headers, with both clients against a real broker."""

from collections import Counter
from zlib import crc32

import bascule
import pytest
from bascule import Client, Record, StreamOptions
from bascule.errors import UsageError

KEYS = [b"key-%d" % number for number in range(200)]


def records(client: Client, stream: str, partition: int) -> list[Record]:
    found = client.subscribe(stream, partition=partition, start="earliest", stop="latest")
    return list(found.records())


@pytest.fixture
def three(client: Client, stream: str) -> str:
    """A stream of three partitions."""
    client.create_stream(stream, options=StreamOptions(partitions=3))
    return stream


@pytest.mark.parametrize("way", ["publish", "publish_many", "producer"])
def test_keys_choose_the_partition_by_default(client: Client, three: str, way: str) -> None:
    match way:
        case "publish":
            receipts = [client.publish(three, b"v", key=key) for key in KEYS]
        case "publish_many":
            receipts = client.publish_many(three, [b"v"] * len(KEYS), keys=KEYS)
        case _:
            with client.producer(three) as producer:
                futures = [producer.submit(b"v", key=key) for key in KEYS]
            receipts = [future.result() for future in futures]
    expected = [crc32(key) % 3 for key in KEYS]
    assert [receipt.partition for receipt in receipts] == expected
    for number in range(3):
        found = records(client, three, number)
        assert [record.key for record in found] == [
            key for key, place in zip(KEYS, expected, strict=True) if place == number
        ]
    offsets = Counter[int]()
    for receipt in receipts:
        assert receipt.offset == offsets[receipt.partition]
        offsets[receipt.partition] += 1


def test_records_without_keys_fill_a_partition_and_round_robin_spreads_them(client: Client, three: str) -> None:
    stuck = client.publish_many(three, [b"v"] * 50)
    assert len({receipt.partition for receipt in stuck}) == 1
    spread = client.publish_many(three, [b"v"] * 9, keys=[b"same"] * 9, partition="round_robin")
    assert Counter(receipt.partition for receipt in spread) == {0: 3, 1: 3, 2: 3}


def test_a_function_chooses_the_partition_and_is_checked(client: Client, three: str) -> None:
    def last(key: object, value: object, partitions: int) -> int:
        assert (key, value) == (b"k", b"v")
        return partitions - 1

    assert client.publish(three, b"v", key=b"k", partition=last).partition == 2
    with client.producer(three, partition=last) as producer:
        receipt = producer.submit(b"v", key=b"k")
        producer.flush()
        assert receipt.result().partition == 2
    with pytest.raises(UsageError, match=r"3.*0 to 2"):
        client.publish(three, b"v", key=b"k", partition=lambda _key, _value, count: count)
    with pytest.raises(UsageError, match="partition is a number"):
        client.publish(three, b"v", partition="sticky")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match=r"expected_offset 0 .* pass partition with its number"):
        client.publish(three, b"v", expected_offset=0)
    assert [len(records(client, three, number)) for number in range(3)] == [0, 0, 2]


def test_a_stream_of_one_partition_has_no_other(client: Client, stream: str) -> None:
    client.create_stream(stream)
    assert {receipt.partition for receipt in client.publish_many(stream, [b"v"] * 3, keys=[b"a", b"b", None])} == {0}
    with pytest.raises(UsageError, match=r"partition is 1: it must be from 0 to 0"):
        client.publish_many(stream, [b"v", b"w"], partitions=[0, 1])
    with pytest.raises(UsageError, match=r"returned 1: it must be from 0 to 0"):
        client.publish_many(stream, [b"v"], partition=lambda _key, _value, _count: 1)
    producer = client.producer(stream, partition=lambda _key, _value, _count: 1)
    with pytest.raises(UsageError, match=r"returned 1: it must be from 0 to 0"), producer:
        producer.send(b"v")
    assert len(records(client, stream, 0)) == 3


def test_a_stream_that_was_created_again_with_fewer_partitions(client: Client, three: str) -> None:
    key = next(key for key in KEYS if crc32(key) % 3 == 2)
    assert client.publish(three, b"v", key=key).partition == 2
    client.delete_stream(three)
    client.create_stream(three)
    with pytest.raises(bascule.BrokerError, match="partition"):
        client.publish(three, b"v", key=key)
    assert client.publish(three, b"v", key=key).partition == 0


def test_null_and_empty_are_two_things(client: Client, stream: str) -> None:
    client.create_stream(stream)
    client.publish(stream, None, key="k")
    client.publish_many(stream, [None, b"", "text"], keys=["k", "k", None])
    with client.producer(stream) as producer:
        producer.send(None, key=b"k")
        producer.send(b"")
    with client.subscribe(stream, start="earliest", stop="latest") as subscription:
        (batch,) = subscription
    found = [None, None, b"", b"text", None, b""]
    assert [record.value for record in batch] == found
    assert batch.to_arrow()["value"].to_pylist() == found


def test_headers_keep_their_order_and_repeats(client: Client, stream: str) -> None:
    headers = [("b", b"1"), ("a", b"2"), ("b", b"3"), ("subject", b"mine"), ("reply", b""), ("\udcff", b"\x00")]
    client.create_stream(stream)
    client.publish(stream, b"v", headers=headers)
    client.publish_many(stream, [b"v"], headers=[headers])
    for record in records(client, stream, 0):
        assert record.headers == headers
        assert (record.header("b"), record.header("none"), record.subject) == (b"3", None, stream)
        assert record.header_map["b"] == b"3"
