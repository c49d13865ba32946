"""A nats-server that is absent, starts, stops under load and returns: the broker serves, reports it and resumes."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Generator
from pathlib import Path

import grpc
import nats
import pytest
from bascule import testing
from bascule._liftbridge_pb import message
from bascule.server.nats_binary import find_nats_server

from tests.integration.server.process import free_port

from .process import check_refusal, children, run, serving, wait_for
from .raw import Raw, refusal

STREAM = "ingest"


@contextlib.contextmanager
def nats_server(port: int) -> Generator["subprocess.Popen[bytes]"]:
    """A separate nats-server; returns when it accepts clients."""
    server = subprocess.Popen(
        [find_nats_server(), "-a", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: _accepts(port), 10, "accepting")
        yield server
    finally:
        server.kill()
        server.wait()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


async def publish_some(port: int, first: int, count: int) -> None:
    client = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False, connect_timeout=2)
    for number in range(first, first + count):
        await client.publish(STREAM, b"%d" % number)
    await client.flush()
    await client.close()


def test_a_server_that_starts_stops_and_returns(tmp_path: Path) -> None:
    port = free_port()
    arguments = ("--port", "0", "--data-dir", tmp_path / "data", "--log-format", "text")
    with serving(tmp_path, *arguments, "--nats", f"nats://127.0.0.1:{port}") as served:
        served.wait_ready()
        assert "ingest waits for NATS" in served.log
        address = json.loads(served.ready_file.read_text())["address"]
        with Raw(address) as raw:
            # without NATS: calls that do not need it work, others report it
            raw.create_stream(STREAM)
            assert raw.publish(STREAM, b"direct") == 0
            assert len(raw.read(STREAM)) == 1
            body = message("PublishToSubjectRequest")(subject=STREAM, value=b"x").SerializeToString()
            code, sentence = refusal(lambda: raw.unary("PublishToSubject", body))
            assert (code, "NATS" in sentence) == (grpc.StatusCode.UNKNOWN, True), sentence
            expected = 1
            for _ in range(2):
                with nats_server(port):
                    wait_for(lambda: last_word(served.log) == "connected", 15, "connected to NATS")
                    asyncio.run(publish_some(port, expected, 100))
                    expected += 100
                    wait_for(lambda count=expected: len(raw.read(STREAM)) == count, 10, "stored")
                wait_for(lambda: last_word(served.log) == "disconnected", 10, "reported that NATS is gone")
                assert raw.publish(STREAM, b"direct") == expected
                expected += 1
        assert served.end() == 0
        assert "Traceback" not in served.log
        assert "panicked" not in served.log
        assert served.log.count("connected to NATS again after") == 1, "the gap between the two servers is counted"
        # reported once in a while, not at every attempt
        assert served.log.count("bascule.nats") < 200


def last_word(log: str) -> str:
    """The last log record about the connections."""
    words = [
        line for line in log.splitlines() if "bascule.nats.connected" in line or "bascule.nats.disconnected" in line
    ]
    return "" if not words else "disconnected" if "bascule.nats.disconnected" in words[-1] else "connected"


def test_a_wrong_password_is_reported_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("geheim-wrong")
    port = free_port()
    server = subprocess.Popen(
        [find_nats_server(), "-a", "127.0.0.1", "-p", str(port), "--user", "u", "--pass", "right"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: _accepts(port), 10, "accepting")
        (tmp_path / "b.yaml").write_text(f"nats: {{user: u, password_file: {tmp_path / 'secret'}}}")
        arguments = ("--port", "0", "--data-dir", tmp_path / "data", "--config", tmp_path / "b.yaml")
        with serving(tmp_path / "run", *arguments, "--nats", f"nats://127.0.0.1:{port}") as served:
            served.wait_ready()
            wait_for(lambda: "uthoriz" in served.log, 10, "reported that the password is wrong")
            assert served.end() == 0
            assert "geheim-wrong" not in served.log
    finally:
        server.kill()
        server.wait()


def test_a_configuration_rejected_by_nats_is_reported(tmp_path: Path) -> None:
    (tmp_path / "nats.conf").write_text("max_payload: lots\n")
    (tmp_path / "b.yaml").write_text(f"nats: {{config: {tmp_path / 'nats.conf'}}}")
    arguments = ("serve", "--standalone", "--port", "0", "--data-dir", tmp_path / "data")
    end = run(*arguments, "--config", tmp_path / "b.yaml")
    check_refusal(end, 5, "nats-server", "nats.conf:1")


class Ingest(threading.Thread):
    """Publishes enveloped messages and records the acked offsets; reconnects when NATS is lost."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.acked = dict[int, bytes]()
        self.stopping = threading.Event()
        self._url = url

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            with contextlib.suppress(Exception):  # NATS is down: intended by the test
                client = await nats.connect(self._url, allow_reconnect=False, connect_timeout=1)
                await client.subscribe("acks.here", cb=self._on_ack)
                while not self.stopping.is_set() and client.is_connected:
                    for _ in range(20):
                        await client.publish(STREAM, enveloped(b"%d" % number))
                        number += 1
                    await client.flush(1)
                await client.close()
            await asyncio.sleep(0.02)

    async def _on_ack(self, envelope: object) -> None:
        ack = message("Ack").FromString(envelope.data[8:])  # pyright: ignore[reportAttributeAccessIssue]
        if ack.ackError == 0:
            self.acked[ack.offset] = ack.correlationId.encode()


