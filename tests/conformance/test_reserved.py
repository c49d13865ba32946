"""Reserved subjects and names under the broker's namespace, and the content of the activity stream."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bascule._liftbridge_pb import message
from bascule.engine import Engine
from bascule.testing import TestBroker, broker

from tests.conformance.api import Api, Failed
from tests.conformance.rights import check_creation
from tests.waiting import until

NAMESPACE = "liftbridge-default"


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as it:
        yield it


@pytest.mark.parametrize(
    ("name", "subject", "partitions"),
    [
        (f"{NAMESPACE}.cursors", f"{NAMESPACE}.cursors", 1),
        (f"{NAMESPACE}.anything", "x", 1),
        ("x", f"{NAMESPACE}.cursors", 1),
        ("x", f"{NAMESPACE}.ack.mine", 1),
        ("x", f"{NAMESPACE}.>", 1),
        ("x", f"{NAMESPACE}.*", 1),
        ("x", NAMESPACE, 2),
    ],
)
def test_no_stream_begins_under_the_namespace(api: Api, name: str, subject: str, partitions: int) -> None:
    calls = (
        lambda: api.create(name, subject=subject, partitions=partitions),
        lambda: check_creation(api, name, subject, partitions),
    )
    for call in calls:
        with pytest.raises(Failed) as refused:
            call()
        assert refused.value.code.name == "INVALID_ARGUMENT"
        assert refused.value.text.startswith("Stream is reserved: ")
        assert f"under {NAMESPACE}., the broker's own" in refused.value.text


def test_names_outside_of_the_namespace_are_free(api: Api, stream: str) -> None:
    for name in (f"{NAMESPACE}-{stream}", f"{stream}.{NAMESPACE}.x"):
        api.create(name)


def test_an_older_reserved_stream_stays_and_the_start_warns(tmp_path: Path) -> None:
    said = "which is reserved for the broker"

    def settings(namespace: str) -> dict[str, object]:
        return {"broker.namespace": namespace, "log.format": "json"}

    with broker(durability="disk", directory=tmp_path, settings=settings("ns-a")) as running:
        with Api(running.address) as api:
            api.create("ns-b.orders")
            api.publish("ns-b.orders", b"kept")
        assert said not in running.log
    with broker(durability="disk", directory=tmp_path, settings=settings("ns-b")) as running:
        with Api(running.address) as api:
            assert [item.value for item in api.read("ns-b.orders")] == [b"kept"]
            assert api.publish("ns-b.orders", b"still written") == 1
        lines = [json.loads(line) for line in running.log.splitlines() if said in line]
    assert [(line["level"], line["stream"]) for line in lines] == [("warning", "ns-b.orders")]


def test_a_forged_event_hides_none_and_is_logged(tmp_path: Path) -> None:
    """One with the highest id there is, put where nobody could put it any more: into the stopped broker's files."""
    on = {"activity.enabled": True, "log.format": "json"}
    with broker(durability="disk", directory=tmp_path, settings=on) as running:
        with Api(running.address) as api:
            api.create("before")
            until(lambda: api.partition("__activity").newestOffset == 1)
        running.kill()
        forge(running.directory / "data")
        running.start()
        with Api(running.address) as api:
            api.create("after")
            until(lambda: api.partition("__activity").newestOffset == 3)
            events = [message("ActivityStreamEvent").FromString(item.value) for item in api.read("__activity")]
        logged = [json.loads(line) for line in running.log.splitlines() if "are not the broker's" in line]
    assert [event.createStreamOp.stream for event in events] == ["__activity", "before", "forged", "after"]
    assert [line["ids"] for line in logged] == [[2**63 - 1]]


def forge(data: Path) -> None:
    manifest: dict[str, Any] = json.loads((data / "bascule.json").read_text())
    settings: dict[str, Any] = {key: manifest[key] for key in ("cluster_id", "broker_id")}
    plane = Engine({"data_dir": str(data), "runtime_threads": 1, "namespace": "n", **settings})
    try:
        incarnation = min(int(item.name) for item in (data / "partitions").iterdir())  # the first created stream
        assert plane.open(json.dumps([spec(incarnation)]).encode()) == []
        plane.lead([(incarnation, incarnation >> 16)])
        event = message("ActivityStreamEvent")(id=2**63 - 1)
        event.createStreamOp.stream = "forged"
        plane.append(incarnation, [event.SerializeToString()], 10_000)
    finally:
        plane.close(1000)


def spec(incarnation: int) -> dict[str, Any]:
    """The document of the activity stream's partition (specs/formats/seam.md)."""
    return {
        "namespace": "default", "stream": "__activity", "number": 0, "incarnation": incarnation, "subject": "",
        "base_subject": "", "durability": "disk", "codec": "none", "nats_copy": "none", "max_record_bytes": 1 << 20,
        "batch_records": 1024, "batch_bytes": 1 << 20, "retention_age_ms": 0, "retention_bytes": 0,
        "retention_messages": 0, "cleaner_interval_ms": 0, "segment_bytes": 1 << 24, "segment_age_ms": 0,
        "concurrency_control": False,
    }  # fmt: skip
