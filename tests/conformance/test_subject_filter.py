"""Subscribe with a subject filter (an extension): the broker sends only matching records."""

from collections.abc import Iterator

import pytest
from bascule.testing import TestBroker

from tests.conformance.api import ALL, LATEST, NEW_ONLY, Api, Failed

SUBJECTS = ["", "a.x", "b.x", "a.y.z"]
"""Subjects of the records in turn; "" = that of the stream."""
RECORDS = 400


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as it:
        yield it


@pytest.fixture
def filled(api: Api, stream: str) -> str:
    """A stream of 400 records, in batches of several subjects."""
    api.create(stream)
    subjects = [SUBJECTS[number % len(SUBJECTS)] for number in range(RECORDS)]
    answers = api.publish_async({"stream": stream, "subject": subject, "ackPolicy": ALL} for subject in subjects)
    assert [answer.ack.offset for answer in answers] == list(range(RECORDS))
    return stream


@pytest.mark.parametrize(
    ("subject", "turns"),
    [("a.*", {1}), ("a.>", {1, 3}), ("*.x", {1, 2}), ("b.x", {2}), (">", {0, 1, 2, 3}), ("c.>", set())],
)
def test_messages_that_match_are_sent_and_no_others(api: Api, filled: str, subject: str, turns: set[int]) -> None:
    wanted = [number for number in range(RECORDS) if number % len(SUBJECTS) in turns]
    found = api.read(filled, subject=subject)
    assert [item.offset for item in found] == wanted
    assert {item.subject for item in found} == {SUBJECTS[turn] or filled for turn in turns}
    back, _ = api.subscribe(filled, subject=subject, reverse=True, startPosition=LATEST).rest()
    assert [item.offset for item in back] == wanted[::-1]


def test_a_record_without_a_subject_has_that_of_its_stream(api: Api, filled: str) -> None:
    assert [item.offset for item in api.read(filled, subject=filled)] == list(range(0, RECORDS, len(SUBJECTS)))


def test_later_records_are_also_filtered(api: Api, filled: str) -> None:
    reading = api.subscribe(filled, subject="a.*", startPosition=NEW_ONLY)
    for number in range(8):
        api.publish(filled, b"%d" % number, subject=SUBJECTS[number % len(SUBJECTS)])
    assert [item.value for item in reading.take(2)] == [b"1", b"5"]
    reading.cancel()


@pytest.mark.parametrize("subject", ["a..b", ".", "a.>.b", "a b", "a."])
def test_an_invalid_filter_is_rejected_by_name(api: Api, filled: str, subject: str) -> None:
    with pytest.raises(Failed, match="INVALID_ARGUMENT subject: ") as refused:
        api.subscribe(filled, subject=subject)
    assert repr(subject)[1:-1] in refused.value.text
