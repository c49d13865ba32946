"""The producer over a fake native core: limits, errors, and that no failure is silent."""

import threading
import time
from itertools import repeat
from typing import Any

import pytest
from bascule import Producer, Receipt
from bascule.errors import CapacityError, OutcomeUnknownError, StateError, UnavailableError, UsageError

from tests.unit.client.fakes import FakeNative, client_of, failure

PATIENCE = 60


class Gate:
    """Blocks a publish until it is opened."""

    def __init__(self, outcome: Exception | None = None) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.outcome = outcome

    def __call__(self) -> Exception | None:
        self.reached.set()
        assert self.opened.wait(PATIENCE)
        return self.outcome


def held(native: FakeNative, outcome: Exception | None = None, **options: Any) -> tuple[Producer, Gate]:
    """A producer with one record in flight, which the gate blocks."""
    gate = Gate(outcome)
    native.acks.append(gate)
    producer = client_of(native).producer("s", **options)
    producer.send(b"first")
    assert gate.reached.wait(PATIENCE)
    return producer, gate


def test_records_sent_during_a_publish_form_the_next_batches() -> None:
    native = FakeNative()
    producer, gate = held(native, batch_records=2)
    for number in range(5):
        producer.send(b"%d" % number, key=b"k")
    assert producer.in_flight == 6
    gate.opened.set()
    producer.close()
    assert native.published == [[b"first"], [b"0", b"1"], [b"2", b"3"], [b"4"]]
    assert (producer.published, producer.in_flight) == (6, 0)
    with pytest.raises(UsageError, match="the producer is closed"):
        producer.send(b"late")


def test_sequences_follow_each_other() -> None:
    native = FakeNative()
    producer, gate = held(native)
    producer.send_many([b"a", b"b"])
    gate.opened.set()
    producer.send_many([])
    producer.flush()
    producer.send(b"c")
    producer.close()
    assert [numbers[1:] for numbers in native.producers if numbers] == [(0, 0), (0, 1), (0, 3)]


def test_what_is_in_flight_is_bounded_by_records_and_by_bytes() -> None:
    bounds: list[dict[str, Any]] = [{"max_in_flight": 2}, {"max_in_flight_bytes": 6}]
    for bound in bounds:
        native = FakeNative()
        producer, gate = held(native, **bound)
        assert producer.try_send(b"v")
        assert not producer.try_send(b"v")
        waiting = threading.Thread(target=producer.send, args=(b"w",))
        waiting.start()
        gate.opened.set()
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
        producer.close()
        assert [value for batch in native.published for value in batch] == [b"first", b"v", b"w"]


def test_a_failure_is_raised_once_with_the_unstored_count_and_later_records_are_published() -> None:
    native = FakeNative()
    producer, gate = held(native, failure("too_large", "too big", '{"index": 0, "acknowledged": 0}'))
    producer.send(b"behind")
    gate.opened.set()
    with pytest.raises(UsageError, match="a record is too large") as raised:
        producer.flush()
    assert raised.value.details["unstored"] == 1
    producer.flush()
    producer.close()
    assert native.published == [[b"behind"]]
    assert producer.published == 1


def test_leaving_a_producer_raises_when_something_is_lost() -> None:
    native = FakeNative()
    native.acks = [failure("outcome_unknown")]
    with pytest.raises(OutcomeUnknownError), client_of(native).producer("s") as producer:
        producer.send(b"v")


def test_leaving_a_producer_keeps_the_first_failure_and_notes_the_second() -> None:
    native = FakeNative()
    native.acks = [failure("outcome_unknown", "not answered")]
    with pytest.raises(KeyError) as raised, client_of(native).producer("s") as producer:  # noqa: PT012
        producer.send(b"v")
        raise KeyError("mine")
    assert any("not answered" in note for note in raised.value.__notes__)


def test_receipts_come_by_future_and_by_callback() -> None:
    native = FakeNative()
    acked: list[list[Receipt]] = []
    producer, gate = held(native, on_ack=acked.append)
    receipts = [producer.submit(b"a"), producer.submit(b"b")]
    gate.opened.set()
    assert [receipt.result(PATIENCE).offset for receipt in receipts] == [1, 2]
    producer.close()
    assert [[receipt.offset for receipt in batch] for batch in acked] == [[0], [1, 2]]


def test_a_future_has_the_failure_of_its_record() -> None:
    native = FakeNative()
    producer, gate = held(native)
    native.acks.append(failure("disk_full", "full", '{"acknowledged": 0}'))
    receipt = producer.submit(b"a")
    gate.opened.set()
    assert isinstance(receipt.exception(PATIENCE), CapacityError)
    with pytest.raises(CapacityError):
        producer.close()


