"""Ctrl-C and SIGTERM at any time: the broker stops cleanly, acked records stay, its nats-server ends too."""

import random
import signal
import threading
import time
from pathlib import Path
from typing import Final

import grpc
import pytest
from bascule._liftbridge_pb import message

from .process import Served, children, is_running, serving, wait_for
from .raw import Raw, publish_request

MOMENTS: Final = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
"""Seconds after the process began; a broker is ready after about half a second, the interpreter's start included."""
BEFORE_US: Final = ("<frozen site>", "in _get_module_details", "Could not import runpy module")
"""In what the interpreter prints about an interrupt while it sets itself up or looks for the program to run."""


def broker(directory: Path) -> tuple[str | Path, ...]:
    return ("--standalone", "--port", "0", "--data-dir", directory / "data", "--log-format", "text")


def address(served: Served) -> str:
    import json  # noqa: PLC0415

    return str(json.loads(served.ready_file.read_text())["address"])


def check_quiet(served: Served) -> None:
    assert "Traceback" not in served.log
    assert "panicked" not in served.log


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_at_any_moment_of_the_start(tmp_path: Path, number: signal.Signals) -> None:
    """The exit code shows whether it was ready; no process remains; the next start works."""
    for moment in MOMENTS:
        with serving(tmp_path, *broker(tmp_path)) as served:
            time.sleep(moment)
            below = children(served.process.pid)
            code = served.end(number)
            below += children(served.process.pid)
            if not any(place in served.log for place in BEFORE_US):
                # before the handlers are set, the system ends it (−number), or the interpreter does (130)
                assert code in {0, 130, -number}, served.log
                assert "Traceback" not in served.log, f"{number.name} after {moment} s: {served.log}"
            wait_for(lambda pids=below: not any(map(is_running, pids)), 5, "gone with all its children")
    with serving(tmp_path, *broker(tmp_path)) as served:
        served.wait_ready()
        assert served.end() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_when_ready_and_idle(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, *broker(tmp_path)) as served:
        served.wait_ready()
        below = children(served.process.pid)
        assert below, "a standalone broker has a nats-server"
        began = time.monotonic()
        assert served.end(number) == 0
        assert time.monotonic() - began < 5
        assert not any(map(is_running, below))
        check_quiet(served)


class Load:
    """Publishers that record acked records, and a subscriber, until the broker stops."""

    def __init__(self, at: str) -> None:
        self.acked: Final = dict[int, bytes]()
        self._at = at
        self._threads = [threading.Thread(target=self._publish, args=(number,), daemon=True) for number in range(3)]
        self._threads.append(threading.Thread(target=self._follow, daemon=True))
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), "a call did not end with the broker"

    def _publish(self, number: int) -> None:
        with Raw(self._at) as raw:
            try:
                if number == 0:
                    for count in range(1_000_000):
                        value = b"unary-%d" % count
                        self.acked[raw.publish("load", value)] = value
                else:
                    self._publish_async(raw, number)
            except grpc.RpcError:
                return

    def _publish_async(self, raw: Raw, number: int) -> None:
        values = (b"async-%d-%d" % (number, count) for count in range(10_000_000))
        bodies = (publish_request("load", value, correlationId=value.decode(), ackPolicy=1) for value in values)
        for body in raw.publish_async(bodies, 60):
            answer = message("PublishResponse").FromString(body)
            if not answer.HasField("asyncError"):
                self.acked[answer.ack.offset] = answer.correlationId.encode()

    def _follow(self) -> None:
        with Raw(self._at) as raw:
            try:
                for _ in raw.subscribe(message("SubscribeRequest")(stream="load").SerializeToString(), 60):
                    pass
            except grpc.RpcError:
                return


@pytest.mark.slow
@pytest.mark.parametrize(
    "signals",
    [(signal.SIGTERM,), (signal.SIGINT,), (signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)],
    ids=lambda signals: "-".join(one.name for one in signals),
)
def test_under_load_every_acked_record_stays(tmp_path: Path, signals: tuple[signal.Signals, ...]) -> None:
    chance = random.Random(5)
    acked = dict[int, bytes]()
    for life in range(3):
        with serving(tmp_path, *broker(tmp_path)) as served:
            served.wait_ready()
            below = children(served.process.pid)
            if life == 0:
                with Raw(address(served)) as raw:
                    raw.create_stream("load")
            load = Load(address(served))
            before = len(acked)
            wait_for(lambda one=load: len(one.acked) > 200, 10, "loaded")
            time.sleep(chance.uniform(0.05, 0.3))  # the random moment
            for one in signals[:-1]:
                served.process.send_signal(one)
                time.sleep(chance.uniform(0, 0.05))
            code = served.end(signals[-1])
            load.join()
            acked.update(load.acked)
            # a second signal ends it at once, unless it had already stopped
            assert code == 0 or (len(signals) == 2 and code == 130), served.log
            check_quiet(served)
            wait_for(lambda pids=below: not any(map(is_running, pids)), 5, "gone with its nats-server")
            assert len(acked) > before
    with serving(tmp_path, *broker(tmp_path)) as served:
        served.wait_ready()
        with Raw(address(served)) as raw:
            stored = {record.offset: record.value for record in raw.read("load")}
        assert list(stored) == list(range(len(stored)))
        lost = {offset: value for offset, value in acked.items() if stored.get(offset) != value}
        assert not lost, f"{len(lost)} of {len(acked)} acked records are lost"
        assert served.end() == 0
