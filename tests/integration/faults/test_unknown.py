"""Missing and invalid streams, partitions and subjects: one clear error each, on every protocol."""

import json
from typing import Any

import pytest
from bascule import testing
from bascule._liftbridge_pb import message
from bascule.errors import BrokerError
from grpc import StatusCode
from pyarrow import flight

from .process import check_refusal, run
from .raw import Raw, publish_request, refusal

ABSENT = "absent"


@pytest.fixture(autouse=True, scope="module")
def stream(broker: testing.TestBroker) -> str:
    """A stream of one partition."""
    with Raw(broker.address) as raw:
        raw.create_stream("present", "present")
    return "present"


@pytest.mark.parametrize("method", ["Publish", "Subscribe", "FetchPartitionMetadata", "DeleteStream"])
def test_an_unknown_stream_is_named(raw: Raw, method: str) -> None:
    body = {
        "Publish": publish_request(ABSENT, b"x"),
        "Subscribe": message("SubscribeRequest")(stream=ABSENT).SerializeToString(),
        "FetchPartitionMetadata": message("FetchPartitionMetadataRequest")(stream=ABSENT).SerializeToString(),
        "DeleteStream": message("DeleteStreamRequest")(name=ABSENT).SerializeToString(),
    }[method]
    call = (lambda: list(raw.subscribe(body))) if method == "Subscribe" else lambda: raw.unary(method, body)
    code, sentence = refusal(call)
    assert code is StatusCode.NOT_FOUND
    # these texts are fixed by the protocol
    assert sentence in {
        f"no such stream: {ABSENT}",
        "stream not found",
        "No such partition",
        "partition not found",
        "stream does not exist",
    }


