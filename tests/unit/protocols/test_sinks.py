"""The methods of those who write to sinks: what is refused, what answers show, and who may call them."""

import asyncio
from typing import Any

import pytest
from bascule.errors import AccessError
from bascule.protocols.grpc_status import Status, StatusError

from tests.unit.control.rig import running
from tests.unit.metadata.sink_rig import NEXT_RUN, OTHER, QUERY, RUN, TOKEN_2
from tests.unit.protocols.sink_service import OPEN, Service, opening, serving


async def test_an_open_answers_the_record_and_the_streams_and_the_last_epoch_once_there_is_one(
    service: Service,
) -> None:
    opened = await service.ask("OpenSink", **opening(streams=["payments", "orders", "payments"]))
    sink = service.sink()
    assert (opened.id, opened.generation) == (sink.id, sink.generation)
    assert [(item.name, item.partitions, item.max_record_bytes) for item in opened.streams] == [
        ("payments", 1, 1 << 20), ("orders", 2, 1 << 20),
    ]  # fmt: skip
    assert not opened.HasField("last_epoch")
    assert (sink.owner, sink.kind, sink.lifetime, sink.query_id, sink.run_id) == ("ada", "stream", "kept", QUERY, RUN)
    assert (await service.ask("OpenSink", **opening(streams=[]))).generation == opened.generation
    await service.ask("PublishSink", **service.epoch(0))
    again = await service.ask("OpenSink", **opening(run_id=NEXT_RUN))
    assert again.HasField("last_epoch")
    assert (again.id, again.last_epoch) == (opened.id, 0)
    assert again.generation > opened.generation


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"kind": "table"}, Status.INVALID_ARGUMENT, "kind 'table' is not one of stream, foreach, batch"),
        ({"kind": ""}, Status.INVALID_ARGUMENT, "kind '' is not one of stream, foreach, batch"),
        ({"lifetime": "year"}, Status.INVALID_ARGUMENT, "lifetime 'year' not one of kept, month, hour"),
        ({"query_id": "1"}, Status.INVALID_ARGUMENT, "query_id '1' is not a UUID"),
        ({"query_id": ""}, Status.INVALID_ARGUMENT, "query_id '' is not a UUID"),
        ({"run_id": RUN[:-1]}, Status.INVALID_ARGUMENT, f"run_id '{RUN[:-1]}' is not a UUID"),
        ({"run_id": ""}, Status.INVALID_ARGUMENT, "run_id '' is not a UUID"),
        ({"take_over": "x" * 200}, Status.INVALID_ARGUMENT, f"take_over '{'x' * 80}' is not a UUID"),
        ({"kind": "batch"}, Status.INVALID_ARGUMENT, f"a batch write has query '{QUERY}'"),
        ({"name": ""}, Status.INVALID_ARGUMENT, "the name of a sink is empty"),
        ({"name": "a" * 256}, Status.INVALID_ARGUMENT, "255"),
        (
            {"streams": [f"x{n}" for n in range(1001)]},
            Status.INVALID_ARGUMENT,
            "streams has 1001 entries, at most 1000",
        ),
        ({"streams": ["__cursors"]}, Status.INVALID_ARGUMENT, "stream __cursors is reserved"),
        ({"streams": ["orders", "gone"]}, Status.NOT_FOUND, "stream default/gone does not exist"),
        ({"namespace": "other", "streams": ["payments"]}, Status.NOT_FOUND, "stream other/payments does not exist"),
    ],
)
async def test_an_open_that_cannot_be_meant_is_refused_with_the_value(
    service: Service, fields: dict[str, Any], status: Status, said: str
) -> None:
    found, _, text = await service.refused("OpenSink", **opening(**fields))
    assert found is status
    assert said in text


async def test_writers_learn_what_streams_accept(service: Service) -> None:
    found = await service.ask("FetchSinkStreams", streams=["gone", "orders", "__cursors", "orders"])
    assert [(item.name, item.partitions, item.max_record_bytes) for item in found.streams] == [("orders", 2, 1 << 20)]
    for names, said in ([], "streams is empty"), ([f"x{n}" for n in range(1001)], "streams has 1001 entries"):
        status, _, text = await service.refused("FetchSinkStreams", streams=names)
        assert status is Status.INVALID_ARGUMENT
        assert said in text


