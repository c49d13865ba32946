"""Configurations of Liftbridge as people have them: each starts a broker that behaves as it says.

Every broker is the `liftbridge` command in a process of its own, with a file, variables and flags as the original takes
them.
"""

# nats-py leaves some of its parameters without a type
# pyright: reportUnknownMemberType=false

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import nats
import pytest
from bascule._liftbridge_pb import message

from tests.conformance.api import ALL, Api, Failed, failed, until, values
from tests.conformance.samples import ALONE, LIMIT_S, LISTEN, free_port, liftbridge, said_by

READY_S: Final = 3.0
"""What is promised on a machine with nothing else to do."""


def test_it_is_ready_in_seconds(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    with liftbridge(tmp_path, LISTEN, "--embedded-nats", "--raft-bootstrap-seed") as broker, Api(broker.address) as api:
        record_property("seconds", broker.seconds)
        print(f"ready after {broker.seconds:.2f} s, seen from outside; promised on an idle machine: {READY_S:g} s")
        api.create("s")
        assert api.publish("s", b"x") == 0
    assert broker.seconds < LIMIT_S


def test_listen_binds_and_host_and_port_are_shown(tmp_path: Path) -> None:
    bound = free_port()
    text = f"listen: 127.0.0.1:{bound}\nhost: localhost\nport: 7777\nnats.servers: [nats://127.0.0.1:1]\n"
    file = tmp_path / "liftbridge.yaml"
    file.write_text(text)
    command = [sys.executable, "-m", "bascule.cli.liftbridge", "-c", str(file), "-d", str(tmp_path / "data")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with Api(f"127.0.0.1:{bound}") as api:
            until(lambda: serves(api), LIMIT_S)
            (shown,) = api.call("FetchMetadata").brokers
            assert (shown.host, shown.port) == ("localhost", 7777)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()


def serves(api: Api) -> bool:
    try:
        api.call("FetchMetadata")
    except Failed:
        return False
    return True


def test_variables_win_over_the_file_and_flags_over_both(tmp_path: Path) -> None:
    text = f"{ALONE}clustering.server.id: file\nlogging.level: error\ncursors.stream.partitions: 0\n"
    variables = {
        "LIFTBRIDGE_CLUSTERING_SERVER_ID": "variable",
        "LIFTBRIDGE_LOGGING_LEVEL": "info",
        "LIFTBRIDGE_CURSORS_STREAM_PARTITIONS": "3",
        "LIFTBRIDGE_TELEMETRY_ENABLED": "true",
    }
    with liftbridge(tmp_path, text, variables=variables) as broker, Api(broker.address) as api:
        assert api.call("FetchMetadata").brokers[0].id == "variable"
        assert len(api.stream("__cursors").partitions) == 3
    (tmp_path / "flags").mkdir()
    with (
        liftbridge(tmp_path / "flags", text, "-server-id", "flag", variables=variables) as broker,
        Api(broker.address) as api,
    ):
        assert api.call("FetchMetadata").brokers[0].id == "flag"


def test_activity_and_cursors_are_there_when_their_keys_say_so(tmp_path: Path) -> None:
    text = f"{ALONE}activity.stream: {{enabled: true, publish.timeout: 2s}}\ncursors.stream.partitions: 2\n"
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        api.create("s")
        api.publish("s", b"x")
        api.call("SetCursor", stream="s", cursorId="c", offset=0)
        assert api.call("FetchCursor", stream="s", cursorId="c").offset == 0
        until(lambda: len(api.read("__activity")) >= 2, LIMIT_S)
        first = message("ActivityStreamEvent").FromString(api.read("__activity")[0].value)
        assert first.createStreamOp.stream == "__activity"


def test_nothing_but_defaults_has_neither(tmp_path: Path) -> None:
    with liftbridge(tmp_path, ALONE) as broker, Api(broker.address) as api:
        assert not api.call("FetchMetadata").streamMetadata
        assert [item.error for item in api.call("FetchMetadata", streams=["__cursors"]).streamMetadata] == [1]


def test_concurrency_control_is_what_streams_get(tmp_path: Path) -> None:
    with liftbridge(tmp_path, f"{ALONE}streams.concurrency.control: true\n") as broker, Api(broker.address) as api:
        api.create("s")
        assert api.publish("s", b"first", expectedOffset=0) == 0
        with pytest.raises(Failed, check=failed("UNKNOWN", "incorrect expected offset")):
            api.publish("s", b"again", expectedOffset=0)


def test_a_size_limit_refuses_larger_messages(tmp_path: Path) -> None:
    with liftbridge(tmp_path, f"{ALONE}clustering.replication.max.bytes: 2048\n") as broker, Api(broker.address) as api:
        api.create("s")
        assert api.publish("s", b"x" * 1024) == 0
        with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "message exceeds max replication size")):
            api.publish("s", b"x" * 4096)