@pytest.mark.parametrize("number", [1, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("method", ["Publish", "Subscribe", "FetchPartitionMetadata"])
def test_an_unknown_partition_is_named(raw: Raw, method: str, number: int) -> None:
    body = {
        "Publish": publish_request("present", b"x", partition=number),
        "Subscribe": message("SubscribeRequest")(stream="present", partition=number).SerializeToString(),
        "FetchPartitionMetadata": message("FetchPartitionMetadataRequest")(
            stream="present", partition=number
        ).SerializeToString(),
    }[method]
    call = (lambda: list(raw.subscribe(body))) if method == "Subscribe" else lambda: raw.unary(method, body)
    code, sentence = refusal(call)
    assert code is StatusCode.NOT_FOUND
    assert "partition" in sentence


def test_asynchronous_publishes_are_refused_one_by_one(raw: Raw) -> None:
    bodies = [
        publish_request(ABSENT, b"x", correlationId="stream"),
        publish_request("present", b"x", partition=9, correlationId="partition"),
        publish_request("", b"x", correlationId="none"),
        publish_request("present", b"good", correlationId="good", ackPolicy=1),
    ]
    answers = [message("PublishResponse").FromString(body) for body in raw.publish_async(bodies)]
    errors = {answer.correlationId: answer.asyncError.message for answer in answers}
    assert errors["stream"] == f"no such stream: {ABSENT}"
    assert errors["partition"] == "no such partition: 9"
    assert errors["none"]
    assert not errors["good"]


def scan(broker: testing.TestBroker, ticket: object) -> Any:
    text = ticket if isinstance(ticket, bytes) else json.dumps(ticket).encode()
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        return client.do_get(flight.Ticket(text)).read_all()


@pytest.mark.parametrize(
    ("ticket", "code", "word"),
    [
        ({"stream": ABSENT, "partition": 0}, "stream_not_found", ABSENT),
        ({"stream": "present", "partition": 7}, "partition_not_found", "7"),
        ({"stream": "present", "partition": -1}, "", "-1"),
        ({"stream": "present", "partition": 0, "start": 99}, "offset_out_of_range", "99"),
        ({"stream": "present", "partition": 0, "start": -5}, "invalid_argument", "-5"),
        ({"stream": "present", "partition": 0, "columns": ["offsets"]}, "invalid_argument", "offsets"),
        ({"stream": "present", "partition": 0, "strat": 0}, "invalid_argument", "strat"),
        ({"stream": "present", "partition": 0, "subject": "a..b"}, "invalid_argument", "a..b"),
        ({"stream": "present", "partition": 0, "wait_ms": 10**9}, "invalid_argument", "wait_ms"),
        ({"stream": "present", "partition": 0, "incarnation": 1}, "incarnation_changed", ""),
        (b"\xff\x00 no JSON", "invalid_argument", ""),
        (b"", "invalid_argument", ""),
        ([], "invalid_argument", ""),
    ],
)
def test_flight_names_the_error_of_a_ticket(broker: testing.TestBroker, ticket: object, code: str, word: str) -> None:
    with pytest.raises((flight.FlightError, KeyError, ValueError)) as refused:
        scan(broker, ticket)
    assert code in str(refused.value)
    assert word in str(refused.value)


@pytest.mark.parametrize(
    "subject", ["a b", "a..b", ".a", "a.", "a.>.b", "a\tb", "a\nb", "a\0b", "x" * 1_025, "x" * 70_000]
)
def test_an_invalid_subject_creates_no_stream(raw: Raw, subject: str) -> None:
    code, sentence = refusal(lambda: raw.create_stream("bad-subject", subject))
    assert code is StatusCode.INVALID_ARGUMENT
    assert "ubject" in sentence
    assert len(sentence) < 2_000
    assert not any(one.name == "bad-subject" for one in metadata(raw))


def metadata(raw: Raw) -> Any:
    answer = raw.unary("FetchMetadata", message("FetchMetadataRequest")().SerializeToString())
    return message("FetchMetadataResponse").FromString(answer).streamMetadata


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "x" * 70_000},
        {"name": "a/b\0"},
        {"partitions": -1},
        {"partitions": 2**31 - 1},
        {"replicationFactor": -2},
        {"replicationFactor": 3},
        {"retentionMaxBytes": {"value": -1}},
        {"segmentMaxBytes": {"value": -(2**63)}},
        {"retentionMaxAge": {"value": -1}},
        {"minIsr": {"value": -1}},
        {"group": "a b"},
        {"group": "g\r\nPUB x 0\r\n\r\n"},
        {"group": "g" * 5_000},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_values_out_of_range_create_no_stream(raw: Raw, fields: dict[str, Any]) -> None:
    request = {"name": "bad-values", "subject": "bad-values", **fields}
    code, sentence = refusal(
        lambda: raw.unary("CreateStream", message("CreateStreamRequest")(**request).SerializeToString())
    )
    refused = {StatusCode.INVALID_ARGUMENT, StatusCode.FAILED_PRECONDITION, StatusCode.INTERNAL}
    # More partitions than `limits.partitions` allows is an error of the limit.
    refused |= {StatusCode.RESOURCE_EXHAUSTED} if fields.keys() == {"partitions"} else set()
    assert code in refused, sentence
    assert sentence
    assert "Traceback" not in sentence
    assert "malformed" not in sentence
    assert len(sentence) < 2_000


@pytest.mark.parametrize("subject", ["", "a b", "a..b", "a.*", "a.>", "x" * 70_000, "a\r\nPUB b 1\r\nx\r\n"])
def test_an_invalid_subject_is_rejected_for_publishes(raw: Raw, subject: str) -> None:
    for fields in ({"subject": subject}, {"subject": "good", "ackInbox": subject or " "}):
        body = message("PublishToSubjectRequest")(value=b"x", **fields).SerializeToString()
        code, sentence = refusal(lambda request=body: raw.unary("PublishToSubject", request))
        assert code is StatusCode.INVALID_ARGUMENT
        assert "subject" in sentence
        assert len(sentence) < 2_000


@pytest.mark.parametrize(
    ("arguments", "exit_code", "word"),
    [
        (["stream", "show", ABSENT], 3, ABSENT),
        (["stream", "delete", ABSENT, "--yes"], 3, ABSENT),
        (["produce", ABSENT, "x"], 3, ABSENT),
        (["consume", ABSENT, "--count", "1"], 3, ABSENT),
        (["consume", "present", "--partition", "5", "--count", "1"], 3, "5"),
        (["consume", "present", "--start", "yesterday"], 2, "yesterday"),
        (["stream", "create", "bad", "--subject", "a b"], 2, "subject"),
        (["stream", "create", "present"], 6, "present"),
        (["stream", "create", "bad", "--retention-max-age", "soon"], 2, "soon"),
        (["stream", "create", "bad", "--partitions", "0"], 2, "--partitions"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_command_reports_it_in_one_line(
    broker: testing.TestBroker, arguments: list[str], exit_code: int, word: str
) -> None:
    end = run(*arguments, "--url", broker.url)
    check_refusal(end, exit_code, word)
    assert len(end.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("url", ["liftbridge://127.0.0.1:1", "http://127.0.0.1:1", "liftbridge://:::", "nonsense"])
def test_an_address_without_a_broker_is_one_line(url: str) -> None:
    end = run("stream", "list", "--url", url, "--timeout", "1")
    assert end.returncode in {2, 5}
    check_refusal(end, end.returncode)
    assert len(end.stderr.strip().splitlines()) == 1


def test_the_sdk_raises_typed_errors(broker: testing.TestBroker) -> None:
    with broker.connect() as client:
        with pytest.raises(BrokerError) as unknown:
            client.publish(ABSENT, b"x")
        assert unknown.value.code == "stream_not_found"
        with pytest.raises(BrokerError) as partition:
            client.publish("present", b"x", partition=3)
        assert partition.value.code == "partition_not_found"
