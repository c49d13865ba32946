"""Each message of the schema with arbitrary values: every call is answered, and the broker stays up and consistent."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bascule._liftbridge_pb import message, methods
from bascule.testing import TestBroker, broker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.api import Api, Failed

NAMES = st.one_of(st.sampled_from(["s", "t", "g", "__cursors", "__activity", "", "c", "x.y"]), st.text(max_size=20))
TEXTS = st.one_of(NAMES, st.text(max_size=400))
INT32 = st.one_of(st.integers(-2, 3), st.integers(-(1 << 31), (1 << 31) - 1))
INT64 = st.one_of(st.integers(-2, 3), st.integers(-(1 << 63), (1 << 63) - 1))
UINT64 = st.one_of(st.integers(0, 3), st.integers(0, (1 << 64) - 1))
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "TYPE_STRING": TEXTS,
    "TYPE_BYTES": st.binary(max_size=300),
    "TYPE_INT32": INT32,
    "TYPE_INT64": INT64,
    "TYPE_UINT32": st.integers(0, (1 << 32) - 1),
    "TYPE_UINT64": UINT64,
    "TYPE_BOOL": st.booleans(),
    "TYPE_ENUM": st.integers(-1, 6),
}
NUMBERS = [1 << 31, 1 << 32, (1 << 63) - 1]
STREAMING = {"Subscribe", "PublishAsync"}
ALLOWED = {
    "OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "INTERNAL", "UNKNOWN",
    "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED",
}  # fmt: skip


def fields_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Arbitrary values for some of the fields of a message."""
    found: dict[str, st.SearchStrategy[Any]] = {}
    for field in message(name).DESCRIPTOR.fields:
        found[field.name] = one_field(field)
    return st.fixed_dictionaries({}, optional=found)


def one_field(field: Any) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return st.dictionaries(TEXTS, st.binary(max_size=30), max_size=4)
    kinds = {number: name for name, number in vars(type(field)).items() if name.startswith("TYPE_")}
    inner = fields_of(field.message_type.name) if field.message_type else SCALARS[kinds[field.type]]
    return st.lists(inner, max_size=4) if field.is_repeated else inner


@pytest.fixture(scope="module")
def tested() -> Iterator[TestBroker]:
    with broker(settings={"cursors.partitions": 2, "activity.enabled": True}) as started:
        with Api(started.address) as api:
            api.create("s", partitions=2)
            api.create("t", optimisticConcurrencyControl={"value": True})
            api.create("unharmed")
            api.fill("unharmed", 3)
        yield started


def drive_call(api: Api, method: str, fields: dict[str, Any]) -> None:
    """Make the call, whose status must be one that the protocol knows."""
    try:
        if method == "PublishAsync":
            api.publish_async([fields])
        elif method == "Subscribe":
            reading = api.subscribe(fields.pop("stream", ""), 0.2, **{"startPosition": 0, **fields})
            reading.cancel()
        else:
            api.call(method, 1.0, **fields)
    except Failed as refusal:
        outcome = refusal
    else:
        return
    assert outcome.code.name in ALLOWED, outcome
    assert "the broker's log says more" not in outcome.text, outcome


@pytest.mark.parametrize("method", sorted(methods()))
def test_arbitrary_values_are_answered(tested: TestBroker, method: str) -> None:
    kind = methods()[method][0]
    driven: set[str] = set()

    @settings(max_examples=60, deadline=None, suppress_health_check=(HealthCheck.too_slow,), derandomize=True)
    @given(fields_of(kind))
    def drive(fields: dict[str, Any]) -> None:
        driven.update(fields)
        with Api(tested.address) as api:
            drive_call(api, method, fields)

    drive()
    assert driven == {field.name for field in message(kind).DESCRIPTOR.fields}, "every field had values"
    with Api(tested.address) as api:
        assert [item.value for item in api.read("unharmed")] == [b"0", b"1", b"2"]
        api.create(f"after.{method}")  # what was accepted is carried out
        api.fill(f"after.{method}", 1)


@pytest.mark.parametrize(
    "setting", [item.name for item in message("CreateStreamRequest").DESCRIPTOR.fields if item.message_type]
)
def test_no_number_in_a_setting_stops_the_others_or_the_next_start(tested: TestBroker, setting: str) -> None:
    with Api(tested.address) as api:
        kind = message("CreateStreamRequest").DESCRIPTOR.fields_by_name[setting].message_type.fields_by_name["value"]
        numbers = [True] if kind.type == kind.TYPE_BOOL else [1 << 30] if kind.type == kind.TYPE_INT32 else NUMBERS
        for number in numbers:
            drive_call(api, "CreateStream", {"name": f"{setting}.{number}", "subject": "x", setting: {"value": number}})
            api.create(f"behind.{setting}.{number}")


def test_all_at_once_from_many_threads_and_then_a_kill() -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=(HealthCheck.too_slow,), derandomize=True)
    @given(st.lists(st.sampled_from(sorted(methods())).flatmap(with_fields), max_size=8))
    def drive(calls: list[tuple[str, dict[str, Any]]]) -> None:
        with Api(running.address) as api:
            for method, fields in calls:
                drive_call(api, method, fields)

    with broker(durability="disk", settings={"cursors.partitions": 2, "activity.enabled": True}) as running:
        with Api(running.address) as api:
            api.create("s", partitions=2)
        failures = in_threads(drive, 3)
        assert not failures
        with Api(running.address) as api:
            api.create("last")  # behind whatever was given up by its caller and not yet carried out
            before = api.call("FetchMetadata")
        running.kill()
        running.start()
        with Api(running.address) as api:
            after = api.call("FetchMetadata")
        assert shown(before) == shown(after)


def shown(metadata: Any) -> dict[str, Any]:
    return {item.name: (item.subject, sorted(item.partitions)) for item in metadata.streamMetadata}


def with_fields(method: str) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return fields_of(methods()[method][0]).map(lambda fields: (method, fields))


def in_threads(work: Callable[[], None], count: int) -> list[BaseException]:
    """Run `work` in so many threads at once; what they failed with."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001 - raised in the caller
            failures.append(failure)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures
