"""Sinks over two data planes in memory: what is asked of them, in which order, and what their reports do."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from bascule._seam import PartitionChange
from bascule.control.decide_sinks import HOUR_MS, KEPT_MS, UNDECIDED_MS
from bascule.control.sinks import CLOCK_S, Sinks
from bascule.errors import BrokerError
from bascule.metadata import State, StreamKey
from bascule.metadata.rejection import RejectedError
from bascule.metadata.sink_commands import OpenSink, PublishSink
from bascule.metadata.sinks import Attempt, Sink, TargetPartition, TargetStream, pack_winners

from tests.unit.control.rig import Rig, running, stream_request
from tests.unit.metadata.sink_rig import DIGEST, NEXT_RUN, OPEN, TOKEN, TOKEN_2


@dataclass
class Leader:
    """Leads some partitions, by incarnation: what it holds of the attempt that is published, each row with `digest`."""

    name: str
    rows: dict[int, int] = field(default_factory=dict)
    digest: str = DIGEST
    table: dict[int, dict[str, Any]] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)


@dataclass
class Leaders:
    """Two leaders behind one seam, as a cluster of two brokers shows itself to its controller."""

    parts: list[Leader] = field(default_factory=lambda: [Leader("a"), Leader("b")])
    idle: list[dict[str, Any]] = field(default_factory=list)
    confirmed: list[dict[str, Any]] = field(default_factory=list)
    before_confirm: Callable[[], None] = lambda: None

    def set_sinks(self, version: int, changes: dict[str, Any]) -> None:
        for part in self.parts:
            part.versions.append(version)
            part.table.update({item["id"]: item for item in changes["sinks"]})
            for sink in changes["removed"]:
                del part.table[sink]

    def confirm_stage(self, request: dict[str, Any]) -> dict[str, Any]:
        self.before_confirm()
        self.confirmed.append(request)
        held = {item: (rows, part.digest) for part in self.parts for item, rows in part.rows.items()}
        claimed = {item["incarnation"]: (item["rows"], item["digest"]) for item in request["targets"]}
        missing = [
            {"incarnation": item, "reason": f"{held.get(item, (0, ''))[0]} rows are staged, not those that are claimed"}
            for item, claim in claimed.items()
            if held.get(item) != claim
        ]
        missing += [
            {"incarnation": item, "reason": "2 pieces are staged here, and none is claimed"}
            for item in held
            if item not in claimed
        ]
        return {"missing": missing, "from_offsets": {str(item["incarnation"]): 100 for item in request["targets"]}}

    def staged(self) -> list[dict[str, Any]]:
        return self.idle

    def link_of(self, sink: Sink) -> dict[str, Any] | None:
        first, second = (part.table[sink.id]["link"] for part in self.parts)
        assert first == second
        return first


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


async def prepared(rig: Rig, leaders: Leaders, clock: Clock | None = None) -> Sinks:
    await rig.controller.create_stream(stream_request(partitions=2), 5.0)
    sinks = Sinks(rig.controller, leaders, clock) if clock else Sinks(rig.controller, leaders)
    sinks.start()
    for part, partition in zip(leaders.parts, partitions(rig.controller.state), strict=True):
        part.rows[partition.incarnation] = 10
    return sinks


def partitions(state: State) -> Any:
    return state.streams[StreamKey("default", "orders")].partitions


def publish(sink: Sink, state: State, epoch: int, token: str = TOKEN, rows: int = 10) -> PublishSink:
    targets = tuple(TargetPartition(item.number, item.incarnation, rows, DIGEST, 0) for item in partitions(state))
    return PublishSink(
        namespace=sink.namespace,
        name=sink.name,
        id=sink.id,
        generation=sink.generation,
        run_id=sink.run_id,
        epoch=epoch,
        token=token,
        winners=pack_winners((64, 192)),
        targets=(TargetStream("default", "orders", targets),),
        input_rows=2 * rows,
        input_digest=DIGEST,
    )


def report(sink: Sink, state: State, number: int, change: str = "linked", **fields: Any) -> PartitionChange:
    incarnation = partitions(state)[number].incarnation
    shown = json.dumps({"sink": sink.id, **fields}).encode()
    return PartitionChange(incarnation, number, change, "the piece is gone", shown)


async def link(sinks: Sinks, sink: Sink, ordinal: int = 1, *numbers: int) -> None:
    events = [
        report(sink, sinks.state, number, ordinal=ordinal, base_offset=100 + number) for number in numbers or (0, 1)
    ]
    await sinks.link(command for event in events if (command := sinks.on_partition(event)) is not None)


async def test_an_epoch_is_confirmed_by_every_leader_decided_and_finished_by_their_reports() -> None:
    async with running() as rig:
        leaders = Leaders()
        sinks = await prepared(rig, leaders)
        sink = await sinks.open(OPEN, 5.0)
        publishing = asyncio.create_task(sinks.publish(publish(sink, sinks.state, 0), 5.0))
        while leaders.link_of(sink) is None:  # noqa: ASYNC110 - the plane is a fake without events
            await asyncio.sleep(0.005)
        shown = leaders.link_of(sink)
        assert shown is not None
        assert shown["winners"] == (64, 192)
        assert [item["from_offset"] for item in shown["targets"]] == [100, 100]
        await link(sinks, sink, 1, 1)
        assert not publishing.done()
        await link(sinks, sink, 1, 0)
        done = await publishing
        assert done.is_finished
        assert done.last_epoch == 0
        assert leaders.link_of(sink) is None
        assert leaders.parts[0].versions == sorted(set(leaders.parts[0].versions))


async def test_nothing_is_decided_when_a_leader_holds_other_rows_than_claimed() -> None:
    async with running() as rig:
        leaders = Leaders()
        sinks = await prepared(rig, leaders)
        sink = await sinks.open(OPEN, 5.0)
        leaders.parts[1].rows.clear()
        with pytest.raises(BrokerError, match="orders/1: 0 rows are staged") as caught:
            await sinks.publish(publish(sink, sinks.state, 0), 5.0)
        assert caught.value.code == "sink_pieces_missing"
        assert sinks.sink("default", "s").last is None


async def test_nothing_is_decided_when_a_leader_holds_rows_with_another_digest() -> None:
    async with running() as rig:
        leaders = Leaders()
        sinks = await prepared(rig, leaders)
        sink = await sinks.open(OPEN, 5.0)
        leaders.parts[0].digest = "e" * 32
        with pytest.raises(BrokerError, match="partition orders/0: 10 rows are staged, not those that are claimed"):
            await sinks.publish(publish(sink, sinks.state, 0), 5.0)
        assert sinks.sink("default", "s").last is None


async def test_an_epoch_that_claims_nothing_is_not_decided_while_its_winners_hold_rows() -> None:
    """Tasks of which no answer arrived would lose their rows, although the epoch was published."""
    async with running() as rig:
        leaders = Leaders()
        sinks = await prepared(rig, leaders)
        sink = await sinks.open(OPEN, 5.0)
        nothing = replace(publish(sink, sinks.state, 0), targets=())
        with pytest.raises(BrokerError, match="partition orders/0: 2 pieces are staged here, and none") as caught:
            await sinks.publish(nothing, 5.0)
        assert caught.value.details["partitions"] == ["orders/0", "orders/1"]
        assert sinks.sink("default", "s").last is None
        for part in leaders.parts:
            part.rows.clear()
        assert (await sinks.publish(nothing, 5.0)).last_epoch == 0


async def test_a_repeated_call_that_overtakes_the_first_one_is_answered_as_that_one() -> None:
    """The first call is decided and linked while the second waits for the leaders, which have no pieces any more."""
    async with running() as rig:
        leaders = Leaders()
        sinks = await prepared(rig, leaders)
        sink = await sinks.open(OPEN, 5.0)
        command = publish(sink, sinks.state, 0)
        loop = asyncio.get_running_loop()

        async def decide() -> None:
            await sinks.controller.propose(command, 5.0)
            await link(sinks, sink)
            for part in leaders.parts:
                part.rows.clear()

        leaders.before_confirm = lambda: asyncio.run_coroutine_threadsafe(decide(), loop).result(5.0)
        done = await sinks.publish(command, 5.0)
        assert (done.last_epoch, done.is_finished) == (0, True)


async def test_a_repeated_epoch_that_is_accepted_with_other_rows_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as rig:
        sinks = await prepared(rig, Leaders())
        sink = await sinks.open(OPEN, 5.0)
        await sinks.publish(replace(publish(sink, sinks.state, 0), offsets_hash="1" * 64), 0.05)
        said: list[str] = []
        for run, changes in (
            ("1", {}),
            ("2", {"input_digest": "e" * 32}),
            ("3", {"input_rows": 21, "accept_difference": True}),
        ):
            again = await sinks.open(replace(OPEN, run_id=NEXT_RUN[:-1] + run), 5.0)
            repeated = replace(
                publish(again, sinks.state, 0, TOKEN_2), winners=(), targets=(), offsets_hash="1" * 64, **changes
            )
            caplog.clear()
            with caplog.at_level(30, "bascule.control.sinks"):
                await sinks.publish(repeated, 0.05)
            said.append(";".join(record.getMessage() for record in caplog.records))
        accepted = ": the repetition was accepted, the rows of the first time stay"
        assert said == [
            "",
            f"epoch 0 has other rows than it was published with, from the same offsets{accepted}",
            f"epoch 0 was published with 20 rows and has 21 now{accepted}",
        ]


async def test_pieces_that_are_missing_because_the_attempt_is_void_are_refused_for_that_reason() -> None:
    async with running() as rig:
        leaders = Leaders()
        sinks = await prepared(rig, leaders)
        sink = await sinks.open(OPEN, 5.0)
        for part in leaders.parts:
            part.rows.clear()
        given_up = publish(sink, sinks.state, 0)
        await sinks.expire(sink, Attempt(0, TOKEN, sink.generation), 5.0)
        with pytest.raises(RejectedError) as expired:
            await sinks.publish(given_up, 5.0)
        await sinks.open(replace(OPEN, run_id=NEXT_RUN), 5.0)
        with pytest.raises(RejectedError) as fenced:
            await sinks.publish(publish(sink, sinks.state, 1), 5.0)
        assert [item.value.rejection.code for item in (expired, fenced)] == ["sink_expired", "sink_fenced"]


async def test_the_answer_comes_at_the_deadline_although_a_partition_is_not_linked() -> None:
    async with running() as rig:
        sinks = await prepared(rig, Leaders())
        sink = await sinks.open(OPEN, 5.0)
        done = await sinks.publish(publish(sink, sinks.state, 0), 0.05)
        assert done.last_epoch == 0
        assert not done.is_finished


async def test_a_repeated_call_needs_no_pieces() -> None:
    async with running() as rig:
        leaders = Leaders()
        sinks = await prepared(rig, leaders)
        sink = await sinks.open(OPEN, 5.0)
        command = publish(sink, sinks.state, 0)
        await sinks.publish(command, 0.05)
        await link(sinks, sink)
        for part in leaders.parts:
            part.rows.clear()
        assert (await sinks.publish(command, 5.0)).is_finished
        assert len(leaders.confirmed) == 1


async def test_a_repeated_epoch_of_a_new_run_is_verified_without_pieces() -> None:
    async with running() as rig:
        leaders = Leaders()
        sinks = await prepared(rig, leaders)
        sink = await sinks.open(OPEN, 5.0)
        await sinks.publish(publish(sink, sinks.state, 0), 0.05)
        again = await sinks.open(replace(OPEN, run_id=NEXT_RUN), 5.0)
        repeated = replace(publish(again, sinks.state, 0, TOKEN_2), winners=(), targets=())
        with pytest.raises(RejectedError, match="was published with 20 rows and has 21 now"):
            await sinks.publish(replace(repeated, input_rows=21), 0.05)
        await sinks.publish(repeated, 0.05)
        await link(sinks, sink)
        assert sinks.sink("default", "s").is_finished
        assert len(leaders.confirmed) == 1


async def test_the_next_epoch_waits_and_then_names_the_partition_that_lags() -> None:
    async with running() as rig:
        leaders = Leaders()
        sinks = await prepared(rig, leaders)
        sink = await sinks.open(OPEN, 5.0)
        await sinks.publish(publish(sink, sinks.state, 0), 0.05)
        await link(sinks, sink, 1, 0)
        assert sinks.on_partition(report(sink, sinks.state, 1, "link_blocked", ordinal=1)) is None
        with pytest.raises(RejectedError, match="orders/1 on broker a: the piece is gone") as caught:
            await sinks.publish(publish(sink, sinks.state, 1), 0.1)
        assert caught.value.rejection.code == "sink_busy"
        waiting = asyncio.create_task(sinks.publish(publish(sink, sinks.state, 1), 5.0))
        await asyncio.sleep(0.05)
        await link(sinks, sink, 1, 1)
        await asyncio.sleep(0.05)
        await link(sinks, sink, 2)
        assert (await waiting).last_epoch == 1


async def test_a_run_that_is_fenced_between_confirmation_and_entry_publishes_nothing() -> None:
    async with running() as rig:
        leaders = Leaders()
        sinks = await prepared(rig, leaders)
        sink = await sinks.open(OPEN, 5.0)
        loop = asyncio.get_running_loop()

        def fence() -> None:
            newer = asyncio.run_coroutine_threadsafe(sinks.open(replace(OPEN, run_id=NEXT_RUN), 5.0), loop)
            newer.result(5.0)

        leaders.before_confirm = fence
        with pytest.raises(RejectedError) as caught:
            await sinks.publish(publish(sink, sinks.state, 0), 5.0)
        assert caught.value.rejection.code == "sink_fenced"
        assert sinks.sink("default", "s").last is None


async def test_reports_are_entered_once() -> None:
    async with running() as rig:
        sinks = await prepared(rig, Leaders())
        sink = await sinks.open(OPEN, 5.0)
        await sinks.publish(publish(sink, sinks.state, 0), 0.05)
        event = report(sink, sinks.state, 0, ordinal=1, base_offset=7)
        command = sinks.on_partition(event)
        assert command is not None
        await sinks.link([command])
        assert sinks.on_partition(event) is None
        assert sinks.on_partition(report(sink, sinks.state, 1, ordinal=2, base_offset=7)) is None
        assert sinks.on_partition(PartitionChange(1, 0, "recovered", "text", b"{}")) is None


async def test_an_attempt_expires_when_every_leader_was_idle_and_nobody_renewed_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as rig:
        leaders, clock = Leaders(), Clock()
        sinks = await prepared(rig, leaders, clock)
        sink = await sinks.open(OPEN, 5.0)
        staged = {"sink": sink.id, "generation": sink.generation, "epoch": 0, "token": TOKEN, "bytes": 1}
        leaders.idle = [{**staged, "idle_ms": HOUR_MS}, {**staged, "idle_ms": 5}]
        await sinks.round()
        assert not sinks.sink("default", "s").expired
        leaders.idle = [{**staged, "idle_ms": HOUR_MS}, {**staged, "idle_ms": HOUR_MS}]
        sinks.renew(sink, Attempt(0, TOKEN, sink.generation))
        await sinks.round()
        assert not sinks.sink("default", "s").expired
        clock.now_s += HOUR_MS / 1000
        await sinks.round()
        assert sinks.sink("default", "s").expired == (Attempt(0, TOKEN, sink.generation),)
        await sinks.round()
        (record,) = (item for item in caplog.records if item.name == "bascule.control.sinks")
        assert record.getMessage().startswith("an attempt of epoch 0 expired: nobody sent rows of it")


async def test_records_of_batch_writes_go_by_time_and_named_sinks_stay() -> None:
    async with running() as rig:
        clock = Clock()
        sinks = await prepared(rig, Leaders(), clock)
        await sinks.open(OPEN, 5.0)
        once = await sinks.open(OpenSink("default", "once", "", "batch", "hour", "", "r1"), 5.0)
        await sinks.publish(publish(once, sinks.state, 0), 0.05)
        clock.now_s += max(CLOCK_S, KEPT_MS["hour"] / 1000)
        await sinks.round()
        assert len(sinks.state.sinks) == 2, "what is to be linked keeps its record"
        await link(sinks, once)
        await sinks.round()
        assert [key.name for key in sinks.state.sinks] == ["s"]


@pytest.mark.parametrize("kept_by", ["pieces", "renewals"])
async def test_a_batch_write_may_take_longer_than_its_record_is_kept(kept_by: str) -> None:
    async with running() as rig:
        leaders, clock = Leaders(), Clock()
        sinks = await prepared(rig, leaders, clock)
        once = await sinks.open(OpenSink("default", "once", "", "batch", "hour", "", "r1"), 5.0)
        attempt = Attempt(0, TOKEN, once.generation)
        if kept_by == "pieces":
            leaders.idle = [
                {"sink": once.id, "generation": once.generation, "epoch": 0, "token": TOKEN, "bytes": 1, "idle_ms": 5}
            ]
        for _ in range(30):
            clock.now_s += HOUR_MS / 1000
            if kept_by == "renewals":
                sinks.renew(once, attempt)
            await sinks.round()
        assert sinks.sink("default", "once").id == once.id
        await sinks.publish(publish(once, sinks.state, 0), 0.05)
        await link(sinks, once)
        clock.now_s += KEPT_MS["hour"] / 1000
        leaders.idle = []
        await sinks.round()
        assert not sinks.state.sinks, "one hour after its result"


async def test_a_batch_write_that_nobody_staged_to_or_renewed_goes_after_a_day() -> None:
    async with running() as rig:
        clock = Clock()
        sinks = await prepared(rig, Leaders(), clock)
        await sinks.open(OpenSink("default", "once", "", "batch", "hour", "", "r1"), 5.0)
        clock.now_s += UNDECIDED_MS / 1000 - CLOCK_S
        await sinks.round()
        assert sinks.state.sinks
        disk = rig.plane.disk
    async with running(disk) as rig:
        clock = Clock()
        again = Sinks(rig.controller, Leaders(), clock)
        again.start()
        clock.now_s += CLOCK_S
        await again.round()
        assert again.state.sinks, "tasks that work may not have renewed it since this start"
        clock.now_s += KEPT_MS["hour"] / 1000
        await again.round()
        assert not again.state.sinks


async def test_one_client_has_a_share_of_the_sinks() -> None:
    async with running() as rig:
        sinks = Sinks(rig.controller, Leaders(), most_of_owner=2)
        sinks.start()
        mine = OpenSink("default", "1", "ada", "batch", "hour", "", "r1")
        for name in ("1", "2", "1"):
            await sinks.open(replace(mine, name=name, run_id=f"r{name}"), 5.0)
        with pytest.raises(RejectedError, match="client ada has 2 batch writes of the last hour in namespace default"):
            await sinks.open(replace(mine, name="3"), 5.0)
        for other in ({"owner": "bob"}, {"lifetime": "month"}, {"namespace": "other"}, *({"owner": ""},) * 3):
            name = f"{len(sinks.state.sinks)}-more"
            await sinks.open(replace(mine, name=name, **other), 5.0)


async def test_a_restart_shows_the_data_plane_what_is_to_be_linked() -> None:
    async with running() as rig:
        sinks = await prepared(rig, Leaders())
        sink = await sinks.open(OPEN, 5.0)
        await sinks.publish(publish(sink, sinks.state, 0), 0.05)
        disk = rig.plane.disk
    async with running(disk) as rig:
        leaders = Leaders()
        again = Sinks(rig.controller, leaders)
        again.start()
        shown = leaders.link_of(again.sink("default", "s"))
        assert shown is not None
        assert len(shown["targets"]) == 2
