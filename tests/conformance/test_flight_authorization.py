"""Flight does not bypass a policy: it needs the same rights as Liftbridge's methods, on the same connections."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from bascule.errors import BrokerError
from bascule.spark.connection import Broker, StatusRequest
from bascule.spark.options import parse_options

from tests.conformance.api import Api
from tests.conformance.mutual import ROOT, Mutual, mutual_broker, rule
from tests.waiting import until

pa: Any = import_module("pyarrow")
fl: Any = import_module("pyarrow.flight")


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mutual]:
    with mutual_broker(tmp_path_factory.mktemp("mutual")) as running:
        yield running


@pytest.fixture
def root(mutual: Mutual, stream: str) -> Iterator[Api]:
    """The client that may do everything; the stream exists and has one record."""
    with mutual.api(ROOT) as it:
        it.create(stream)
        it.publish(stream, b"first")
        yield it


def flight(mutual: Mutual, name: str) -> Any:
    assert mutual.running is not None
    pair = mutual.pair(name)
    return fl.FlightClient(
        f"grpc+tls://{mutual.running.address}",
        tls_root_certs=mutual.authority.ca.read_bytes(),
        cert_chain=pair.cert.read_bytes(),
        private_key=pair.key.read_bytes(),
    )


def get(client: Any, stream: str, **more: Any) -> Any:
    ticket = json.dumps({"stream": stream, "partition": 0, **more}).encode()
    return client.do_get(fl.Ticket(ticket))


def put(client: Any, stream: str) -> None:
    batch = pa.record_batch({"value": pa.array([b"second"], pa.binary())})
    descriptor = fl.FlightDescriptor.for_command(json.dumps({"stream": stream, "partition": 0}).encode())
    writer, results = client.do_put(descriptor, batch.schema)
    writer.write_batch(batch)
    writer.done_writing()
    result = results.read()
    writer.close()
    assert json.loads(result.to_pybytes())["count"] == 1


REFUSED = (fl.FlightUnauthorizedError, OSError)
"""pyarrow raises the second from get_schema, with the text of the first."""

READS: dict[str, Callable[[Any, str], Any]] = {
    "DoGet": lambda client, stream: get(client, stream).read_all(),
    "GetFlightInfo": lambda client, stream: client.get_flight_info(fl.FlightDescriptor.for_path(stream)),
    "GetSchema": lambda client, stream: client.get_schema(fl.FlightDescriptor.for_path(stream)),
    "offsets": lambda client, stream: list(
        client.do_action(fl.Action("offsets", json.dumps({"stream": stream}).encode()))
    ),
    "offsets of several": lambda client, stream: list(
        client.do_action(fl.Action("offsets", json.dumps([{"stream": stream, "wait_ms": 1}]).encode()))
    ),
}


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("method", READS)
def test_only_readers_of_a_stream_learn_about_it(mutual: Mutual, stream: str, method: str) -> None:
    mutual.allow(rule("writer", ["Publish", "FetchMetadata"], "*"), rule("reader", "Subscribe", stream))
    with flight(mutual, "writer") as client:
        text = f"not authorized to call Subscribe on resource {stream}"
        with pytest.raises(REFUSED, match=text):
            READS[method](client, stream)
        with pytest.raises(REFUSED, match="on resource no-such"):
            READS[method](client, "no-such")
    with flight(mutual, "reader") as client:
        READS[method](client, stream)


def test_a_stream_of_another_namespace_is_a_separate_resource(mutual: Mutual, root: Api, stream: str) -> None:
    assert root.partition(stream).highWatermark == 0
    mutual.allow(rule("reader", "Subscribe", stream))
    with flight(mutual, "reader") as client, pytest.raises(fl.FlightUnauthorizedError, match=f"on resource n/{stream}"):
        get(client, stream, namespace="n").read_all()


def test_appending_needs_the_right_to_publish(mutual: Mutual, root: Api, stream: str) -> None:
    mutual.allow(rule("reader", "Subscribe", stream), rule("writer", "Publish", stream))
    text = f"not authorized to call Publish on resource {stream}"
    with flight(mutual, "reader") as client, pytest.raises(fl.FlightUnauthorizedError, match=text):
        put(client, stream)
    assert root.partition(stream).highWatermark == 0
    with flight(mutual, "writer") as client:
        put(client, stream)
    assert root.partition(stream).highWatermark == 1


def test_a_put_copies_nothing_to_a_subject_that_its_client_chooses(mutual: Mutual, stream: str) -> None:
    orders, pay, first, second = (f"{stream}-{name}" for name in ("orders", "pay", "first", "second"))
    with mutual.api(ROOT) as root:
        for name, subject in ((orders, f"{stream}.*"), (pay, f"{stream}.pay"), (first, first), (second, first)):
            root.create(name, subject=subject)
        denied = {"clients": "writer", "deny": "*", "resources": [pay, f"{stream}.pay"]}
        mutual.allow(rule("writer", ["Publish"], orders), denied)
        batch = pa.record_batch({"value": [b"forged"], "subject": pa.array([f"{stream}.pay"])})
        command = json.dumps({"stream": orders, "partition": 0, "nats_copy": True}).encode()
        with flight(mutual, "writer") as client:
            writer, results = client.do_put(fl.FlightDescriptor.for_command(command), batch.schema)
            with writer:
                writer.write_batch(batch)
                writer.done_writing()
                assert json.loads(results.read().to_pybytes())["count"] == 1
        # Copies go out in the order of their commits.
        root.publish(first, b"later")
        until(lambda: root.partition(second).highWatermark == 0)
        assert root.partition(pay).highWatermark == -1
        assert root.partition(orders).highWatermark == 0


@pytest.mark.usefixtures("root")
def test_the_list_of_streams_needs_the_right_to_metadata(mutual: Mutual, stream: str) -> None:
    mutual.allow(rule("reader", "Subscribe", "*"), rule("lister", "FetchMetadata", "*"))
    with (
        flight(mutual, "reader") as client,
        pytest.raises(fl.FlightUnauthorizedError, match=r"FetchMetadata on resource \*"),
    ):
        list(client.list_flights())
    with flight(mutual, "lister") as client:
        assert [b"default", stream.encode()] in [found.descriptor.path for found in client.list_flights()]


def test_the_spark_source_accepts_the_same_url(mutual: Mutual, root: Api, stream: str) -> None:
    mutual.allow(rule("reader", ["Subscribe", "FetchMetadata"], "*"))
    assert mutual.running is not None
    pair = mutual.pair("reader")
    url = f"{mutual.running.url}?ca={mutual.authority.ca}&cert={pair.cert}&key={pair.key}"
    options = parse_options({"stream": stream, "address": url})
    reader = Broker(options.address, "default", 30_000, 30_000)
    assert stream in reader.streams()
    assert reader.status([StatusRequest(stream)])[stream].partitions[0].high_watermark == 1
    mutual.allow()
    with pytest.raises(BrokerError) as denied:
        reader.streams()
    assert denied.value.code == "permission_denied"
    assert root.partition(stream).highWatermark == 0


def test_a_following_scan_ends_before_the_first_denied_record(mutual: Mutual, root: Api, stream: str) -> None:
    mutual.allow(rule("reader", "Subscribe", stream))
    with flight(mutual, "reader") as client:
        reader = get(client, stream, follow=True)
        assert reader.read_chunk().data.column("value").to_pylist() == [b"first"]
        mutual.allow()
        root.publish(stream, b"second")
        with pytest.raises(fl.FlightUnauthorizedError, match="not authorized to call Subscribe"):
            reader.read_chunk()
