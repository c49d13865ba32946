"""The decoding stage on real Spark: which bytes become which columns, and which become errors."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from bascule.errors import UsageError
from bascule.pipeline.decode.columns import Decoding
from bascule.pipeline.model.decoders import Decode
from pyspark.sql import functions as F  # noqa: N812

pytestmark = pytest.mark.spark

SOURCE = "offset bigint, key binary, value binary, headers array<struct<key: string, value: binary>>"


def decoded(spark: Any, section: dict[str, Any], *values: bytes | None, key: bytes | None = None) -> list[Any]:
    """Rows of the decoding stage for these values, in order."""
    decode = Decode.model_validate(section)
    rows = [(index, key, value, []) for index, value in enumerate(values)]
    frame = Decoding.of(decode, "s").apply(spark.createDataFrame(rows, SOURCE))
    for name, kind in frame.dtypes:
        if kind == "variant":
            frame = frame.withColumn(name, F.to_json(name))
    return sorted(frame.collect(), key=lambda row: row.offset)


def classes(rows: list[Any], part: str = "value") -> list[str | None]:
    return [row[f"{part}_error"] and row[f"{part}_error"]["class"] for row in rows]


def test_text_must_be_utf8(spark: Any) -> None:
    rows = decoded(spark, {"value": "string", "key": "string"}, "grüß".encode(), b"\xff\xfe", None, b"", key=b"k")
    assert [row.value for row in rows] == ["grüß", None, None, ""]
    assert classes(rows) == [None, "InvalidUtf8", None, None]
    assert rows[1].value_error.decoder == "string"
    assert rows[1]["__raw_value"] == b"\xff\xfe"
    assert {row.key for row in rows} == {"k"}


JSON = {"value": {"format": "json", "schema": {"inline": "id BIGINT, name STRING, inner STRUCT<a: INT>"}}}


def test_one_json_object_becomes_its_columns(spark: Any) -> None:
    rows = decoded(
        spark,
        JSON,
        b'{"id": 1, "name": "x", "inner": {"a": 2}, "more": true}',
        b'{"id": 2}',
        b"{}",
        b' {"id":3} ',
        None,
    )
    assert classes(rows) == [None] * 5
    assert [row.value and (row.value.id, row.value.name) for row in rows] == [
        (1, "x"),
        (2, None),
        (None, None),
        (3, None),
        None,
    ]
    assert rows[0].value.inner.a == 2
    assert "__corrupt" not in rows[0].value.asDict()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b'{"id": 1', "MalformedJson"),
        (b"", "MalformedJson"),
        (b"  ", "MalformedJson"),
        (b'{"id": 1} x', "MalformedJson"),
        (b'{"id": 1}{"id": 2}', "MalformedJson"),
        (b'[{"id": 1}]', "NotAnObject"),
        (b"5", "NotAnObject"),
        (b"null", "NotAnObject"),
        (b'{"id": "x"}', "TypeMismatch"),
        (b'{"id": 9223372036854775808}', "TypeMismatch"),
        (b'{"id": 1, "inner": 5}', "TypeMismatch"),
        (b'{"id": 1, "id": 2}', "MalformedJson"),
        (b"\xff{}", "InvalidUtf8"),
    ],
)
def test_json_that_does_not_fit_is_an_error(spark: Any, value: bytes, error: str) -> None:
    rows = decoded(spark, JSON, value, b'{"id": 7}')
    assert classes(rows) == [error, None]
    assert rows[0].value is None
    assert rows[1].value.id == 7


def test_json_of_any_shape_becomes_a_variant(spark: Any) -> None:
    rows = decoded(spark, {"value": "variant"}, b'{"a": [1, null]}', b"5", b"null", b"{", b"", b"1 2", None)
    assert [row.value for row in rows] == ['{"a":[1,null]}', "5", "null", None, None, None, None]
    assert classes(rows) == [None, None, None, "MalformedJson", "MalformedJson", "MalformedJson", None]


DEBEZIUM = {
    "value": {"format": "json", "schema": {"inline": "id BIGINT, name STRING"}, "envelope": "debezium"},
}
EVENT = {"before": None, "after": {"id": 1, "name": "x"}, "op": "c", "ts_ms": 1_767_323_045_123, "source": {"db": "d"}}
AT = datetime(2026, 1, 2, 3, 4, 5, 123000, tzinfo=UTC).replace(tzinfo=None)


def test_change_events_of_debezium_in_json(spark: Any) -> None:
    wrapped = {"schema": {"type": "struct"}, "payload": {**EVENT, "op": "u", "before": {"id": 0, "name": "w"}}}
    rows = decoded(spark, DEBEZIUM, json.dumps(EVENT).encode(), json.dumps(wrapped).encode(), None, b'{"id": 1}')
    assert "value" not in rows[0].asDict()
    assert classes(rows) == [None, None, None, "NotAChangeEvent"]
    assert [row.op for row in rows] == ["c", "u", None, None]
    assert rows[0].before is None
    assert rows[0].after.asDict() == {"id": 1, "name": "x"}
    assert rows[1].before.asDict() == {"id": 0, "name": "w"}
    assert rows[0].ts == AT


def test_change_events_of_debezium_in_a_variant(spark: Any) -> None:
    section = {"value": {"format": "variant", "envelope": "debezium"}}
    rows = decoded(spark, section, json.dumps(EVENT).encode(), json.dumps({"payload": EVENT}).encode(), b"[]")
    assert classes(rows) == [None, None, "NotAChangeEvent"]
    assert [(row.op, row.before, row.after) for row in rows[:2]] == [("c", None, '{"id":1,"name":"x"}')] * 2
    assert rows[0].ts == AT


def test_change_events_of_a_delta_feed(spark: Any) -> None:
    section = {"value": {**DEBEZIUM["value"], "envelope": "deltaChangeFeed"}}
    kinds = ["insert", "update_preimage", "update_postimage", "delete", "other"]
    at = "2026-01-02T03:04:05.123Z"
    events = [
        {"id": 1, "name": kind, "_change_type": kind, "_commit_version": 3, "_commit_timestamp": at} for kind in kinds
    ]
    rows = decoded(spark, section, *(json.dumps(event).encode() for event in events))
    assert classes(rows) == [None, None, None, None, "NotAChangeEvent"]
    assert [row.op for row in rows] == ["c", "u", "u", "d", None]
    assert [row.before and row.before.name for row in rows] == [None, "update_preimage", None, "delete", None]
    assert [row.after and row.after.name for row in rows] == ["insert", None, "update_postimage", None, None]
    assert {row.ts for row in rows[:4]} == {AT}


AVRO = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {
            "name": "before",
            "type": ["null", {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]}],
        },
        {"name": "after", "type": ["null", "Row"]},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}


def test_avro_is_decoded_in_record_batches_and_a_bad_record_costs_no_other(spark: Any) -> None:
    section = {
        "value": {"format": "avro", "schema": {"inline": json.dumps(AVRO)}, "envelope": "debezium"},
        "key": "string",
    }
    good = bytes.fromhex("00 02 0e 02 63 02 86 f6 e7 8c 9c 67".replace(" ", ""))
    rows = decoded(spark, section, good, good[:-1], None, b"", key=b"k")
    assert classes(rows) == [None, "Malformed", None, "Malformed"]
    assert rows[0].op == "c"
    assert rows[0].after.id == 7
    assert rows[0].before is None
    assert rows[0].ts.year > 2000
    assert rows[1]["__raw_value"] == good[:-1]
    assert {row.key for row in rows} == {"k"}


def test_a_schema_without_the_fields_of_the_envelope_is_refused(spark: Any) -> None:
    section = {
        "value": {
            "format": "avro",
            "schema": {"inline": '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'},
            "envelope": "debezium",
        }
    }
    with pytest.raises(UsageError, match="not an envelope of debezium: it has no field op"):
        decoded(spark, section, b"\2")


def test_headers_are_decoded_one_by_one(spark: Any) -> None:
    frame = spark.createDataFrame(
        [
            (0, None, None, [("a", b"x"), ("a", None)]),
            (1, None, None, [("a", b"x"), ("b", b"\xff")]),
            (2, None, None, []),
        ],
        SOURCE,
    )
    decode = Decode.model_validate({"headers": "string"})
    rows = sorted(Decoding.of(decode, "s").apply(frame).collect(), key=lambda row: row.offset)
    assert [row.headers and [tuple(pair) for pair in row.headers] for row in rows] == [
        [("a", "x"), ("a", None)],
        None,
        [],
    ]
    assert classes(rows, "headers") == [None, "InvalidUtf8", None]
    assert [tuple(pair) for pair in rows[1]["__raw_headers"]] == [("a", b"x"), ("b", b"\xff")]
