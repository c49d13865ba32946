import time
from typing import Any, cast

import pytest
from bascule.errors import UsageError
from bascule.spark import archive, driver
from bascule.spark.columns import DEFAULT
from bascule.spark.options import SOURCE, parse_options
from bascule.spark.positions import EARLIEST, LATEST, Position
from bascule.spark.source import BasculeSource
from bascule.spark.tables import schema_with_options


def test_defaults_read_everything_from_the_start() -> None:
    options = parse_options({"stream": "orders"})
    assert options.address == "grpc://127.0.0.1:9292"
    assert options.columns == DEFAULT
    assert options.starting.of("orders", 3) == EARLIEST
    assert options.ending.of("orders", 3) == LATEST
    assert (options.on_data_loss, options.no_match, options.long_poll_ms) == ("fail", "latest", 500)


def test_every_option_is_known_in_lower_case() -> None:
    values = {"columns": "value", "assign": '{"s": [0]}', "address": "h:1"}
    for name in SOURCE.names:
        if name not in {"stream", "streamPattern", "assign"}:
            given = {"assign": values["assign"], name.lower(): values.get(name, "1")}
            try:
                parse_options(given)
            except UsageError as refusal:
                assert "there is no option" not in str(refusal), name  # noqa: PT017 - an invalid value has another error


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("subscribe", "there is no option 'subscribe': it is one of Kafka's connector, use stream$"),
        ("subscribePattern", "use streamPattern$"),
        ("kafka.bootstrap.servers", "use address$"),
        ("failOnDataLoss", r"use onDataLoss, which is fail \(as true\) or skip \(as false\)$"),
        ("includeHeaders", "use columns and list headers in it$"),
        ("kafka.group.id", "in its checkpoint, consumerGroup shows them at the broker$"),
        (
            "kafka.max.poll.records",
            "it is one of Kafka's client and has no meaning here, the broker is set by address$",
        ),
    ],
)
def test_options_of_kafka_are_refused_with_ours(name: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_options({"stream": "s", name: "true"})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"stream": "s", "colums": "value"}, r"there is no option 'colums' \(did you mean columns\?\)"),
        ({"stream": "s", "startingoffset": "latest"}, r"did you mean startingOffsets\?"),
        ({}, "exactly one of the options stream, streamPattern and assign must be given: none is set"),
        ({"stream": "s", "assign": "{}"}, "stream and assign are set"),
        ({"stream": "s", "columns": "value,vaule"}, r"there is no column 'vaule' \(did you mean value\?\)"),
        ({"stream": "s", "columns": "value,value"}, "names value twice"),
        ({"stream": "s", "subject": "a..b"}, r"option subject is 'a\.\.b': it must be tokens separated by dots"),
        ({"stream": "s", "subject": "a.>.b"}, "with > as the last one only"),
        ({"stream": "s", "subject": "a b"}, "option subject is 'a b': it must be tokens"),
        ({"stream": "s", "subject": "a" * 2001}, "it has 2001 bytes, and NATS takes at most 2000"),
        ({"stream": "s", "columns": " , "}, "names no column"),
        ({"stream": "s", "columns": "*"}, r"there is no column '.'; there are .*value"),
        ({"stream": "s", "address": "localhost"}, "must be host:port"),
        ({"stream": "s", "address": "a:1,b:1"}, "must be one host:port"),
        ({"stream": "s", "address": "http://h:1"}, "must be host:port"),
        ({"stream": "s", "address": "bascule://h:1?ca=x"}, "must be host:port"),
        ({"stream": "s", "address": "bascules://h:1?password=x"}, "may name ca, and cert with key"),
        ({"stream": "s", "address": "bascules://h:1?cert=x"}, "may name ca, and cert with key"),
        ({"stream": "s", "address": "bascules://h:1?ca="}, "may name ca, and cert with key"),
        ({"stream": "s", "onDataLoss": "skp"}, r"must be one of fail, skip, archive \(did you mean skip\?\)"),
        ({"stream": "s", "startingOffsets": "soon"}, "must be one of earliest, latest, -N, or JSON"),
        ({"stream": "s", "startingOffsets": '{"s": {"0": -3}}'}, "-3 is neither an offset"),
        ({"stream": "s", "startingOffsets": '{"s": {"x": 3}}'}, "'x' of stream s is not a partition number"),
        ({"stream": "s", "startingOffsets": "{"}, "is not valid JSON"),
        ({"stream": "s", "startingOffsets": '{"s": {"0": 3}, "s": {"1": 3}}'}, 'startingOffsets .*"s" is given twice'),
        ({"stream": "s", "endingOffsets": '{"s": {"0": 3, "0": 4}}'}, 'endingOffsets .*"0" is given twice'),
        ({"stream": "s", "startingOffsets": '{"s": {"0": 3, "00": 4}}'}, "names partition 0 of stream s twice"),
        ({"assign": '{"s": [0], "s": [1]}'}, 'option assign .*"s" is given twice'),
        ({"stream": "s", "endingOffsets": "earliest"}, "must be one of latest, or JSON"),
        ({"stream": "s", "startingTimestamp": "yesterday"}, "neither an ISO 8601 time nor ms since 1970"),
        ({"stream": "s", "startingTimestamp": "0001-01-01"}, "outside the years 1678 to 2261"),
        ({"stream": "s", "startingTimestamp": "9223372036854775807"}, "outside the years 1678 to 2261"),
        ({"stream": "s", "timeZone": "Europe/Brelin"}, "option timeZone is 'Europe/Brelin': it must be a time zone"),
        ({"stream": "s", "timeZone": "../../etc/passwd"}, "it must be a time zone"),
        ({"stream": "s", "maxOffsetsPerTrigger": "0"}, "must be a number at least 1"),
        ({"stream": "s", "longPollMs": "60001"}, "must be a number from 0 to 60000"),
        ({"stream": "s", "maxBytesPerTrigger": "1 parsec"}, "must be a size in bytes at least 1"),
        (
            {"stream": "s", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "9 is above maxOffsetsPerTrigger 8",
        ),
        ({"stream": "s", "minPartitions": "9", "maxPartitions": "8"}, "9 is above maxPartitions 8"),
        ({"streamPattern": "("}, "is not a regular expression"),
        ({"assign": '{"s": ["0"]}'}, "must have a list of partition numbers"),
        ({"stream": "[1]"}, "must name one stream or several"),
    ],
)
def test_invalid_options_are_rejected_with_value_and_remedy(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_options(given)


@pytest.mark.parametrize("subject", ["orders", "orders.*.new", "*", ">", "orders.>", "größe.a>b", "a" * 2000])
def test_a_subject_is_any_that_nats_subscribes_on(subject: str) -> None:
    assert parse_options({"stream": "s", "subject": subject}).subject == subject


def test_streams_are_selected_in_three_ways() -> None:
    assert parse_options({"stream": "a, b"}).selection.streams == ("a", "b")
    assert parse_options({"stream": '["a,b"]'}).selection.streams == ("a,b",)
    assert parse_options({"streamPattern": "o.*"}).selection.pattern == "o.*"
    assert parse_options({"assign": '{"a": [2, 0, 2]}'}).selection.assigned == {"a": (0, 2)}


def test_positions_may_be_partial_and_times_override_them() -> None:
    offsets = '{"s": {"0": 5, "1": -1, "2": -2, "3": "latest"}, "t": 7}'
    starting = parse_options({"stream": "s,t", "startingOffsets": offsets}).starting
    found = [starting.of("s", n) for n in range(5)]
    assert found == [Position("offset", 5), LATEST, EARLIEST, LATEST, EARLIEST]
    assert starting.of("t", 4) == Position("offset", 7)
    timed = parse_options({"stream": "s", "startingOffsets": "latest", "startingTimestamp": "1700000000123"})
    assert timed.starting.of("s", 0) == Position("time", 1_700_000_000_123_000_000)


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("1970-01-01T01:00:00.000001+01:00", 1000),
        ("1969-12-31T23:59:59Z", -(10**9)),
        ("-5", -5_000_000),
    ],
)
def test_times_are_read_with_their_zone(text: str, nanos: int) -> None:
    assert parse_options({"stream": "s", "endingTimestamp": text}).ending.default == Position("time", nanos)


