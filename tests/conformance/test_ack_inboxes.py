"""Subjects of acks with `nats.ack_inbox_prefixes`."""

# nats-py leaves some of its parameters without a type
# pyright: reportUnknownMemberType=false

from collections.abc import Iterator

import nats
import pytest
from bascule.testing import TestBroker, broker

from tests.conformance import envelopes
from tests.conformance.api import ALL, NONE, Api, Failed, failed

OUTSIDE = "begins with none of nats.ack_inbox_prefixes: acks do not go there"


@pytest.fixture(scope="module")
def bounded() -> Iterator[TestBroker]:
    """A broker that sends acks only to subjects with two prefixes."""
    with broker(settings={"nats.ack_inbox_prefixes": ["_INBOX.", "acks."]}) as started:
        yield started


@pytest.fixture
def api(bounded: TestBroker) -> Iterator[Api]:
    with Api(bounded.address) as it:
        yield it


def test_a_call_with_an_inbox_outside_is_refused_and_stores_nothing(api: Api, stream: str) -> None:
    api.create(stream)
    refused = failed("INVALID_ARGUMENT", f'ackInbox "{stream}" {OUTSIDE}')
    with pytest.raises(Failed, check=refused):
        api.publish(stream, b"x", ackInbox=stream)
    with pytest.raises(Failed, check=refused):
        api.call("PublishToSubject", subject=stream, value=b"x", ackInbox=stream, ackPolicy=NONE)
    assert api.publish(stream, b"first") == 0
    assert [record.value for record in api.read(stream)] == [b"first"]


def test_acks_go_to_inboxes_inside_and_to_those_of_calls(api: Api, stream: str) -> None:
    api.create(stream)
    api.create("acks", subject="acks.>")
    assert api.publish(stream, b"x", ackInbox="acks.mine") == 0
    ack = api.call("PublishToSubject", subject=stream, value=b"y").ack
    assert (ack.stream, ack.offset) == (stream, 1)
    first = api.subscribe("acks").next()
    assert (first.subject, first.offset) == ("acks.mine", 0)


async def test_an_enveloped_message_is_stored_and_its_ack_goes_inside_only(
    bounded: TestBroker, api: Api, stream: str
) -> None:
    api.create(stream)
    api.create(f"{stream}-victim")
    publisher = await nats.connect(bounded.nats_url)
    inbox = await publisher.subscribe(f"acks.{stream}")
    for to in (f"{stream}-victim", f"acks.{stream}"):
        await publisher.publish(stream, envelopes.publish(value=b"v", ackInbox=to, ackPolicy=ALL))
    ack = envelopes.ack((await inbox.next_msg(timeout=60)).data)
    await publisher.close()
    assert (ack.stream, ack.offset) == (stream, 1)
    # acks are sent in order, so the first one would have arrived
    assert api.partition(f"{stream}-victim").highWatermark == -1
