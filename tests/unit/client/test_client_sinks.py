"""Sinks over a fake native core: what is sent, and what answers become."""

from typing import Any

import pytest
from bascule import Sink, SinkPartition, SinkSkip
from bascule._admin_pb import message
from bascule.client import AsyncClient
from bascule.errors import StateError, UnavailableError, UsageError

from tests.unit.client.fakes import FakeNative, client_of, failure


def sent(native: FakeNative, method: str) -> Any:
    ((found, body),) = native.requests
    native.requests.clear()
    assert found == method
    return message(f"{method}Request").FromString(body)


def answer(method: str, **fields: Any) -> bytes:
    return message(f"{method}Response")(**fields).SerializeToString()


def test_a_sink_has_every_field_of_the_answer() -> None:
    native = FakeNative()
    partitions = [
        {"stream": "orders", "partition": 0, "rows": 5, "phase": "linked", "base_offset": 0},
        {"stream": "orders", "partition": 1, "rows": 6, "phase": "decided", "blocked": "the disk is full"},
    ]
    fields: dict[str, Any] = {
        "name": "s", "owner": "ada", "kind": "stream", "lifetime": "kept", "id": 7, "generation": 9, "query_id": "q",
        "run_id": "r", "last_epoch": 0, "input_rows": 11, "finished": False, "staged_bytes": 4096, "quota_bytes": 1,
        "skipped_rows": 8,
    }  # fmt: skip
    skip: dict[str, Any] = {"epoch": 3, "stream": "orders", "partition": 1, "rows": 8, "by": "oncall"}
    native.answers = [answer("FetchSinks", sinks=[{**fields, "partitions": partitions, "last_skip": skip}])]
    found = client_of(native).sink("s", namespace="other")
    assert found == Sink(
        **fields,
        last_skip=SinkSkip(**skip),
        partitions=(
            SinkPartition("orders", 0, 5, "linked", 0, ""),
            SinkPartition("orders", 1, 6, "decided", None, "the disk is full"),
        ),
    )
    request = sent(native, "FetchSinks")
    assert (request.namespace, list(request.names)) == ("other", ["s"])


def test_a_sink_without_an_epoch_has_none() -> None:
    native = FakeNative()
    native.answers = [answer("FetchSinks", sinks=[{"name": "s", "finished": True}])]
    found = client_of(native).sink("s")
    assert (found.last_epoch, found.last_skip) == (None, None)


def test_sinks_are_ordered_by_name() -> None:
    native = FakeNative()
    native.answers = [answer("FetchSinks", sinks=[{"name": "b"}, {"name": "a"}])]
    assert [sink.name for sink in client_of(native).sinks()] == ["a", "b"]
    request = sent(native, "FetchSinks")
    assert (request.namespace, list(request.names)) == ("default", [])


@pytest.mark.parametrize(
    ("names", "said"),
    [(["s"] * 1001, "names has 1001 entries, at most 1000 are accepted"), ("orders", "names is the text 'orders'")],
)
def test_names_out_of_bounds_are_refused_before_a_call(names: Any, said: str) -> None:
    native = FakeNative()
    with pytest.raises(UsageError, match=said):
        client_of(native).sinks(names)
    assert not native.requests


@pytest.mark.parametrize("epoch", [None, 0, 41])
def test_a_deletion_returns_the_last_epoch(epoch: int | None) -> None:
    native = FakeNative()
    native.answers = [answer("DeleteSink", last_epoch=epoch)]
    assert client_of(native).delete_sink("s", dry_run=True) == epoch
    request = sent(native, "DeleteSink")
    assert (request.name, request.namespace, request.dry_run) == ("s", "default", True)
    native.answers = [failure("sink_not_found")]
    with pytest.raises(StateError):
        client_of(native).delete_sink("s")
    assert not sent(native, "DeleteSink").dry_run


def test_a_sink_that_is_not_linked_is_not_deleted_and_not_asked_again() -> None:
    native = FakeNative()
    native.answers = [failure("sink_busy", "an epoch is decided and not linked"), answer("DeleteSink")]
    with pytest.raises(UnavailableError, match="an epoch is decided and not linked") as caught:
        client_of(native).delete_sink("s")
    assert caught.value.code == "sink_busy"
    assert len(native.requests) == 1


def test_a_skip_names_its_partition_also_the_first_one() -> None:
    native = FakeNative()
    native.answers = [answer("SkipSink", rows=5), answer("SkipSink", rows=6)]
    assert client_of(native).skip_sink("s", "orders", 0, dry_run=True) == 5
    request = sent(native, "SkipSink")
    assert request.HasField("partition")
    assert (request.name, request.stream, request.partition, request.dry_run) == ("s", "orders", 0, True)
    assert client_of(native).skip_sink("s", "orders", 2, namespace="other") == 6
    request = sent(native, "SkipSink")
    assert (request.namespace, request.partition, request.dry_run) == ("other", 2, False)
    for number in (-1, 1 << 31):
        with pytest.raises(UsageError, match=f"partition is {number}"):
            client_of(native).skip_sink("s", "orders", number)


@pytest.mark.parametrize("owner", ["ada", ""])
def test_an_owner_is_sent_also_the_empty_one(owner: str) -> None:
    native = FakeNative()
    native.answers = [answer("SetSinkOwner", before="bob")] * 2
    for dry_run in (True, False):
        assert client_of(native).set_sink_owner("s", owner, namespace="other", dry_run=dry_run) == "bob"
        request = sent(native, "SetSinkOwner")
        assert request.HasField("owner")
        assert (request.name, request.namespace, request.owner, request.dry_run) == ("s", "other", owner, dry_run)


def test_a_quota_is_sent_with_its_bounds() -> None:
    native = FakeNative()
    for size in (0, (1 << 63) - 1):
        client_of(native).set_sink_quota("s", size)
        request = sent(native, "SetSinkQuota")
        assert (request.name, request.namespace, request.quota_bytes) == ("s", "default", size)
    for size in (-1, 1 << 63):
        with pytest.raises(UsageError, match=f"quota_bytes is {size}: it must be from 0 to 9223372036854775807"):
            client_of(native).set_sink_quota("s", size)
    assert not native.requests


async def test_the_asynchronous_client_has_the_same_calls() -> None:
    native = FakeNative()
    native.answers = [answer("FetchSinks", sinks=[{"name": "s"}]), answer("SkipSink", rows=5)]
    async with AsyncClient(client_of(native)) as client:
        assert [sink.name for sink in await client.sinks()] == ["s"]
        assert await client.skip_sink("s", "orders", 0) == 5
