"""No space left: publishes are refused with an error worth retrying, reads continue, and it recovers by itself."""

import contextlib
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import grpc
import pyarrow as pa
import pytest
from bascule import testing
from bascule._liftbridge_pb import message
from bascule.errors import BrokerError
from pyarrow import flight

from .mount import mounted
from .raw import Raw, publish_request, refusal

VALUE: Final = b"x" * 20_000
SIZE: Final = "24m"
FILLER: Final = 12 << 20
SETTINGS: Final = {
    "streams.segment_max_bytes": 1 << 20,
    "streams.nats_copy": "none",
    "streams.cleaner_interval_ms": 1_000,
    "log.level": "info",
}


class Full:
    """A broker on a file system that the test can fill, and the acked records of its stream."""

    def __init__(self, broker: testing.TestBroker, place: Path) -> None:
        self.broker: Final = broker
        self.acked = 0
        self._filler = place / "filler"

    def fill(self, raw: Raw) -> tuple[grpc.StatusCode, str]:
        """Publish until a publish fails. Returns the error."""
        for _ in range(2_000):
            try:
                assert raw.publish("disk", VALUE, key=b"%d" % self.acked, ackPolicy=1) == self.acked
            except grpc.RpcError as failure:
                return failure.code(), failure.details() or ""
            self.acked += 1
        raise AssertionError("the disk did not become full")

    def free(self) -> None:
        """Free space, as an operator would."""
        self._filler.unlink()

    def occupy(self) -> None:
        """Use up all space again."""
        with self._filler.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(b"\0" * 65536):
                pass

    def publish_until_accepted(self, raw: Raw, limit_s: float = 10) -> None:
        """Publish with retries."""
        limit = time.monotonic() + limit_s
        while True:
            try:
                assert raw.publish("disk", VALUE, key=b"%d" % self.acked) == self.acked
            except grpc.RpcError as failure:
                if failure.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > limit:
                    raise
                time.sleep(0.1)  # no event reports free space
            else:
                self.acked += 1
                return

    def check(self, raw: Raw) -> None:
        """Check that every acked record is at its offset."""
        keys = [record.key for record in raw.read("disk")]
        assert keys[: self.acked] == [b"%d" % number for number in range(self.acked)]
        assert len(keys) == self.acked, "a rejected record was stored"


@pytest.fixture
def full(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[Full]:
    """A broker with space for a few hundred records, and a filler beside them."""
    place = tmp_path / "mount"
    with mounted(place, "-o", f"size={SIZE}"):
        (place / "filler").write_bytes(b"\0" * FILLER)
        with testing.broker(durability=request.param, directory=place, settings=SETTINGS) as broker:
            with Raw(broker.address) as raw:
                raw.create_stream("disk")
                raw.create_stream("other")
                raw.publish("other", b"before")
            yield Full(broker, place)


@pytest.mark.parametrize("full", ["disk", "memory"], indirect=True)
def test_publishes_are_refused_and_reads_continue(full: Full) -> None:
    with Raw(full.broker.address) as raw:
        pid = full.broker.pid
        code, sentence = full.fill(raw)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "no space left" in sentence
        full.check(raw)
        assert [record.value for record in raw.read("other")] == [b"before"]

        # on every protocol, with an error that names the reason
        body = publish_request("disk", VALUE * 10, ackPolicy=1, correlationId="c")
        answers = [message("PublishResponse").FromString(answer) for answer in raw.publish_async([body])]
        assert "no space left" in answers[0].asyncError.message
        with full.broker.connect(timeout=1) as client, pytest.raises(BrokerError) as refused:
            client.publish("disk", VALUE * 10)
        assert (refused.value.code, refused.value.retry) == ("disk_full", "backoff")
        table = pa.table({"value": pa.array([VALUE * 10], pa.binary())})
        with flight.FlightClient(f"grpc://{full.broker.address}") as client:
            writer, _ = client.do_put(flight.FlightDescriptor.for_path("disk"), table.schema)
            with pytest.raises((flight.FlightError, pa.ArrowInvalid, OSError), match="disk_full"):  # noqa: PT012
                writer.write_table(table)
                writer.done_writing()
                writer.close()

        full.free()
        full.publish_until_accepted(raw)
        full.check(raw)
        raw.create_stream("later")
        assert raw.publish("later", b"x") == 0
        assert full.broker.pid == pid
        assert "panicked" not in full.broker.log
        assert "Traceback" not in full.broker.log
        assert "no space" in full.broker.log, "the operator is not notified"


@pytest.mark.parametrize("full", ["disk"], indirect=True)
def test_the_disk_may_be_full_repeatedly_and_across_restarts(full: Full) -> None:
    with Raw(full.broker.address) as raw:
        full.fill(raw)
        full.free()
        full.publish_until_accepted(raw)
        full.occupy()
        full.fill(raw)
        full.check(raw)
    full.free()
    full.broker.kill()
    full.broker.start()
    with Raw(full.broker.address) as raw:
        full.check(raw)
        full.publish_until_accepted(raw)
        full.check(raw)


@pytest.mark.parametrize("full", ["disk"], indirect=True)
def test_administration_without_space_is_rejected_and_recovers(full: Full) -> None:
    with Raw(full.broker.address) as raw:
        full.fill(raw)
        full.occupy()
        for number in range(20):  # committed, but there is no space for their files
            code, sentence = refusal(lambda number=number: raw.create_stream(f"small-{number}"))
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "the stream exists" in sentence
        code, sentence = refusal(lambda: raw.publish("small-19", b"x"))
        assert (code, "not open" in sentence) == (grpc.StatusCode.INTERNAL, True), sentence
        with full.broker.connect(timeout=1) as client, pytest.raises(BrokerError) as refused:
            client.publish("small-19", b"x")
        assert refused.value.retry == "backoff"
        assert "disk_full" in full.broker.log, "the log has no reason"
        full.check(raw)
        full.free()
        full.publish_until_accepted(raw)
        with full.broker.connect(timeout=20) as client:  # retries until they are open
            assert [client.publish(f"small-{number}", b"x").offset for number in range(20)] == [0] * 20
        full.check(raw)
    full.broker.restart()
    with Raw(full.broker.address) as raw:
        full.check(raw)
        assert raw.publish("small-7", b"y") == 1
