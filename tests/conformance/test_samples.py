"""Realistic configurations of Liftbridge: each starts a broker that behaves accordingly.

Every broker is the `liftbridge` command in a separate process, with a file, variables and flags of the original.
"""

# nats-py leaves some of its parameters without a type
# pyright: reportUnknownMemberType=false

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import nats
import pytest
from bascule._liftbridge_pb import message
from bascule.cli.liftbridge.keys import KEYS

from tests.conformance.api import ALL, Api, Failed, failed, values
from tests.conformance.samples import ALONE, LIMIT_S, LISTEN, liftbridge, said_by
from tests.integration.server.process import free_port
from tests.waiting import until

READY_S: Final = 3.0
"""Promised start time on an idle machine."""


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


def test_activity_and_cursors_exist_if_configured(tmp_path: Path) -> None:
    text = f"{ALONE}activity.stream: {{enabled: true, publish.timeout: 2s}}\ncursors.stream.partitions: 2\n"
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        api.create("s")
        api.publish("s", b"x")
        api.call("SetCursor", stream="s", cursorId="c", offset=0)
        assert api.call("FetchCursor", stream="s", cursorId="c").offset == 0
        until(lambda: len(api.read("__activity")) >= 2, LIMIT_S)
        first = message("ActivityStreamEvent").FromString(api.read("__activity")[0].value)
        assert first.createStreamOp.stream == "__activity"


def test_defaults_have_neither(tmp_path: Path) -> None:
    with liftbridge(tmp_path, ALONE) as broker, Api(broker.address) as api:
        assert not api.call("FetchMetadata").streamMetadata
        assert [item.error for item in api.call("FetchMetadata", streams=["__cursors"]).streamMetadata] == [1]


def test_concurrency_control_applies_to_streams(tmp_path: Path) -> None:
    with liftbridge(tmp_path, f"{ALONE}streams.concurrency.control: true\n") as broker, Api(broker.address) as api:
        api.create("s")
        assert api.publish("s", b"first", expectedOffset=0) == 0
        with pytest.raises(Failed, check=failed("UNKNOWN", "incorrect expected offset")):
            api.publish("s", b"again", expectedOffset=0)


def test_a_size_limit_rejects_larger_messages(tmp_path: Path) -> None:
    with liftbridge(tmp_path, f"{ALONE}clustering.replication.max.bytes: 2048\n") as broker, Api(broker.address) as api:
        api.create("s")
        assert api.publish("s", b"x" * 1024) == 0
        with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "message exceeds max replication size")):
            api.publish("s", b"x" * 4096)


def test_min_insync_replicas_is_the_default_of_streams(tmp_path: Path) -> None:
    text = f"{ALONE}clustering.min.insync.replicas: 2\ncursors.stream.partitions: 1\n"
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        api.create("theirs")
        refused = "failed to append: not enough in-sync replicas: there are 1, min ISR is 2"
        with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", refused)):
            api.publish("theirs", b"x")
        api.create("own", minIsr=message("NullableInt32")(value=1))
        assert api.publish("own", b"x") == 0
        # Internal streams need one.
        api.call("SetCursor", stream="own", cursorId="c", offset=0)


def paused(api: Api, stream: str) -> bool:
    return bool(api.stream(stream).partitions[0].paused)


def test_partitions_pause_after_the_configured_time_unless_they_are_read(tmp_path: Path) -> None:
    text = f"{ALONE}streams.auto.pause: {{time: 1s, disable.if.subscribers: true}}\n"
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        api.create("read")
        reading = api.subscribe("read", resume=True)
        api.create("idle")
        until(lambda: paused(api, "idle"), LIMIT_S)
        assert not paused(api, "read"), "it was idle for longer"
        assert api.publish("idle", b"x") == 0
        reading.cancel()
        until(lambda: paused(api, "read"), LIMIT_S)


def test_data_directory_and_subject_prefix_are_configured(tmp_path: Path) -> None:
    text = (
        f"{ALONE}data.dir: {tmp_path / 'elsewhere'}\nclustering.namespace: depot\nactivity.stream.enabled: true\n"
        "cursors.stream: {partitions: 2, auto.pause.time: 1s}\n"
    )
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        assert (tmp_path / "elsewhere" / "bascule.json").exists()
        assert api.stream("__activity").subject == "depot.activity"
        assert api.stream("__cursors").subject == "depot.cursors"
        until(lambda: paused(api, "__cursors"), LIMIT_S)
        assert not paused(api, "__activity"), "the setting applies to cursors"
        api.call("SetCursor", stream="s", cursorId="c", offset=3)
        assert api.call("FetchCursor", stream="s", cursorId="c").offset == 3


