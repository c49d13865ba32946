"""gufo-liftbridge 0.2.0 over mutual TLS. It has no TLS: the function that creates its channel is replaced."""

from collections.abc import Iterator
from typing import Any

import grpc.aio
import gufo.liftbridge.client as gufo_client
import pytest
from gufo.liftbridge.client import LiftbridgeClient
from gufo.liftbridge.types import AckPolicy, StartPosition

from tests.conformance.mutual import Mutual, mutual_broker, rule
from tests.conformance.test_gufo_liftbridge import take

CLIENT = "gufo"


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mutual]:
    with mutual_broker(tmp_path_factory.mktemp("mutual")) as running:
        yield running


@pytest.fixture
def address(mutual: Mutual, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address for the client, which now uses the certificate of `gufo`."""
    credentials = mutual.credentials(CLIENT)

    def channel(target: str, options: Any = None) -> Any:
        return grpc.aio.secure_channel(target, credentials, options)

    monkeypatch.setattr(gufo_client, "insecure_channel", channel)
    assert mutual.running is not None
    return mutual.running.address


async def test_publish_and_subscribe_with_a_certificate(mutual: Mutual, address: str, stream: str) -> None:
    mutual.allow(rule(CLIENT, ["CreateStream", "Publish", "Subscribe"], stream), rule(CLIENT, "FetchMetadata", "*"))
    async with LiftbridgeClient([address]) as client:
        await client.create_stream(stream, wait_for_stream=True)
        for number in range(10):
            await client.publish(b"%d" % number, stream=stream, ack_policy=AckPolicy.ALL)
        messages = client.subscribe(stream, start_position=StartPosition.EARLIEST)
        assert [message.value for message in await take(messages, 10)] == [b"%d" % number for number in range(10)]


async def test_denied_calls_fail_and_store_nothing(mutual: Mutual, address: str, stream: str) -> None:
    with mutual.api("root") as root:
        root.create(stream)
        mutual.allow(rule(CLIENT, ["Subscribe", "CreateStream"], stream), rule(CLIENT, "FetchMetadata", "*"))
        async with LiftbridgeClient([address]) as client:
            with pytest.raises(Exception, match=r"not authorized to call Publish|PERMISSION_DENIED"):
                await client.publish(b"x", stream=stream, ack_policy=AckPolicy.ALL, wait_for_stream=True)
        assert root.partition(stream).highWatermark == -1
