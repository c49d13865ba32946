"""Partitioning by subject (an extension): plain NATS publishers fill all partitions of a stream."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator

import nats
import pytest
from bascule.testing import TestBroker

from tests.conformance.api import Api
from tests.waiting import until

ON = {"partitionBySubject": {"value": True}}
SUBJECTS = 40
EACH = 25


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as it:
        yield it


async def publish(running: TestBroker, subjects: list[str], each: int) -> None:
    client = await nats.connect(running.nats_url)
    for index in range(each):
        for subject in subjects:
            await client.publish(subject, b"%d" % index)
    await client.flush()
    await client.close()


def stored(api: Api, stream: str, partitions: int) -> int:
    return sum(api.partition(stream, number).newestOffset + 1 for number in range(partitions))


@pytest.mark.parametrize("partitions", [1, 4])
def test_plain_publishers_fill_all_partitions_in_order_of_each_subject(
    running: TestBroker, api: Api, stream: str, partitions: int
) -> None:
    api.create(stream, subject=f"{stream}.>", partitions=partitions, **ON)
    subjects = [f"{stream}.device.{index}" for index in range(SUBJECTS)]
    asyncio.run(publish(running, subjects, EACH))
    until(lambda: stored(api, stream, partitions) == SUBJECTS * EACH)
    places: dict[str, set[int]] = defaultdict(set)
    found: dict[str, list[int]] = defaultdict(list)
    for number in range(partitions):
        records = api.read(stream, partition=number)
        assert records, "every partition has records"
        for record in records:
            places[record.subject].add(number)
            found[record.subject].append(int(record.value))
    assert all(len(numbers) == 1 for numbers in places.values()), "a subject has one partition"
    assert found == {subject: list(range(EACH)) for subject in subjects}, "in order, each once"


def test_a_direct_publish_is_stored_once_in_the_partition_that_was_named(api: Api, stream: str) -> None:
    api.create(stream, partitions=4, **ON)
    for number in range(4):
        for _ in range(5):
            api.publish(stream, partition=number)
    other = f"{stream}-other"
    api.create(other, subject=stream)
    for number in range(4):
        api.publish(stream, partition=number)
    until(lambda: api.partition(other).newestOffset == 3)
    assert [api.partition(stream, number).newestOffset for number in range(4)] == [5, 5, 5, 5]