def test_the_messages_of_a_batch_are_limited_by_the_file(tmp_path: Path) -> None:
    port = free_port()
    text = f"{LISTEN}nats: {{embedded: true, servers: ['nats://127.0.0.1:{port}']}}\nbatch.max.messages: 5\n"
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        api.create("s")
        asyncio.run(publish(f"nats://127.0.0.1:{port}", "s", *[b"x"] * 2000))
        until(lambda: api.partition("s").highWatermark == 1999, LIMIT_S)
    (log,) = (tmp_path / "data" / "partitions").iterdir()
    inspect = [sys.executable, "-m", "bascule.cli", "log", "inspect", str(log), "--batches", "--limit", "9999"]
    shown = subprocess.run([*inspect, "--output", "json"], check=True, capture_output=True, timeout=LIMIT_S)
    sizes = [batch["records"] for batch in json.loads(shown.stdout)["logs"][0]["batches"]]
    assert (sum(sizes), max(sizes)) == (2000, 5)


def test_group_timeouts_are_sent_to_members(tmp_path: Path) -> None:
    text = f"{ALONE}groups: {{consumer.timeout: 7s, coordinator.timeout: 9s}}\n"
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        api.create("s")
        joined = api.call("JoinConsumerGroup", groupId="g", consumerId="c", streams=["s"])
        assert (joined.consumerTimeout, joined.coordinatorTimeout) == (7_000_000_000, 9_000_000_000)


@pytest.mark.parametrize("flags", [("--embedded-nats",), ("-e",), ("-embedded-nats",), ()])
def test_an_embedded_server_listens_at_the_configured_address(tmp_path: Path, flags: tuple[str, ...]) -> None:
    port = free_port()
    text = f"{LISTEN}nats:\n  servers:\n    - nats://127.0.0.1:{port}\n" + ("" if flags else "  embedded: true\n")
    with liftbridge(tmp_path, text, *flags) as broker, Api(broker.address) as api:
        api.create("s", subject="s.*")
        asyncio.run(publish(f"nats://127.0.0.1:{port}", "s.a", b"plain"))
        until(lambda: api.partition("s").highWatermark == 0, LIMIT_S)
        assert values(api.read("s")) == [b"plain"]


async def publish(url: str, subject: str, *values: bytes, **options: Any) -> None:
    client = await nats.connect(url, **options)
    for value in values:
        await client.publish(subject, value)
    await client.flush()
    await client.close()


def test_a_numeric_password_is_used_as_text(tmp_path: Path) -> None:
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
        ("streams.segment.max.age: 10ms", "expected at least 1s"),
        ("activity.stream.publish.ack.policy: some", "expected none, leader or all"),
        ("clustering.raft.bootstrap.peers: [a, b]", "clusters are not supported yet"),
        ("nats.tls.cert: /nowhere.pem", "go together"),
    ],
)
def test_invalid_configurations_exit_with_2_and_the_reason(tmp_path: Path, text: str, said: str) -> None:
    code, words = said_by(tmp_path, f"{text}\n")
    assert code == 2
    assert said in words


WITHOUT_EFFECT = """
metadata.cache.max.age: 2m
logging: {recovery: true, raft: true, nats: true}
batch.max.time: 10ms
streams.compact.max.goroutines: 10
clustering:
  raft: {snapshot: {retain: 2, threshold: 8192}, cache.size: 512, bootstrap.seed: true, max.quorum.size: 3}
  replica: {max: {lag.time: 15s, leader.timeout: 15s, idle.wait: 10s}, fetch.timeout: 3s}
activity.stream.publish.ack.policy: leader
cursors.stream.replication.factor: -1
telemetry: {enabled: true, interval.seconds: 86400}
"""


def test_keys_without_effect_are_logged_once_each(tmp_path: Path) -> None:
    with liftbridge(tmp_path, f"{ALONE}{WITHOUT_EFFECT}") as broker, Api(broker.address) as api:
        api.create("s")
        assert api.publish("s", b"x", ackPolicy=ALL) == 0
    notes = [line for line in broker.log.splitlines() if line.startswith("liftbridge: ")]
    reasons = {note.split()[1]: note.split(" has no effect: ")[1] for note in notes}
    assert len(reasons) == len(notes)
    assert reasons == {name: key.idle for name, key in KEYS.items() if key.idle}