def test_min_insync_replicas_hold_for_streams_that_say_nothing(tmp_path: Path) -> None:
    text = f"{ALONE}clustering.min.insync.replicas: 2\ncursors.stream.partitions: 1\n"
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        api.create("theirs")
        refused = "failed to append: not enough in-sync replicas: there are 1, min ISR is 2"
        with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", refused)):
            api.publish("theirs", b"x")
        api.create("own", minIsr=message("NullableInt32")(value=1))
        assert api.publish("own", b"x") == 0
        # The broker's own streams need one.
        api.call("SetCursor", stream="own", cursorId="c", offset=0)


def test_partitions_pause_after_the_time_that_the_file_says(tmp_path: Path) -> None:
    with liftbridge(tmp_path, f"{ALONE}streams.auto.pause.time: 1s\n") as broker, Api(broker.address) as api:
        api.create("s")
        until(lambda: api.stream("s").partitions[0].paused, LIMIT_S)
        assert api.publish("s", b"x") == 0


def test_group_timeouts_are_told_to_members(tmp_path: Path) -> None:
    text = f"{ALONE}groups: {{consumer.timeout: 7s, coordinator.timeout: 9s}}\n"
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        api.create("s")
        joined = api.call("JoinConsumerGroup", groupId="g", consumerId="c", streams=["s"])
        assert (joined.consumerTimeout, joined.coordinatorTimeout) == (7_000_000_000, 9_000_000_000)


@pytest.mark.parametrize("flags", [("--embedded-nats",), ("-e",), ("-embedded-nats",), ()])
def test_an_embedded_server_takes_plain_publishers_where_nats_servers_says(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    port = free_port()
    text = f"{LISTEN}nats:\n  servers:\n    - nats://127.0.0.1:{port}\n" + ("" if flags else "  embedded: true\n")
    with liftbridge(tmp_path, text, *flags) as broker, Api(broker.address) as api:
        api.create("s", subject="s.*")
        asyncio.run(publish(f"nats://127.0.0.1:{port}", "s.a", b"plain"))
        until(lambda: api.partition("s").highWatermark == 0, LIMIT_S)
        assert values(api.read("s")) == [b"plain"]


async def publish(url: str, subject: str, value: bytes, **options: Any) -> None:
    client = await nats.connect(url, **options)
    await client.publish(subject, value)
    await client.flush()
    await client.close()


def test_a_password_that_looks_like_a_number_arrives(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "nats.conf").write_text(
        f'listen: "127.0.0.1:{port}"\nauthorization: {{ user: "0123", password: "1e5" }}\n'
    )
    text = f"{LISTEN}nats: {{embedded.config: {tmp_path / 'nats.conf'}, user: 0123}}\n"
    variables = {"LIFTBRIDGE_NATS_PASSWORD": "1e5"}
    with liftbridge(tmp_path, text, variables=variables) as broker, Api(broker.address) as api:
        api.create("s")
        asyncio.run(publish(f"nats://127.0.0.1:{port}", "s", b"plain", user="0123", password="1e5"))
        until(lambda: api.partition("s").highWatermark == 0, LIMIT_S)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lisen: a:1", 'Unknown configuration setting "lisen"'),
        ("logging.level: loud", 'Invalid logging.level setting "loud"'),
        ("listen: 9292", 'Invalid listen setting "9292"'),
        ("streams.segment.max.age: 10ms", "at least 1s is wanted"),
        ("activity.stream.publish.ack.policy: some", "none, leader or all is wanted"),
        ("clustering.raft.bootstrap.peers: [a, b]", "clusters are not there yet"),
        ("nats.tls.cert: /nowhere.pem", "go together"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason_and_2(tmp_path: Path, text: str, said: str) -> None:
    code, words = said_by(tmp_path, f"{text}\n")
    assert code == 2
    assert said in words


def test_keys_without_effect_are_told_once_each(tmp_path: Path) -> None:
    raft = "clustering.raft: {snapshot.retain: 2, cache.size: 512}"
    text = f"{ALONE}{raft}\nbatch.max.time: 10ms\ntelemetry.enabled: true\n"
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        api.create("s")
        assert api.publish("s", b"x", ackPolicy=ALL) == 0
    notes = [line for line in broker.log.splitlines() if line.startswith("liftbridge: ")]
    assert [note.split()[1] for note in notes] == [
        "clustering.raft.snapshot.retain", "clustering.raft.cache.size", "batch.max.time",
    ]  # fmt: skip
