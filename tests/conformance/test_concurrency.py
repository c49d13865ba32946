"""Optimistic concurrency control (liftbridge §3.13)."""

import threading
from collections.abc import Iterator

import pytest
from bascule.testing import TestBroker

from tests.conformance.api import (
    ALL,
    BAD_REQUEST,
    INCORRECT_OFFSET,
    LEADER,
    NONE,
    Api,
    Failed,
    failed,
    values,
)

ON = {"optimisticConcurrencyControl": {"value": True}}
WRONG = failed("UNKNOWN", "incorrect expected offset")
NEEDS_ACK = "stream with concurrency control must have AckPolicy set"


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as it:
        yield it


def test_only_the_next_offset_or_minus_1_is_accepted(api: Api, stream: str) -> None:
    api.create(stream, **ON)
    assert api.publish(stream, b"a") == 0, "an absent field is 0, the first offset"
    assert api.publish(stream, b"b", expectedOffset=1, ackPolicy=LEADER) == 1
    assert api.publish(stream, b"c", expectedOffset=-1) == 2
    for expected in (0, 1, 2, 4, -2, -(1 << 63), (1 << 63) - 1):
        with pytest.raises(Failed, check=WRONG):
            api.publish(stream, b"x", expectedOffset=expected)
    assert api.publish(stream, b"d", expectedOffset=3) == 3
    assert values(api.read(stream)) == [b"a", b"b", b"c", b"d"]


def test_a_repeated_record_is_stored_again_unless_its_offset_is_expected(api: Api, stream: str) -> None:
    checked = f"{stream}-checked"
    api.create(stream)
    api.create(checked, **ON)
    assert [api.publish(stream, b"a"), api.publish(stream, b"a")] == [0, 1]
    assert api.publish(checked, b"a", expectedOffset=0) == 0
    with pytest.raises(Failed, check=WRONG):
        api.publish(checked, b"a", expectedOffset=0)
    assert (values(api.read(stream)), values(api.read(checked))) == ([b"a", b"a"], [b"a"])


def test_policy_none_is_refused(api: Api, stream: str) -> None:
    api.create(stream, **ON)
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", NEEDS_ACK)):
        api.publish(stream, ackPolicy=NONE, expectedOffset=-1)
    (answer,) = api.publish_async([{"stream": stream, "ackPolicy": NONE, "correlationId": "c"}])
    assert (answer.asyncError.code, answer.asyncError.message) == (BAD_REQUEST, NEEDS_ACK)


def test_asynchronous_publishes_in_one_stream_see_each_other(api: Api, stream: str) -> None:
    api.create(stream, **ON)
    expected = [0, 1, 1, 2, -1, 5]
    requests = [
        {"stream": stream, "value": b"%d" % index, "expectedOffset": offset, "correlationId": str(index)}
        for index, offset in enumerate(expected)
    ]
    answers = {item.correlationId: item for item in api.publish_async(requests)}
    codes = {key: item.asyncError.code if item.HasField("asyncError") else None for key, item in answers.items()}
    assert codes == {"0": None, "1": None, "2": INCORRECT_OFFSET, "3": None, "4": None, "5": INCORRECT_OFFSET}
    assert answers["2"].asyncError.message == "incorrect expected offset"
    assert not answers["2"].ack.correlationId, "an error comes with an empty ack"
    assert values(api.read(stream)) == [b"0", b"1", b"3", b"4"]


def test_of_concurrent_writers_of_one_offset_exactly_one_wins_and_retrying_succeeds(api: Api, stream: str) -> None:
    api.create(stream, **ON)
    wins: list[tuple[int, int]] = []
    refusals: list[Failed] = []

    def write(writer: int) -> None:
        for _ in range(20):
            while True:
                following = api.partition(stream).newestOffset + 1
                try:
                    wins.append((api.publish(stream, b"%d" % writer, expectedOffset=following), writer))
                    break
                except Failed as failure:
                    refusals.append(failure)

    writers = [threading.Thread(target=write, args=(index,)) for index in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(offset for offset, _ in wins) == list(range(80))
    assert refusals, "some publishers collided"
    assert all(WRONG(refusal) for refusal in refusals)
    assert values(api.read(stream)) == [b"%d" % writer for _, writer in sorted(wins)]


def test_without_the_option_the_field_is_ignored(api: Api, stream: str) -> None:
    api.create(stream)
    assert [api.publish(stream, expectedOffset=9, ackPolicy=ALL), api.publish(stream)] == [0, 1]


def test_offsets_continue_after_a_pause(api: Api, stream: str) -> None:
    api.create(stream, **ON)
    api.publish(stream)
    api.call("PauseStream", name=stream)
    with pytest.raises(Failed, check=WRONG):
        api.publish(stream)
    assert api.publish(stream, expectedOffset=1) == 1
