"""Limits of the whole broker and shares of one client: errors name the value, the bound and the remedy."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from bascule.testing import TestBroker, broker

from tests.conformance.api import Api, Failed
from tests.conformance.mutual import ROOT, Mutual, mutual_broker, rule
from tests.conformance.rights import check_creation
from tests.waiting import until

FEW = {
    "limits.streams": 3,
    "limits.partitions": 5,
    "limits.groups": 1,
    "cursors.partitions": 4,
    "activity.enabled": True,
}


@pytest.fixture
def small() -> Iterator[TestBroker]:
    """A broker with low limits; its internal streams do not count."""
    with broker(settings=FEW) as running:
        yield running


def exhausted(*words: str) -> Callable[[BaseException], bool]:
    def check(failure: BaseException) -> bool:
        return (
            isinstance(failure, Failed)
            and failure.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            and all(word in failure.text for word in words)
        )

    return check


def test_streams_and_partitions_have_limits(small: TestBroker) -> None:
    with Api(small.address) as api:
        api.create("a")
        api.create("b", partitions=2)
        words = ("3 partitions exist and 3 more", "limits.partitions (5)", "raise it")
        for create in (lambda: api.create("c", partitions=3), lambda: check_creation(api, "c", "c", 3)):
            with pytest.raises(Failed, check=exhausted(*words)):
                create()
        api.create("c", partitions=2)
        for create in (lambda: api.create("d"), lambda: check_creation(api, "d", "d")):
            with pytest.raises(Failed, check=exhausted("limits.streams (3) streams exist", "delete some, or raise it")):
                create()
        with pytest.raises(Failed) as known:
            api.create("a")
        assert known.value.code is grpc.StatusCode.ALREADY_EXISTS
        api.call("DeleteStream", name="b")
        api.create("d")


def test_concurrent_creations_do_not_exceed_the_limit(small: TestBroker) -> None:
    with Api(small.address) as api, ThreadPoolExecutor(20) as pool:
        calls = [pool.submit(api.create, f"s{number}") for number in range(20)]
        failures = [call.exception() for call in calls]
        exist = [item.name for item in api.call("FetchMetadata").streamMetadata if not item.name.startswith("__")]
    assert len(exist) == 3
    assert sum(failure is None for failure in failures) == 3
    assert all(failure is None or exhausted("limits.streams (3)")(failure) for failure in failures)


def test_groups_have_a_limit(small: TestBroker) -> None:
    def join(group: str, consumer: str) -> None:
        api.call("JoinConsumerGroup", groupId=group, consumerId=consumer, streams=["s"])

    with Api(small.address) as api:
        api.create("s")
        join("g", "a")
        join("g", "b")
        with pytest.raises(Failed, check=exhausted("limits.groups (1) consumer groups exist", "or raise it")):
            join("h", "a")
        for consumer in ("a", "b"):
            api.call("LeaveConsumerGroup", groupId="g", consumerId=consumer)
        join("h", "a")


def test_existing_objects_stay_if_the_limit_is_lowered(tmp_path: Path) -> None:
    with broker(durability="disk", directory=tmp_path) as running, Api(running.address) as api:
        for name in ("a", "b"):
            api.create(name)
    with (
        broker(durability="disk", directory=tmp_path, settings={"limits.streams": 1}) as running,
        Api(running.address) as api,
    ):
        assert api.publish("b", b"x") == 0
        with pytest.raises(Failed, check=exhausted("limits.streams (1)")):
            api.create("c")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mutual]:
    few = {"limits.calls_per_identity": 4, "limits.admin_requests_per_identity": 2}
    with mutual_broker(tmp_path_factory.mktemp("mutual"), **few) as running:
        yield running


def test_a_client_has_a_share_of_the_calls_and_others_have_theirs(shared: Mutual) -> None:
    with shared.api(ROOT) as root:
        root.create("s")
    shared.allow(rule("*", ["Subscribe", "Publish"], "s"))
    with shared.api("greedy") as greedy, shared.api("greedy") as again, shared.api("modest") as modest:
        reading = [greedy.subscribe("s") for _ in range(4)]
        with pytest.raises(Failed, check=exhausted('limits.calls_per_identity (4) calls of "greedy" are open')):
            again.publish("s", b"x")
        assert modest.publish("s", b"x") == 0
        for one in reading:
            one.cancel()
        until(lambda: succeeds(lambda: again.publish("s", b"x")))


def test_a_client_has_a_share_of_the_requests_that_wait_for_the_control_plane(shared: Mutual) -> None:
    shared.allow(rule("*", "FetchMetadata", "*"))
    refused: list[Failed] = []

    def ask(api: Api) -> None:
        try:
            api.call("FetchMetadata")
        except Failed as failure:
            refused.append(failure)

    with shared.api("greedy") as one, shared.api("greedy") as other, ThreadPoolExecutor(4) as pool:
        until(lambda: bool(refused) or not list(pool.map(ask, [one, other, one, other] * 10)))
    text = 'limits.admin_requests_per_identity (2) admin requests of "greedy" wait for an answer'
    assert all(exhausted(text)(failure) for failure in refused)


def succeeds(call: Callable[[], object]) -> bool:
    try:
        call()
    except Failed:
        return False
    return True
