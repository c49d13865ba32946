"""Avro: golden bytes written by hand after the specification of Avro, types, and bytes that do not fit."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from typing import Any

import pytest
from bascule.errors import UsageError
from bascule.pipeline.decode.avro import AvroDecoder, AvroText
from bascule.pipeline.decode.decoder import decode_column

pa: Any = import_module("pyarrow")

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": "Kind"},
    ],
}
GOLDEN = bytes.fromhex(
    "54"  # id 42
    "02 06 616461"  # name: branch 1, 3 bytes
    "80 98 89 8d a0 67"  # at 1 773 835 200 000 ms
    "b0 c0 02"  # day 20504
    "04 04d2"  # amount 12.34 = 0x04d2
    "04 0278 0279 00"  # tags: a block of 2, "x", "y", end
    "02 0261 02 00"  # counts: a block of 1, "a" = 1, end
    "02"  # kind B
    "00"  # other A
)


def decoder(schema: object, reader: object | None = None) -> AvroDecoder:
    writer = AvroText(json.dumps(schema))
    return AvroDecoder(writer if reader is None else AvroText(json.dumps(reader)), writer)


def decoded(of: AvroDecoder, *values: bytes | None) -> tuple[list[Any], list[Any]]:
    """Through the types of Spark, as a task does it."""
    types: Any = import_module("pyspark.sql.pandas.types")
    kind = types.from_arrow_type(of.arrow_type, prefer_timestamp_ntz=True)
    data, errors = decode_column(of, pa.array(values, pa.binary()), types.to_arrow_type(kind, timezone="UTC"))
    return data.to_pylist(), errors.to_pylist()


def test_golden_bytes_become_the_columns_of_the_schema() -> None:
    (row,), (error,) = decoded(decoder(ORDER), GOLDEN)
    assert error is None
    assert row == {
        "id": 42,
        "name": "ada",
        "at": datetime(2026, 3, 18, 12, tzinfo=UTC),
        "day": date(2026, 2, 20),
        "amount": Decimal("12.34"),
        "tags": ["x", "y"],
        "counts": [("a", 1)],
        "kind": "B",
        "other": "A",
    }


def test_every_prefix_is_an_error_and_so_is_a_longer_value() -> None:
    """Also the prefix that ends within a text: a shorter text must not be taken for the whole one."""
    prefixes = [GOLDEN[:end] for end in range(len(GOLDEN))]
    rows, errors = decoded(decoder(ORDER), *prefixes, GOLDEN + b"\0", GOLDEN)
    assert [row is None for row in rows] == [True] * (len(GOLDEN) + 1) + [False]
    assert {error["class"] for error in errors[: len(GOLDEN)]} == {"Malformed"}
    assert errors[len(GOLDEN)]["class"] == "TrailingBytes"
    assert errors[-1] is None


def test_null_stays_null_without_an_error() -> None:
    rows, errors = decoded(decoder(ORDER), None, GOLDEN)
    assert rows[0] is None
    assert errors == [None, None]


def test_a_reader_schema_converts_what_was_written() -> None:
    reader = {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "id", "type": "double"},
            {"name": "country", "type": "string", "default": "nl"},
        ],
    }
    (row,), (error,) = decoded(decoder(ORDER, reader), GOLDEN)
    assert error is None
    assert row == {"id": 42.0, "country": "nl"}


def test_schemas_that_do_not_fit_are_an_error_of_the_record() -> None:
    reader = {"type": "record", "name": "shop.Order", "fields": [{"name": "country", "type": "string"}]}
    (row,), (error,) = decoded(decoder(ORDER, reader), GOLDEN)
    assert row is None
    assert error["class"] == "NotResolved"
    assert error["decoder"] == "avro"


def test_a_value_that_the_column_cannot_hold_is_an_error_of_its_record_alone() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
    }
    largest = bytes.fromhex("fe ff ff ff ff ff ff ff ff 01")  # 2^63 − 1 ms: beyond 64 bits of microseconds
    rows, errors = decoded(decoder(schema), b"\x02", largest, b"\x04")
    assert [None if row is None else row["at"].microsecond for row in rows] == [1000, None, 2000]
    assert [error and error["class"] for error in errors] == [None, "OutOfRange", None]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (["string", "long"], "a union of 2 types"),
        ("null", "null only"),
        ({"type": "record", "name": "E", "fields": []}, "has no fields"),
        (["null", "R"], "contains itself"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}, "50 digits"),
    ],
)
def test_a_schema_without_a_column_type_is_refused_with_its_path(field: object, reason: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "inner", "type": field}]}
    with pytest.raises(UsageError, match=f'the field "inner" .*{reason}'):
        _ = decoder(schema).arrow_type


def test_a_schema_that_is_not_valid_is_refused() -> None:
    with pytest.raises(UsageError, match="the Avro schema is not valid"):
        _ = decoder({"type": "record", "name": "R", "fields": [{"name": "a", "type": "lon"}]}).arrow_type


def test_a_schema_may_use_others() -> None:
    used = json.dumps({"type": "record", "name": "shop.Place", "fields": [{"name": "city", "type": "string"}]})
    schema = {"type": "record", "name": "shop.Order", "fields": [{"name": "from", "type": "Place"}]}
    made = AvroDecoder(AvroText(json.dumps(schema), (used,)))
    (row,), (error,) = decoded(made, b"\x04de")
    assert error is None
    assert row == {"from": {"city": "de"}}
