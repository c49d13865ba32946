"""Encryption at rest in a real broker: no plain text on disk, kills, key rotation, missing keys, planted secrets."""

import base64
import contextlib
import signal
from pathlib import Path

import grpc
import grpc.aio
import pytest
from bascule.client import StreamOptions, connect
from bascule.errors import BrokerError

from tests.conformance.api import Api, Failed
from tests.integration.server.process import Process, call, launch, started

SECRET = b"planted-master-key-planted-key-1"
OTHER = b"another-master-key-of-32-bytes-2"
VALUE = b"planted value of a record"
ENCRYPTION, ENCRYPTION_FAILED = 4, 6
"""The error as an ack error, and as the code of an asynchronous ack."""


def key_file(directory: Path, name: str, secret: bytes) -> str:
    file = directory / name
    file.write_bytes(base64.b64encode(secret) + b"\n")
    return str(file)


def everything(directory: Path, *, without: frozenset[str]) -> bytes:
    """All bytes under `directory`, logs included."""
    files = (item for item in directory.rglob("*") if item.is_file() and item.name not in without)
    return b"".join(item.read_bytes() for item in files)


def publish(broker: Process, *values: bytes) -> None:
    with connect("liftbridge://" + broker.addresses["address"], timeout=10) as client:
        client.publish_many("s", values)


def read(broker: Process, count: int) -> list[bytes]:
    """All `count` values up to the end."""
    with connect("liftbridge://" + broker.addresses["address"], timeout=10) as client:
        values = [value or b"" for batch in client.subscribe("s", stop="latest") for value in batch.values]
    assert len(values) == count
    return values


def error_from_nats(api: Api, subject: str) -> tuple[int, int]:
    """Error and offset in the ack of a NATS message; repeated, because the broker may still be subscribing."""
    for _ in range(30):
        with contextlib.suppress(Failed):
            ack = api.call("PublishToSubject", 2.0, subject=subject, value=b"lost?").ack
            return ack.ackError, ack.offset
    raise AssertionError("no ack came")


async def create(broker: Process, name: str = "s") -> None:
    async with broker.channel() as channel:
        await call(channel, "CreateStream", name=name, subject=name, encryption={"value": True})


async def test_no_plain_text_or_key_is_on_disk_or_in_logs_and_a_kill_loses_nothing(tmp_path: Path) -> None:
    flags = {"encryption.keys": {"one": key_file(tmp_path, "one", SECRET)}}
    async with started(tmp_path, **flags) as broker:
        await create(broker)
        publish(broker, VALUE)
        assert read(broker, 1) == [VALUE]
        await broker.end(signal.SIGKILL)
    async with started(tmp_path, **flags) as broker:
        assert read(broker, 1) == [VALUE]
    found = everything(tmp_path, without=frozenset({"one"}))
    for planted in (VALUE, SECRET, base64.b64encode(SECRET), SECRET.hex().encode()):
        assert planted not in found


async def test_after_a_change_of_the_master_key_old_and_new_records_are_read_as_long_as_both_are_there(
    tmp_path: Path,
) -> None:
    one, two = key_file(tmp_path, "one", SECRET), key_file(tmp_path, "two", OTHER)
    async with started(tmp_path, **{"encryption.keys": {"one": one}}) as broker:
        await create(broker)
        publish(broker, b"old")
    both = {"encryption.keys": {"one": one, "two": two}, "encryption.current": "two"}
    async with started(tmp_path, **both) as broker:
        assert read(broker, 1) == [b"old"]
        publish(broker, b"new")
        assert read(broker, 2) == [b"old", b"new"]
    async with started(tmp_path, **{"encryption.keys": {"two": two}}) as broker:
        with pytest.raises(BrokerError, match='master key "one" is not configured'):
            read(broker, 1)
        publish(broker, b"newer")
    async with started(tmp_path, **both) as broker:
        assert read(broker, 3) == [b"old", b"new", b"newer"]


async def test_without_its_master_key_a_stream_is_unavailable_and_others_are_served(tmp_path: Path) -> None:
    flags = {"encryption.keys": {"one": key_file(tmp_path, "one", SECRET)}}
    async with started(tmp_path, **flags) as broker:
        await create(broker)
        publish(broker, VALUE)
    async with started(tmp_path) as broker:
        for values in ((b"lost?",), (b"lost?", b"and this?")):
            with pytest.raises(
                BrokerError, match='stream "s" accepts no records, because the broker lacks the key'
            ) as raised:
                publish(broker, *values)
            assert raised.value.code == "encryption_key_missing"
        with pytest.raises(BrokerError, match='master key "one" is not configured') as raised:
            read(broker, 1)
        assert raised.value.code == "encryption_key_missing"
        with Api(broker.addresses["address"]) as api:
            (answer,) = api.publish_async([{"stream": "s", "correlationId": "c"}])
            refused = answer.asyncError
            assert (refused.code, refused.message) == (ENCRYPTION_FAILED, "encryption failed on partition")
            assert error_from_nats(api, "s") == (ENCRYPTION, 0)
        async with broker.channel() as channel:
            await call(channel, "CreateStream", name="plain", subject="plain")
            with pytest.raises(grpc.aio.AioRpcError, match="invalid AES key size 0") as caught:
                await call(channel, "CreateStream", name="t", subject="t", encryption={"value": True})
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        with connect("liftbridge://" + broker.addresses["address"], timeout=10) as client:
            client.publish("plain", b"x")
            with pytest.raises(BrokerError, match="invalid AES key size 0") as raised:
                client.create_stream("t", options=StreamOptions(encryption=True))
            assert raised.value.code == "encryption_unavailable"
    async with started(tmp_path, **flags) as broker:
        assert read(broker, 1) == [VALUE]


@pytest.mark.parametrize("size", [16, 32])
async def test_the_variable_of_liftbridge_holds_a_master_key(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIFTBRIDGE_ENCRYPTION_KEY", SECRET[:size].decode())
    async with started(tmp_path) as broker:
        await create(broker)
        publish(broker, VALUE)
        assert read(broker, 1) == [VALUE]
        child = Path(f"/proc/{broker.addresses['nats_pid']}/environ").read_bytes()  # noqa: ASYNC240 - no disk behind it
        assert b"PATH=" in child
        assert b"LIFTBRIDGE_ENCRYPTION_KEY" not in child
    monkeypatch.setenv("LIFTBRIDGE_ENCRYPTION_KEY", SECRET[: size - 1].decode())
    async with started(tmp_path) as broker:
        with pytest.raises(grpc.aio.AioRpcError, match=f"invalid AES key size {size - 1}"):
            await create(broker, "t")
    assert SECRET[: size - 1] not in everything(tmp_path, without=frozenset())


async def test_a_key_file_that_cannot_be_used_ends_the_start_without_showing_it(tmp_path: Path) -> None:
    for secret in (SECRET[:20], b""):
        life = await launch(tmp_path, **{"encryption.keys": {"one": key_file(tmp_path, "one", secret)}})
        assert await life.process.wait() == 2
        said = life.log_file.read_text()
        assert f"invalid AES key size {len(secret)}" in said
        assert "configuration_invalid" in said
        assert "planted" not in said