def enveloped(value: bytes) -> bytes:
    payload = message("Message")(
        value=value, ackInbox="acks.here", correlationId=value.decode(), ackPolicy=1, offset=-1
    ).SerializeToString()
    return bytes.fromhex("b90e43b400080000") + payload


@pytest.mark.slow
def test_a_server_killed_under_load_loses_no_acked_record() -> None:
    with testing.broker(durability="disk") as broker, Raw(broker.address) as raw:
        raw.create_stream(STREAM)
        pid = broker.pid
        load = Ingest(broker.nats_url)
        load.start()
        for _ in range(3):
            before = len(load.acked)
            wait_for(lambda count=before: len(load.acked) > count + 100, 20, "acked again")
            direct = raw.publish(STREAM, b"direct")
            # Acks from before the last kill may still arrive while there is no child.
            wait_for(lambda: len(children(broker.pid)) == 1, 20, "nats-server restarted")
            (child,) = children(broker.pid)
            os.kill(child, signal.SIGKILL)
            assert raw.publish(STREAM, b"direct") > direct  # does not wait for NATS
        before = len(load.acked)
        wait_for(lambda: len(load.acked) > before + 100, 20, "acked again")
        load.stopping.set()
        load.join(20)
        time.sleep(0.2)  # messages in flight may still be stored
        stored = {record.offset: record.value for record in raw.read(STREAM)}
        assert list(stored) == list(range(len(stored)))
        assert broker.pid == pid
        assert {offset: stored.get(offset) for offset in load.acked} == load.acked


def test_a_hanging_server_does_not_block_others() -> None:
    """SIGSTOP: connections stay up and nothing moves."""
    with testing.broker() as broker, Raw(broker.address) as raw:
        raw.create_stream(STREAM)
        (child,) = children(broker.pid)
        os.kill(child, signal.SIGSTOP)
        try:
            began = time.monotonic()
            for number in range(100):
                assert raw.publish(STREAM, b"x") == number
            assert len(raw.read(STREAM)) == 100
            assert time.monotonic() - began < 5
            body = message("PublishToSubjectRequest")(subject="s", value=b"x").SerializeToString()
            code, _ = refusal(lambda: raw.unary("PublishToSubject", body, timeout=1))
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        finally:
            os.kill(child, signal.SIGCONT)
        asyncio.run(publish_some(int(broker.nats_url.rpartition(":")[2]), 0, 10))
        wait_for(lambda: len(raw.read(STREAM)) == 110, 10, "stored")