async def test_identifiers_are_stored_in_their_usual_form(service: Service) -> None:
    await service.ask("OpenSink", **opening(query_id=QUERY.upper(), run_id="{" + RUN + "}"))
    assert (service.sink().query_id, service.sink().run_id) == (QUERY, RUN)


async def test_another_query_needs_to_take_over(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    await service.ask("PublishSink", **service.epoch(0))
    other = opening(query_id=OTHER, run_id=NEXT_RUN)
    status, code, text = await service.refused("OpenSink", **other)
    assert (status, code) == (Status.FAILED_PRECONDITION, "sink_conflict")
    assert f"takeOver={QUERY}" in text
    taken = await service.ask("OpenSink", **other, take_over=QUERY)
    assert not taken.HasField("last_epoch"), "epochs of another query are not those of this one"


@pytest.mark.parametrize("method", ["OpenSink", "PublishSink"])
async def test_only_the_owner_writes(service: Service, method: str) -> None:
    await service.ask("OpenSink", **OPEN)
    fields = {"OpenSink": opening(run_id=NEXT_RUN), "PublishSink": service.epoch()}[method]
    before = service.sink()
    for client in ("eve", None):
        with pytest.raises((AccessError, StatusError)) as caught:
            await service.ask(method, client, **fields)
        assert caught.value.code == "sink_not_owned"  # pyright: ignore[reportAttributeAccessIssue]
        assert str(caught.value).startswith(
            "sink s belongs to ada: write as that client, or have an administrator give"
        )
    assert service.sink() == before
    await service.ask(method, "ada", **fields)


@pytest.mark.parametrize("method", ["PublishSink", "AbortSink", "RenewSink"])
async def test_a_call_that_names_no_stream_does_not_reveal_a_sink_of_another_client(
    service: Service, method: str
) -> None:
    await service.ask("OpenSink", **OPEN)
    fields = service.epoch(targets=[]) if method == "PublishSink" else service.attempt()
    absent = await service.refused(method, "eve", **{**fields, "name": "t"})
    assert absent[:2] == (Status.NOT_FOUND, "sink_not_found")
    for client in ("eve", None):
        status, code, text = await service.refused(method, client, **fields)
        assert (status, code, text.replace("sink s ", "sink t ")) == absent


async def test_a_sink_of_a_client_without_a_name_is_not_for_clients_with_one(service: Service) -> None:
    await service.ask("OpenSink", None, **OPEN)
    with pytest.raises(AccessError, match="sink s belongs to a client without a certificate"):
        await service.ask("PublishSink", "ada", **service.epoch())
    await service.ask("PublishSink", None, **service.epoch())


async def test_a_write_needs_the_right_to_publish_to_every_target() -> None:
    async with running() as rig:
        service = await serving(rig, ("ada", "Publish", "orders"), ("bob", "Publish", "orders"))
        both = opening(streams=["orders", "payments"])
        with pytest.raises(AccessError, match="not authorized to call Publish on resource payments"):
            await service.ask("OpenSink", **both)
        assert not service.state.sinks
        await service.ask("OpenSink", **OPEN)
        epoch = service.epoch(targets=service.targets("orders", "payments"))
        with pytest.raises(AccessError, match="not authorized to call Publish on resource payments"):
            await service.ask("PublishSink", **epoch)
        with pytest.raises(AccessError, match="sink s belongs to ada"):
            await service.ask("PublishSink", "bob", **service.epoch())
        assert service.sink().last is None
        await service.ask("PublishSink", **service.epoch())
        assert service.sink().last_epoch == 0


async def test_a_write_that_names_no_stream_needs_the_right_to_publish_to_all() -> None:
    async with running() as rig:
        service = await serving(rig, ("ada", "Publish", "orders"), ("bob", "Publish", "*"))
        with pytest.raises(AccessError, match=r"call Publish on resource \*"):
            await service.ask("OpenSink", "ada", **opening(streams=[]))
        await service.ask("OpenSink", "bob", **opening(streams=[]))


async def test_rights_are_those_of_the_namespace() -> None:
    async with running() as rig:
        service = await serving(
            rig, ("ada", "Publish", "orders"), ("ada", "ManageSinks", "s"), ("eve", "Publish", "other/orders"),
            ("eve", "ManageSinks", "other/s"),
        )  # fmt: skip
        with pytest.raises(AccessError, match="resource other/orders"):
            await service.ask("OpenSink", "ada", **OPEN, namespace="other")
        await service.ask("OpenSink", "eve", **OPEN, namespace="other")
        with pytest.raises(AccessError, match="resource other/orders"):
            await service.ask("PublishSink", "ada", **service.epoch(namespace="other"))
        for method in ("DeleteSink", "SkipSink", "SetSinkQuota", "SetSinkOwner"):
            with pytest.raises(AccessError, match="call ManageSinks on resource other/s"):
                await service.ask(method, "ada", name="s", namespace="other")
        await service.ask("SetSinkQuota", "eve", name="s", namespace="other", quota_bytes=5)
        with pytest.raises(AccessError, match=r"call ManageSinks on resource \*"):
            await service.ask("FetchSinks", "eve")


async def test_a_sink_of_another_namespace_is_another_sink(service: Service) -> None:
    await service.ask("OpenSink", **OPEN, namespace="other")
    assert not (await service.ask("FetchSinks")).sinks
    await service.ask("PublishSink", **service.epoch(namespace="other"))
    (shown,) = (await service.ask("FetchSinks", namespace="other")).sinks
    assert [(item.stream, item.partition) for item in shown.partitions] == [("orders", 0)]
    status, code, text = await service.refused("DeleteSink", name="s")
    assert (status, code) == (Status.NOT_FOUND, "sink_not_found")
    assert text == "sink s does not exist in namespace default: see `bascule sink list`"
    status, code, _ = await service.refused("DeleteSink", name="s", namespace="other")
    assert (status, code) == (Status.UNAVAILABLE, "sink_busy")


async def test_a_publish_shows_what_is_decided_and_then_where_it_is(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    decided = await service.ask("PublishSink", **service.epoch())
    assert not decided.finished
    assert [(item.stream, item.partition, item.rows, item.phase) for item in decided.partitions] == [
        ("orders", 0, 10, "decided"), ("orders", 1, 10, "decided"),
    ]  # fmt: skip
    assert not any(item.HasField("base_offset") for item in decided.partitions)
    await service.link(1)
    half = await service.ask("PublishSink", **service.epoch())
    assert [item.phase for item in half.partitions] == ["decided", "linked"]
    assert [item.HasField("base_offset") for item in half.partitions] == [False, True]
    await service.link(0)
    done = await service.ask("PublishSink", **service.epoch())
    assert done.finished
    assert [item.base_offset for item in done.partitions] == [100, 101]


async def test_a_publish_without_rows_is_finished_at_once(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    done = await service.ask("PublishSink", **service.epoch(targets=[], winners=[], input_rows=0))
    assert done.finished
    assert not done.partitions
    assert service.sink().last_epoch == 0


async def test_targets_may_come_in_any_order(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    epoch = service.epoch(targets=service.targets("payments", "orders")[::-1])
    await service.ask("PublishSink", **epoch)
    last = service.sink().last
    assert last is not None
    assert [(item.name, [part.number for part in item.partitions]) for item in last.targets] == [
        ("orders", [0, 1]), ("payments", [0]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"timeout_ms": 0}, "timeout_ms 0 is not between 1 and 600000"),
        ({"timeout_ms": 600_001}, "timeout_ms 600001 is not between 1 and 600000"),
        ({"winners": [0] * 10_001}, "winners has 10001 entries, at most 10000 are accepted"),
        ({"winners": [64, -1]}, "or one is below 0"),
        ({"targets": [{"stream": "orders"}] * 1001}, "targets has 1001 entries, at most 1000 are accepted"),
        ({"targets": [{"stream": "__cursors", "rows": 1}]}, "stream __cursors is reserved: the broker alone writes"),
        ({"epoch": -1}, "epoch -1 is below 0"),
        ({"token": "x"}, "token 'x' is not 32 hexadecimal digits"),
        ({"input_digest": "x"}, "digest 'x' of the input"),
        ({"offsets_hash": "x"}, "hash 'x' of the offsets"),
    ],
)
async def test_a_publish_out_of_bounds_decides_nothing(service: Service, fields: dict[str, Any], said: str) -> None:
    await service.ask("OpenSink", **OPEN)
    status, _, text = await service.refused("PublishSink", **service.epoch(**fields))
    assert status is Status.INVALID_ARGUMENT
    assert said in text


async def test_a_target_that_is_gone_is_named(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    (first, second) = service.targets()
    for changed, wanted in (
        (
            {"incarnation": 1},
            (Status.FAILED_PRECONDITION, "incarnation_changed", "partition 1 of stream default/orders"),
        ),
        ({"partition": 7}, (Status.NOT_FOUND, "partition_not_found", "partition 7 of stream default/orders")),
        ({"stream": "gone"}, (Status.NOT_FOUND, "stream_not_found", "stream default/gone does not exist")),
        ({"rows": 0}, (Status.INVALID_ARGUMENT, None, "partition 1 of stream default/orders: 0 rows")),
        ({"partition": 0}, (Status.INVALID_ARGUMENT, None, "repeat")),
    ):
        status, code, text = await service.refused(
            "PublishSink", **service.epoch(targets=[first, {**second, **changed}])
        )
        assert (status, code) == wanted[:2]
        assert wanted[2] in text


async def test_a_replaced_run_publishes_nothing(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    old = service.epoch()
    await service.ask("OpenSink", **opening(run_id=NEXT_RUN))
    status, code, text = await service.refused("PublishSink", **old)
    assert (status, code) == (Status.FAILED_PRECONDITION, "sink_fenced")
    assert NEXT_RUN in text


async def test_a_gap_is_accepted_only_when_its_epoch_is_named(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    await service.ask("PublishSink", **service.epoch(0))
    await service.link()
    for gap in (None, 0, 4):
        status, code, text = await service.refused("PublishSink", **service.epoch(5, accept_gap=gap))
        assert (status, code) == (Status.FAILED_PRECONDITION, "sink_epoch")
        assert "acceptGap=5" in text
    await service.ask("PublishSink", **service.epoch(5, accept_gap=5))
    assert service.sink().last_epoch == 5


async def test_a_repeated_epoch_with_other_rows_needs_consent(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    await service.ask("PublishSink", **service.epoch())
    await service.link()
    await service.ask("OpenSink", **opening(run_id=NEXT_RUN))
    other = service.epoch(token=TOKEN_2, winners=[], targets=[], input_rows=21)
    status, code, text = await service.refused("PublishSink", **other)
    assert (status, code) == (Status.FAILED_PRECONDITION, "sink_replay_differs")
    assert "20 rows and has 21 now" in text
    assert (await service.ask("PublishSink", **other, accept_difference=True)).finished


async def test_the_answer_comes_before_the_deadline_of_the_caller(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    async with asyncio.timeout(30):
        decided = await service.ask("PublishSink", timeout_s=2.1, **service.epoch(timeout_ms=600_000))
    assert not decided.finished
    async with asyncio.timeout(30):
        again = await service.ask("PublishSink", timeout_s=0.5, **service.epoch(timeout_ms=600_000))
    assert not again.finished


async def test_an_aborted_attempt_is_not_published_and_a_decided_one_not_aborted(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    await service.ask("AbortSink", **service.attempt())
    status, code, _ = await service.refused("PublishSink", **service.epoch())
    assert (status, code) == (Status.FAILED_PRECONDITION, "sink_expired")
    await service.ask("PublishSink", **service.epoch(token=TOKEN_2))
    status, code, text = await service.refused("AbortSink", **{**service.attempt(), "token": TOKEN_2})
    assert (status, code, text) == (Status.FAILED_PRECONDITION, "sink_published", "epoch 0 of sink s is published")
