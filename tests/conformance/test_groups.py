"""Consumer groups (liftbridge §3.15), and the fencing of their subscriptions (liftbridge §3.5)."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from bascule.testing import TestBroker, broker

from tests.conformance.api import OFFSET, Api, Failed, failed
from tests.waiting import until

TIMEOUT_S = 5.0


@pytest.fixture(scope="module")
def patient() -> Iterator[TestBroker]:
    """A broker with a consumer timeout that is longer than every test."""
    settings = {
        "groups.consumer_timeout_ms": 600_000,
        "groups.coordinator_timeout_ms": 500_000,
        "cursors.partitions": 1,
    }
    with broker(settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
def hasty() -> Iterator[TestBroker]:
    """A broker with a short consumer timeout."""
    with broker(settings={"groups.consumer_timeout_ms": int(TIMEOUT_S * 1000)}) as started:
        yield started


@pytest.fixture
def api(patient: TestBroker) -> Iterator[Api]:
    with Api(patient.address) as it:
        yield it


def join(api: Api, group: str, consumer: str, *streams: str) -> Any:
    return api.call("JoinConsumerGroup", groupId=group, consumerId=consumer, streams=streams)


def leave(api: Api, group: str, consumer: str) -> None:
    api.call("LeaveConsumerGroup", groupId=group, consumerId=consumer)


def group_of(api: Api, group: str) -> Any:
    (found,) = api.call("FetchMetadata", streams=["-"], groups=[group]).groupMetadata
    return found


def assigned(api: Api, group: str, consumer: str, epoch: int | None = None) -> dict[str, list[int]]:
    now = group_of(api, group).epoch if epoch is None else epoch
    answer = api.call("FetchConsumerGroupAssignments", groupId=group, consumerId=consumer, epoch=now)
    assert answer.epoch == now
    return {item.stream: list(item.partitions) for item in answer.assignments}


def test_the_worked_example_over_the_wire(api: Api, stream: str) -> None:
    orders, logs, audit = (f"{stream}-{name}" for name in ("orders", "logs", "audit"))
    for name, count in ((orders, 4), (logs, 2), (audit, 1)):
        api.create(name, partitions=count)
    first = join(api, "g", "a", orders)
    assert first.epoch == 0
    assert (first.consumerTimeout, first.coordinatorTimeout) == (600_000_000_000, 500_000_000_000)
    (here,) = api.call("FetchMetadata").brokers
    shown = group_of(api, "g")
    assert first.coordinator == here.id == shown.coordinator
    assert (shown.groupId, shown.error, shown.epoch) == ("g", 0, 0)
    assert assigned(api, "g", "a", 0) == {orders: [0, 1, 2, 3]}
    second = join(api, "g", "b", orders, logs)
    assert second.epoch > first.epoch
    assert second.epoch == group_of(api, "g").epoch
    # the names of liftbridge §13.5 order logs before orders; so do these
    assert assigned(api, "g", "a") == {orders: [0, 1, 2]}
    assert assigned(api, "g", "b") == {logs: [0, 1], orders: [3]}
    join(api, "g", "c", orders, audit)
    assert assigned(api, "g", "a") == {orders: [0, 1, 3]}
    assert assigned(api, "g", "b") == {logs: [0, 1]}
    assert assigned(api, "g", "c") == {audit: [0], orders: [2]}
    leave(api, "g", "a")
    assert assigned(api, "g", "b") == {logs: [0, 1], orders: [1, 3]}
    assert assigned(api, "g", "c") == {audit: [0], orders: [0, 2]}
    before = group_of(api, "g").epoch
    api.call("DeleteStream", name=audit)
    assert group_of(api, "g").epoch > before, "a subscribed stream was deleted"
    assert assigned(api, "g", "c") == {orders: [0, 1, 3]}
    leave(api, "g", "b")
    leave(api, "g", "c")
    assert group_of(api, "g").error == 1, "the last leave removes the group"


@pytest.mark.parametrize(
    ("method", "fields", "text"),
    [
        ("JoinConsumerGroup", {}, "No groupId provided"),
        ("JoinConsumerGroup", {"groupId": "g"}, "No consumerId provided"),
        ("JoinConsumerGroup", {"groupId": "g", "consumerId": "c"}, "No streams provided"),
        ("LeaveConsumerGroup", {"consumerId": "c"}, "No groupId provided"),
        ("LeaveConsumerGroup", {"groupId": "g"}, "No consumerId provided"),
        ("FetchConsumerGroupAssignments", {}, "No groupId provided"),
        ("FetchConsumerGroupAssignments", {"groupId": "g"}, "No consumerId provided"),
        ("ReportConsumerGroupCoordinator", {}, "No groupId provided"),
        ("ReportConsumerGroupCoordinator", {"groupId": "g"}, "No consumerId provided"),
        ("ReportConsumerGroupCoordinator", {"groupId": "g", "consumerId": "c"}, "No coordinator provided"),
    ],
)
def test_missing_arguments_of_cursor_calls_are_named(api: Api, method: str, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", text)):
        api.call(method, **fields)


def test_preconditions_have_their_codes_and_texts(api: Api, stream: str) -> None:
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", "stream does not exist")):
        join(api, stream, "a", "nothing")
    assert group_of(api, stream).error == 1
    api.create(stream)
    join(api, stream, "a", stream)
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", "stream does not exist")):
        join(api, stream, "b", stream, "nothing")
    already = "consumer is already a member of the consumer group"
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", already)):
        join(api, stream, "a", stream)
    no_member = failed("FAILED_PRECONDITION", "consumer is not a member of the consumer group")
    with pytest.raises(Failed, check=no_member):
        leave(api, stream, "b")
    with pytest.raises(Failed, check=no_member):
        assigned(api, stream, "b", 0)
    no_group = failed("NOT_FOUND", "consumer group does not exist")
    with pytest.raises(Failed, check=no_group):
        leave(api, "no group", "a")
    with pytest.raises(Failed, check=no_group):
        assigned(api, "no group", "a", 0)
    differs = "client-provided group epoch differs from broker group epoch"
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", differs)):
        assigned(api, stream, "a", 99)


def test_reports_of_a_coordinator_are_checked_and_need_another_broker(api: Api, stream: str) -> None:
    api.create(stream)
    here = join(api, stream, "a", stream).coordinator
    epoch = join(api, stream, "b", stream).epoch

    def report(group: str, consumer: str, coordinator: str, its_epoch: int) -> None:
        api.call(
            "ReportConsumerGroupCoordinator",
            groupId=group,
            consumerId=consumer,
            coordinator=coordinator,
            epoch=its_epoch,
        )

    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", "No such consumer group none")):
        report("none", "a", here, 0)
    mismatch = (
        f"Coordinator generation mismatch, current coordinator: {here} epoch: {epoch}, got coordinator: {here} epoch: 1"
    )
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", mismatch)):
        report(stream, "a", here, 1)
    stranger = f"Consumer x is not a member of consumer group {stream}"
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", stranger)):
        report(stream, "x", here, epoch)
    report(stream, "a", here, epoch)
    report(stream, "a", here, epoch)
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", "No group coordinator candidates")):
        report(stream, "b", here, epoch)


def test_a_silent_member_is_expelled_and_a_heartbeat_keeps_another(hasty: TestBroker, stream: str) -> None:
    with Api(hasty.address) as api:
        api.create(stream, partitions=2)
        began = time.monotonic()
        join(api, stream, "silent", stream)
        epoch = join(api, stream, "lively", stream).epoch
        while group_of(api, stream).epoch == epoch:
            try:
                assert assigned(api, stream, "lively", epoch) == {stream: [0]}
            except Failed as refusal:  # expelled between the two calls
                differs = "client-provided group epoch differs from broker group epoch"
                assert failed("FAILED_PRECONDITION", differs)(refusal)  # noqa: PT017
            time.sleep(0.05)
        assert time.monotonic() - began > TIMEOUT_S
        assert assigned(api, stream, "lively") == {stream: [0, 1]}
        until(lambda: group_of(api, stream).error == 1)


def test_the_last_member_that_is_expelled_stops_reading(hasty: TestBroker, stream: str) -> None:
    with Api(hasty.address) as api:
        api.create(stream)
        epoch = join(api, stream, "silent", stream).epoch
        reading = api.subscribe(stream, None, consumer=member(stream, "silent", epoch))
        assert reading.rest() == ([], None), "ends with status OK when the group no longer exists"
        assert group_of(api, stream).error == 1


def test_a_former_group_of_the_same_id_does_not_exclude_members(api: Api, stream: str) -> None:
    api.create(stream)
    api.publish(stream)
    join(api, stream, "a", stream)
    epoch = join(api, stream, "b", stream).epoch
    old = api.subscribe(stream, consumer=member(stream, "a", epoch))
    assert old.next().offset == 0
    leave(api, stream, "a")
    leave(api, stream, "b")
    assert old.rest() == ([], None), "the group no longer exists"
    late = api.subscribe(stream, consumer=member(stream, "a", epoch))
    assert join(api, stream, "c", stream).epoch == 0
    assert late.rest()[1] is None, "the id now belongs to another group"
    new = api.subscribe(stream, consumer=member(stream, "c", 0))
    assert new.next().offset == 0
    lower = "Consumer is not currently assigned this partition"
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", lower)):
        api.subscribe(stream, consumer=member(stream, "a", epoch))
    epoch = join(api, stream, "d", stream).epoch
    newer = api.subscribe(stream, consumer=member(stream, "d", epoch))
    assert new.rest() == ([], None), "a newer epoch replaces it"
    assert newer.next().offset == 0


NOT_ASSIGNED = failed("FAILED_PRECONDITION", "Consumer is not currently assigned this partition")


def store(api: Api, stream: str, offset: int, consumer: dict[str, Any]) -> None:
    place: dict[str, Any] = {"stream": stream, "partition": 0, "cursorId": f"__group:{stream}"}
    api.call("SetCursor", offset=offset, consumer=consumer, **place)


def position(api: Api, stream: str) -> int:
    return api.call("FetchCursor", stream=stream, partition=0, cursorId=f"__group:{stream}").offset


@pytest.mark.parametrize("second", ["a", "b"])
def test_the_first_member_of_a_former_group_neither_reads_nor_stores(api: Api, stream: str, second: str) -> None:
    api.create(stream)
    api.publish(stream)
    first = join(api, stream, "a", stream)
    leave(api, stream, "a")
    present = join(api, stream, second, stream)
    assert (first.epoch, present.epoch) == (0, 0)
    assert group_of(api, stream).generation == present.generation > first.generation > 0
    reading = api.subscribe(stream, consumer={**member(stream, second, 0), "generation": present.generation})
    store(api, stream, 7, {**member(stream, second, 0), "generation": present.generation})
    old = [{**member(stream, "a", 0), "generation": first.generation}]
    if second != "a":
        old.append(member(stream, "a", 0))  # a client that knows epochs only
    for stale in old:
        with pytest.raises(Failed, check=NOT_ASSIGNED):
            api.subscribe(stream, consumer=stale)
        with pytest.raises(Failed, check=NOT_ASSIGNED):
            store(api, stream, 3, stale)
    assert (reading.next().offset, position(api, stream)) == (0, 7)
    ids: dict[str, Any] = {"groupId": stream, "consumerId": "a", "joined": first.joined}
    no_member = failed("FAILED_PRECONDITION", "consumer is not a member of the consumer group")
    for method in ("FetchConsumerGroupAssignments", "LeaveConsumerGroup"):
        with pytest.raises(Failed, check=no_member):
            api.call(method, **ids)
    leave(api, stream, second)
    with pytest.raises(Failed, check=NOT_ASSIGNED):
        store(api, stream, 3, old[0])
    assert position(api, stream) == 7


def test_a_generation_above_the_present_one_is_refused_by_name(api: Api, stream: str) -> None:
    api.create(stream)
    generation = join(api, stream, "a", stream).generation
    ahead = (
        f'generation {2**64 - 1} of consumer group "{stream}" is above its present one, {generation}: join the group'
    )
    for claim in ({"generation": 2**64 - 1}, {"groupEpoch": 2**64 - 1}):
        consumer = {"groupId": stream, "consumerId": "a", **claim}
        for call in (lambda it: store(api, stream, 1, it), lambda it: api.subscribe(stream, consumer=it)):
            with pytest.raises(Failed) as refused:
                call(consumer)
            assert refused.value.code.name == "FAILED_PRECONDITION"
            assert refused.value.text.startswith(ahead)
    store(api, stream, 1, {**member(stream, "a", 0), "generation": generation})
    assert position(api, stream) == 1


def test_members_that_create_a_group_concurrently_are_all_in_it(patient: TestBroker, stream: str) -> None:
    names = [f"member-{index}" for index in range(8)]
    with Api(patient.address) as api, ThreadPoolExecutor(len(names)) as pool:
        api.create(stream, partitions=5)
        epochs = [answer.epoch for answer in pool.map(lambda name: join(api, stream, name, stream), names)]
        now = group_of(api, stream).epoch
        read = [number for name in names for number in assigned(api, stream, name).get(stream, [])]
        assert sorted(read) == [0, 1, 2, 3, 4]
        assert max(epochs) == now
        list(pool.map(lambda name: leave(api, stream, name), names))
        assert group_of(api, stream).error == 1


def test_groups_survive_a_kill_and_members_get_a_new_timeout() -> None:
    settings = {"groups.consumer_timeout_ms": 15_000}
    with broker(durability="disk", settings=settings) as running:
        with Api(running.address) as api:
            api.create("s", partitions=3)
            join(api, "g", "z", "s")
            epoch = join(api, "g", "a", "s").epoch
            before = {name: assigned(api, "g", name) for name in ("z", "a")}
        running.kill()
        running.start()
        with Api(running.address) as api:
            assert group_of(api, "g").epoch == epoch
            assert {name: assigned(api, "g", name) for name in ("z", "a")} == before
            until(lambda: group_of(api, "g").error == 1)


def member(group: str, consumer: str, epoch: int) -> dict[str, Any]:
    return {"groupId": group, "consumerId": consumer, "groupEpoch": epoch}


def test_one_member_of_a_group_reads_a_partition_and_the_higher_epoch_wins(api: Api, stream: str) -> None:
    api.create(stream)
    api.publish(stream)
    first = api.subscribe(stream, consumer=member("g", "a", 5))
    assert first.next().offset == 0
    lower = "Consumer is not currently assigned this partition"
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", lower)):
        api.subscribe(stream, consumer=member("g", "b", 4))
    other_group = api.subscribe(stream, consumer=member("h", "a", 1))
    second = api.subscribe(stream, consumer=member("g", "b", 5))
    assert first.rest() == ([], None), "ends with status OK"
    again = api.subscribe(stream, consumer=member("g", "b", 7))
    assert len(second.rest()[0]) <= 1
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", lower)):
        api.subscribe(stream, consumer=member("g", "c", 6))
    assert (again.next().offset, other_group.next().offset) == (0, 0)
    again.cancel()

    def admits_lower() -> bool:
        try:
            api.subscribe(stream, consumer=member("g", "c", 1)).cancel()
        except Failed:
            return False
        return True

    until(admits_lower)


def test_an_unknown_group_has_no_members(api: Api, stream: str) -> None:
    api.create(stream)
    flaw = failed("INVALID_ARGUMENT", r'groupId "g\u{200b}" has U+200B, which cannot be seen: leave it out')
    with pytest.raises(Failed, check=flaw):
        join(api, "g\u200b", "c", stream)
    with pytest.raises(Failed, check=flaw):
        api.subscribe(stream, consumer=member("g\u200b", "c", 0))
    for taken in ("größe a", "g\u200d", "orders\u00a0x", "a\u0301"):
        join(api, taken, taken, stream)
        api.subscribe(stream, consumer=member(taken, taken, 0)).cancel()
        api.call("LeaveConsumerGroup", groupId=taken, consumerId=taken)
        join(api, taken, taken, stream)


def test_a_member_needs_an_id_and_a_failed_subscribe_ends_no_subscription(api: Api, stream: str) -> None:
    api.create(stream)
    needed = "Consumer id cannot be empty when group id is provided"
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", needed)):
        api.subscribe(stream, consumer={"groupId": "g"})
    api.publish(stream)
    first = api.subscribe(stream, consumer=member("g", "a", 1))
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "Unknown StartPosition 9")):
        api.subscribe(stream, consumer=member("g", "b", 2), startPosition=9)
    assert first.next().offset == 0
    api.publish(stream)
    assert first.next().offset == 1
    assert api.subscribe(stream, startPosition=OFFSET).next().offset == 0, "readers without a group are not affected"
