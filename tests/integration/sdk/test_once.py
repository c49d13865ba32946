"""Publishing while the broker is killed: every acknowledged record is stored once and in order."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bascule import Client, Receipt, StreamOptions
from bascule.errors import StateError, UsageError
from bascule.testing import TestBroker, broker

KILLS = 3
PATIENCE = 120.0


class Publishing(threading.Thread):
    """Publishes ascending numbers from 0 until it is stopped."""

    def __init__(self, publish: Callable[[list[bytes]], object], at_once: int) -> None:
        super().__init__(name="publishing", daemon=True)
        self._publish = publish
        self._at_once = at_once
        self._stop_asked = threading.Event()
        self.sent = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self._publish([b"%d" % number for number in range(self.sent, self.sent + self._at_once)])
                self.sent += self._at_once
        except BaseException as failure:  # noqa: BLE001 (raised in the test)
            self.failure = failure

    def wait_for_more(self) -> None:
        end, before = time.monotonic() + PATIENCE, self.sent
        while self.sent < before + 3 * self._at_once:
            assert self.failure is None, self.failure
            assert time.monotonic() < end, "publishing has stopped"
            time.sleep(0.005)

    def finish(self) -> None:
        self._stop_asked.set()
        self.join(PATIENCE)
        assert not self.is_alive()
        assert self.failure is None, self.failure


def kill_while(publishing: Publishing, running: TestBroker) -> None:
    publishing.start()
    for _ in range(KILLS):
        publishing.wait_for_more()
        running.kill()
        running.start()
    publishing.wait_for_more()
    publishing.finish()


def stored(client: Client) -> list[int]:
    return [int(value or b"") for batch in client.subscribe("s", stop="latest") for value in batch.values]


@pytest.mark.parametrize("at_once", [1, 20_000])
@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_an_unanswered_publish_is_retried_and_stored_once(tmp_path: Path, durability: str, at_once: int) -> None:
    with (
        broker(durability=durability, directory=tmp_path) as running,  # pyright: ignore[reportArgumentType]
        running.connect(timeout=PATIENCE) as client,
    ):
        client.create_stream("s")
        acknowledged: list[Receipt] = []

        def publish(values: list[bytes]) -> None:
            if at_once == 1:
                acknowledged.append(client.publish("s", values[0]))
            else:
                acknowledged.extend(client.publish_many("s", values))

        publishing = Publishing(publish, at_once)
        kill_while(publishing, running)
        assert stored(client) == list(range(publishing.sent))
        assert [receipt.offset for receipt in acknowledged] == list(range(publishing.sent))
        assert client.reconnects >= 1


def test_a_producer_stores_everything_once_and_in_order(tmp_path: Path) -> None:
    with (
        broker(durability="disk", directory=tmp_path) as running,
        running.connect(timeout=PATIENCE) as client,
    ):
        client.create_stream("s")
        acknowledged: list[int] = []
        with client.producer(
            "s", on_ack=lambda receipts: acknowledged.extend(receipt.offset for receipt in receipts)
        ) as producer:
            publishing = Publishing(lambda values: [producer.send(value) for value in values], 1000)
            kill_while(publishing, running)
        assert producer.published == publishing.sent
        assert acknowledged == list(range(publishing.sent))
        assert stored(client) == list(range(publishing.sent))


def test_threads_that_publish_to_one_partition_do_not_disturb_each_other(tmp_path: Path) -> None:
    with (
        broker(durability="disk", directory=tmp_path) as running,
        running.connect(timeout=PATIENCE) as client,
    ):
        client.create_stream("s")
        threads = [
            Publishing(lambda values, name=name: client.publish_many("s", [b"%d" % name] * len(values)), 7)
            for name in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.wait_for_more()
        running.kill()
        running.start()
        for thread in threads:
            thread.wait_for_more()
        for thread in threads:
            thread.finish()
        found = stored(client)
    assert [found.count(name) for name in range(4)] == [thread.sent for thread in threads]


def test_a_rejected_record_does_not_affect_later_ones(running: TestBroker, stream: str) -> None:
    with running.connect() as client:
        client.create_stream(stream)
        with pytest.raises(UsageError) as raised:
            client.publish_many(stream, [b"a", bytes(2 << 20), b"b"])
        assert (raised.value.code, raised.value.details["index"]) == ("too_large", 1)
        assert [receipt.offset for receipt in client.publish_many(stream, [b"c"] * 3)] == [0, 1, 2]
        client.set_readonly(stream)
        with pytest.raises(StateError) as refused:
            client.publish_many(stream, [b"x"] * 10_000)
        assert (refused.value.code, refused.value.details["acknowledged"]) == ("readonly", 0)
        client.set_readonly(stream, False)
        client.publish(stream, b"silent", ack="none")
        receipts = client.publish_many(stream, [b"d"] * 10_000)
        assert [receipt.offset for receipt in receipts] == list(range(4, 10_004))


def test_expected_offsets_are_checked(running: TestBroker, stream: str) -> None:
    with running.connect() as client:
        client.create_stream(stream, options=StreamOptions(concurrency_control=True))
        assert client.publish(stream, b"0", partition=0, expected_offset=0).offset == 0
        with pytest.raises(StateError) as raised:
            client.publish(stream, b"0", partition=0, expected_offset=0)
        assert raised.value.code == "incorrect_offset"
        assert client.publish(stream, b"1", partition=0, expected_offset=1).offset == 1
        assert client.publish(stream, b"2").offset == 2