@pytest.mark.parametrize(
    ("zone", "hour_utc"),
    [
        *(("UTC", 1), ("Z", 1), ("Europe/Berlin", 0), ("America/New_York", 6), ("+02:00", -1), ("-09:30", 10.5)),
        *(("GMT+1", 0), ("UTC-1", 2)),
    ],
)
def test_times_without_a_zone_are_read_in_that_of_the_option(zone: str, hour_utc: float) -> None:
    options = {"stream": "s", "timeZone": zone, "startingTimestamp": "2026-11-25 01:00"}
    midnight = 1_795_564_800 * 10**9
    assert parse_options(options).starting.default == Position("time", midnight + int(hour_utc * 3600) * 10**9)


def test_a_time_without_a_zone_is_rejected_if_the_session_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    monkeypatch.delenv(driver.VARIABLE, raising=False)
    with pytest.raises(UsageError, match=r"startingTimestamp: the time names no zone.*set the option timeZone"):
        parse_options({"stream": "s", "startingTimestamp": "2026-11-25 01:19"})


def test_outside_spark_a_time_without_a_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        found = parse_options({"stream": "s", "endingTimestamp": "1970-01-01T09:00:01"}).ending.default
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == Position("time", 10**9)


def test_last_records_are_negative_numbers() -> None:
    assert parse_options({"stream": "s", "startingOffsets": "-100"}).starting.default == Position("last", 100)


def test_limits_take_units() -> None:
    given = {"stream": "s", "maxBytesPerTrigger": "64MiB", "maxTriggerDelay": "1h30m"}
    limits = parse_options(given).limits
    assert (limits.max_bytes, limits.max_delay_ms) == (64 << 20, 5_400_000)


def test_options_of_micro_batches_are_refused_in_a_batch_read_but_not_those_of_a_table() -> None:
    schema = schema_with_options(("value",), {"stream": "s", "maxOffsetsPerTrigger": "5"})
    BasculeSource({}).reader(schema)
    with pytest.raises(UsageError, match="option longPollMs has no meaning for a batch read: remove it"):
        BasculeSource({"stream": "s", "longpollms": "5"}).reader(schema)
    BasculeSource({"stream": "s", "longpollms": "5"}).streamReader(schema)


def test_an_option_of_kafka_is_answered_with_ours_also_by_archive() -> None:
    with pytest.raises(UsageError, match="no option 'subscribe': it is one of Kafka's connector, use stream"):
        archive(cast("Any", None), to="t", checkpoint="c", subscribe="orders")
