"""Protobuf: golden bytes written by hand after the encoding of Protobuf, types, and bytes that do not fit."""

import struct
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import UsageError
from bascule.pipeline.decode.decoder import decode_column
from bascule.pipeline.decode.protobuf import ProtobufDecoder
from bascule.pipeline.decode.protobuf_files import (
    MAIN,
    ProtobufFile,
    compiled,
    files_of,
    from_descriptor_set,
    message_at,
)
from hypothesis import given
from hypothesis import strategies as st

pa: Any = import_module("pyarrow")

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
enum Kind { NONE = 0; BOOK = 1; }
message Order {
  int64 id = 1;
  string name = 2;
  optional string note = 3;
  uint64 big = 4;
  Kind kind = 5;
  repeated string tags = 6;
  map<string, Line> lines = 7;
  google.protobuf.Timestamp at = 8;
  google.protobuf.Int64Value maybe = 9;
  google.protobuf.Struct extra = 10;
  message Line { int32 count = 1; }
  Nothing marked = 11;
}
message Nothing {}
"""
GOLDEN = bytes.fromhex(
    "08 2a"  # id 42
    "12 03 616461"  # name
    "20 ff ff ff ff ff ff ff ff ff 01"  # big 2^64 − 1
    "28 07"  # kind 7, which has no name
    "32 01 78 32 01 79"  # tags
    "3a 07 0a 01 61 12 02 08 05"  # lines: "a" = {count: 5}
    "42 0b 08 c0 a7 ea cd 06 10 c0 95 8c 46"  # at: seconds, nanos
    "4a 02 08 09"  # maybe 9
    "52 0b 0a 09 0a 01 6b 12 04 1a 02 6f 6b"  # extra {"k": "ok"}
    "5a 00"  # marked
)


@pytest.fixture(scope="module")
def schema() -> ProtobufFile:
    return compiled({MAIN: PROTO}, MAIN)


def decoded(of: ProtobufDecoder, *values: bytes | None) -> tuple[list[Any], list[Any]]:
    """Through the types of Spark, as a task does it."""
    types: Any = import_module("pyspark.sql.pandas.types")
    kind = types.from_arrow_type(of.arrow_type, prefer_timestamp_ntz=True)
    data, errors = decode_column(of, pa.array(values, pa.binary()), types.to_arrow_type(kind, timezone="UTC"))
    return data.to_pylist(), errors.to_pylist()


def test_golden_bytes_become_the_columns_of_the_message(schema: ProtobufFile) -> None:
    (row,), (error,) = decoded(ProtobufDecoder(schema, "shop.Order"), GOLDEN)
    assert error is None
    assert row == {
        "id": 42,
        "name": "ada",
        "note": None,
        "big": Decimal(2**64 - 1),
        "kind": "7",
        "tags": ["x", "y"],
        "lines": [("a", {"count": 5})],
        "at": datetime(2026, 3, 18, 12, 0, 0, 147000, tzinfo=UTC),
        "maybe": 9,
        "extra": '{"k": "ok"}',
        "marked": True,
    }


def test_what_is_not_set_is_null_with_presence_and_the_default_without(schema: ProtobufFile) -> None:
    (row,), (error,) = decoded(ProtobufDecoder(schema, "shop.Order"), b"")
    assert error is None
    assert row == {
        "id": 0,
        "name": "",
        "note": None,
        "big": Decimal(0),
        "kind": "NONE",
        "tags": [],
        "lines": [],
        "at": None,
        "maybe": None,
        "extra": None,
        "marked": None,
    }


def test_bytes_that_are_not_the_message_are_an_error(schema: ProtobufFile) -> None:
    rows, errors = decoded(ProtobufDecoder(schema, "shop.Order"), b"\x12\x7fshort", None, GOLDEN)
    assert rows[0] is None
    assert errors[0]["class"] == "Malformed"
    assert errors[1:] == [None, None]


def test_required_fields_of_proto2_must_be_there() -> None:
    made = compiled({MAIN: 'syntax = "proto2"; message M { required int32 a = 1; }'}, MAIN)
    (row,), (error,) = decoded(ProtobufDecoder(made, "M"), b"")
    assert row is None
    assert (error["class"], error["message"]) == ("MissingRequired", "required fields are not set: a")


def test_a_message_that_contains_itself_is_refused_with_its_path() -> None:
    made = compiled({MAIN: 'syntax = "proto3"; message Tree { repeated Tree below = 1; }'}, MAIN)
    with pytest.raises(UsageError, match=r'the field "below" .* contains itself'):
        _ = ProtobufDecoder(made, "Tree").arrow_type


def test_the_message_must_be_named_when_there_are_several(schema: ProtobufFile) -> None:
    with pytest.raises(UsageError, match=r"name the message: the schema has shop\.Order, shop\.Nothing"):
        schema.message(None)
    with pytest.raises(UsageError, match=r"there is no message 'shop\.Purchase'"):
        schema.message("shop.Purchase")


def test_an_index_path_names_a_message(schema: ProtobufFile) -> None:
    assert message_at(schema, (0,)) == "shop.Order"
    assert message_at(schema, (1,)) == "shop.Nothing"
    names = {message_at(schema, (0, index)) for index in range(2)}
    assert "shop.Order.Line" in names
    assert message_at(schema, (2,)) is None


def test_text_that_is_not_valid_is_refused_with_the_reason_of_the_compiler() -> None:
    with pytest.raises(
        UsageError, match=r'the Protobuf schema is not valid: schema.proto:1:.*"Missing" is not defined'
    ):
        compiled({MAIN: 'syntax = "proto3"; message M { Missing a = 1; }'}, MAIN)
    with pytest.raises(UsageError, match="leaves the directory"):
        compiled({"../evil.proto": ""}, "../evil.proto")


def test_imports_are_read_beside_the_file_and_sets_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "part.proto").write_text('syntax = "proto3"; message Part { int32 a = 1; }')
    main = tmp_path / "whole.proto"
    main.write_text('syntax = "proto3"; import "part.proto"; message Whole { Part part = 1; }')
    made = compiled(files_of(main, main.read_text()), "whole.proto")
    assert made.message(None).full_name == "Whole"
    (tmp_path / "set.bin").write_bytes(made.descriptors)
    read = from_descriptor_set(tmp_path / "set.bin")
    assert read.message("Whole").full_name == "Whole"
    (tmp_path / "set.bin").write_bytes(b"not a set")
    with pytest.raises(UsageError, match="not a Protobuf descriptor set"):
        from_descriptor_set(tmp_path / "set.bin")


NUMBERS = """
syntax = "proto3";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/timestamp.proto";
message Numbers {
  double d = 1; float f = 2; google.protobuf.DoubleValue w = 3; repeated double r = 4; map<string, double> m = 5;
  google.protobuf.Value v = 6; google.protobuf.ListValue l = 7; google.protobuf.Struct s = 8;
  map<string, google.protobuf.Value> mv = 9; google.protobuf.Timestamp t = 10; repeated google.protobuf.Value rv = 11;
  uint64 u = 12;
}
"""


@pytest.fixture(scope="module")
def numbers() -> ProtobufDecoder:
    return ProtobufDecoder(compiled({MAIN: NUMBERS}, MAIN), "Numbers")


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_number_that_json_lacks_costs_its_record_alone(numbers: ProtobufDecoder, number: str) -> None:
    eight = struct.pack("<d", float(number))
    value = b"\x11" + eight
    in_value = [b"\x32\x09" + value, b"\x3a\x0b\x0a\x09" + value, b"\x42\x10\x0a\x0e\x0a\x01k\x12\x09" + value]
    in_value += [b"\x4a\x0e\x0a\x01k\x12\x09" + value, b"\x5a\x09" + value]
    plain = [b"\x09" + eight, b"\x1a\x09\x09" + eight, b"\x22\x08" + eight]
    rows, errors = decoded(numbers, *in_value, *plain, b"\x60\x01")
    assert [error["class"] for error in errors[:5]] == ["OutOfRange"] * 5
    assert errors[5:] == [None] * 4
    assert str(rows[5]["d"]) == number
    assert rows[8]["u"] == 1


@given(st.lists(st.binary(max_size=40), max_size=4), st.integers(1, 12), st.binary(max_size=30))
def test_no_bytes_raise_anything_but_an_error_of_the_record(
    numbers: ProtobufDecoder, parts: list[bytes], field: int, inside: bytes
) -> None:
    framed = bytes([field << 3 | 2, len(inside)]) + inside
    rows, errors = decoded(numbers, framed, b"".join(parts))
    assert all((row is None) == (error is not None) for row, error in zip(rows, errors, strict=True))