def test_the_next_call_raises_an_exception_of_the_callback() -> None:
    def on_ack(_receipts: list[Receipt]) -> None:
        raise KeyError("mine")

    producer = client_of(FakeNative()).producer("s", on_ack=on_ack)
    producer.send(b"v")
    with pytest.raises(KeyError, match="mine"):
        producer.flush()
    producer.close()
    assert producer.published == 1


def test_a_flush_that_times_out_reports_records_in_flight_and_keeps_them() -> None:
    native = FakeNative()
    producer, gate = held(native)
    with pytest.raises(
        UnavailableError, match=r"not acknowledged within 0\.01 s and still in flight: 1 record$"
    ) as raised:
        producer.flush(0.01)
    assert raised.value.code == "deadline_exceeded"
    gate.opened.set()
    producer.close()
    assert native.published == [[b"first"]]


def test_a_close_that_times_out_drops_and_reports_unsent_batches() -> None:
    native = FakeNative()
    producer, gate = held(native, batch_records=1)
    producer.send(b"second")

    def open_the_gate_once_it_gave_up() -> None:
        end = time.monotonic() + PATIENCE
        while not producer._abandoned and time.monotonic() < end:  # pyright: ignore[reportPrivateUsage]
            time.sleep(0.005)
        gate.opened.set()

    opening = threading.Thread(target=open_the_gate_once_it_gave_up)
    opening.start()
    with pytest.raises(UnavailableError, match="the producer was closed before this was sent") as raised:
        producer.close(0.01)
    opening.join()
    assert raised.value.details["unstored"] == 1
    assert native.published == [[b"first"]]


def test_no_thread_is_left() -> None:
    producer = client_of(FakeNative()).producer("s")
    producer.send(b"v")
    producer.close()
    producer.close()
    assert "bascule-producer" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"batch_records": 0}, "batch_records is 1 to 50000, not 0"),
        ({"batch_records": 50_001}, "batch_records is 1 to 50000, not 50001"),
        ({"max_in_flight": 0}, "max_in_flight is 1 or more, not 0"),
        ({"max_in_flight_bytes": 0}, "max_in_flight_bytes is 1 or more, not 0"),
        ({"partition": -1}, "partition is -1"),
        ({"ack": "maybe"}, "ack is one of"),
    ],
)
def test_invalid_producer_options_are_rejected_at_once(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        client_of(FakeNative()).producer("s", **wrong)


def test_a_busy_partition_does_not_block_retries_of_others() -> None:
    native = FakeNative()
    native.partitions = 3
    native.refusals = {0: repeat(failure("busy", "0 is busy")), 1: iter([failure("busy")]), 2: iter([failure("busy")])}
    client = client_of(native, timeout=2.0)
    with pytest.raises(CapacityError, match="0 is busy") as raised:
        client.publish_many("s", [b"a", b"b", b"c"], partitions=[2, 0, 1])
    assert sorted(native.published) == [[b"a"], [b"c"]]
    assert (raised.value.details["index"], raised.value.details["acknowledged"]) == (1, 2)


def test_what_was_stored_has_its_receipt_when_another_partition_failed() -> None:
    native = FakeNative()
    native.partitions = 3
    native.refusals = {1: repeat(failure("too_large"))}
    producer, gate = held(native, partition="round_robin")
    receipts = [producer.submit(b"%d" % number) for number in range(6)]
    gate.opened.set()
    with pytest.raises(UsageError):
        producer.close()
    failures = [receipt.exception() for receipt in receipts]
    assert [isinstance(failed, UsageError) for failed in failures] == [True, False, False, True, False, False]
    stored = [receipt.result().partition for receipt, failed in zip(receipts, failures, strict=True) if failed is None]
    assert stored == [2, 0, 2, 0]


def test_without_acks_a_receipt_still_names_the_partition() -> None:
    native = FakeNative()
    native.partitions = 3
    with client_of(native).producer("s", partition="round_robin", ack="none") as producer:
        receipts = [producer.submit(b"") for _ in range(4)]
    assert [receipt.result() for receipt in receipts] == [Receipt(-1, 0, number) for number in (0, 1, 2, 0)]


def test_after_a_stream_was_missing_the_next_send_does_not_wait_for_the_broker() -> None:
    native = FakeNative()
    native.refusals = {0: iter([failure("stream_not_found")])}
    with client_of(native).producer("s") as producer:
        producer.send(b"lost")
        with pytest.raises(StateError):
            producer.flush()
        assert producer.try_send(b"kept")
        producer.flush()
    asked = [thread for method, thread in native.threads if method == "FetchMetadata"]
    assert asked == ["MainThread", "bascule-producer"], "once at the start, once by the producer's own thread"
    assert native.published == [[b"kept"]]
