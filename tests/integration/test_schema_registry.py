"""The client of schema registries against a server on a socket: ids, subjects, references, logins, failures."""

import json
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import AccessError, StateError, UnavailableError, UsageError
from bascule.pipeline.decode import registry as client_module
from bascule.pipeline.decode.decoder import decode_column
from bascule.pipeline.decode.failures import RecordError
from bascule.pipeline.decode.registry import RegistryClient
from bascule.pipeline.decode.resolve import python_decoder
from bascule.pipeline.model.base import BASE
from bascule.pipeline.model.decoders import Avro, Protobuf
from bascule.pipeline.model.schemas import Registry

from tests.schema_registry import SchemaRegistry, schema_registry

pa: Any = import_module("pyarrow")

FIRST = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
SECOND = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
    }
)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as running:
        yield running


def framed(schema_id: int, value: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + value


def avro(registry: SchemaRegistry, **more: Any) -> Any:
    section = Avro.model_validate({"format": "avro", "schema": {"registry": {"url": registry.url, **more}}})
    return python_decoder(section, "orders", "value")


def decoded(decoder: Any, *values: bytes) -> tuple[list[Any], list[Any]]:
    types: Any = import_module("pyspark.sql.pandas.types")
    kind = types.from_arrow_type(decoder.arrow_type, prefer_timestamp_ntz=True)
    data, errors = decode_column(decoder, pa.array(values, pa.binary()), types.to_arrow_type(kind, timezone="UTC"))
    return data.to_pylist(), [error and (error["class"], error["schema_id"]) for error in errors.to_pylist()]


def test_values_of_all_versions_become_the_columns_of_the_latest(registry: SchemaRegistry) -> None:
    old, new = registry.register("orders-value", FIRST), registry.register("orders-value", SECOND)
    decoder = avro(registry)
    values = [framed(old, b"\x02"), framed(new, b"\x04\x02\x04hi"), framed(99, b"\x02"), framed(99, b"\x02"), b"{}"]
    rows, errors = decoded(decoder, *values)
    assert rows == [{"id": 1, "note": None}, {"id": 2, "note": "hi"}, None, None, None]
    assert errors == [None, None, ("UnknownSchemaId", 99), ("UnknownSchemaId", 99), ("NotFramed", None)]
    decoded(decoder, *values)
    assert registry.asked.count("/schemas/ids/99") == 1, "an unknown id is asked for once in a while"
    assert registry.asked.count(f"/schemas/ids/{old}") == 1


def test_a_version_can_be_chosen(registry: SchemaRegistry) -> None:
    registry.register("orders-value", FIRST)
    new = registry.register("orders-value", SECOND)
    rows, errors = decoded(avro(registry, version=1), framed(new, b"\x04\x02\x04hi"))
    assert (rows, errors) == ([{"id": 2}], [None])
    with pytest.raises(StateError, match=r"Version 7 not found") as raised:
        avro(registry, version=7)
    assert raised.value.code == "not_found"
    with pytest.raises(StateError, match="Subject 'a/b' not found"):
        avro(registry, subject="a/b")


def test_references_are_resolved(registry: SchemaRegistry) -> None:
    registry.register(
        "place", json.dumps({"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]})
    )
    order = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "from", "type": "Place"}]})
    reference = {"name": "Place", "subject": "place", "version": 1}
    schema_id = registry.register("orders-value", order, references=[reference])
    rows, errors = decoded(avro(registry), framed(schema_id, b"\x04de"))
    assert (rows, errors) == ([{"from": {"city": "de"}}], [None])


def test_a_registry_that_fails_for_a_moment_is_asked_again(registry: SchemaRegistry) -> None:
    registry.register("orders-value", FIRST)
    registry.failures += [500, 503]
    avro(registry)
    assert len(registry.asked) == 3


def test_a_registry_that_does_not_answer_ends_the_task_not_the_record(registry: SchemaRegistry) -> None:
    schema_id = registry.register("orders-value", FIRST)
    decoder = avro(registry, timeout="300ms")
    registry.failures += [500] * 20
    with pytest.raises(UnavailableError, match="with 500: Error in the backend data store"):
        decoded(decoder, framed(schema_id, b"\x02"))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone = RegistryClient(f"http://127.0.0.1:{unused.getsockname()[1]}", timeout_ms=200)
        with pytest.raises(UnavailableError, match="does not answer"):
            gone.by_id(1)


def test_a_login_is_read_from_a_file_and_never_shown(registry: SchemaRegistry, tmp_path: Path) -> None:
    registry.login = ("ada", "s3cret")
    registry.register("orders-value", FIRST)
    with pytest.raises(AccessError, match="401"):
        avro(registry)
    (tmp_path / "password").write_text("s3cret\n")
    section = Registry.model_validate(
        {"url": registry.url, "username": "ada", "passwordFile": "password"}, context={BASE: tmp_path}
    )
    client = RegistryClient.of(section)
    assert client.by_version("orders-value", "latest").text == FIRST
    assert "s3cret" not in repr(client)
    assert str(client.authorization) not in repr(client)


def test_a_variable_with_the_login_must_be_set(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    section = Registry.model_validate({"url": registry.url, "tokenVariable": "BASCULE_TEST_TOKEN"})
    with pytest.raises(UsageError, match="BASCULE_TEST_TOKEN is not set"):
        RegistryClient.of(section)
    monkeypatch.setenv("BASCULE_TEST_TOKEN", "t")
    assert RegistryClient.of(section).authorization == "Bearer t"


def test_protobuf_of_a_registry(registry: SchemaRegistry) -> None:
    registry.register("part.proto", 'syntax = "proto3"; message Part { int32 a = 1; }', "PROTOBUF")
    text = (
        'syntax = "proto3"; import "part.proto"; '
        "message Order { Part part = 1; message Line { int32 n = 1; } } message Other {}"
    )
    reference = {"name": "part.proto", "subject": "part.proto", "version": 1}
    schema_id = registry.register("orders-value", text, "PROTOBUF", [reference])
    section = Protobuf.model_validate(
        {"format": "protobuf", "schema": {"registry": {"url": registry.url}}, "message": "Order"}
    )
    decoder = python_decoder(section, "orders", "value")
    message = bytes.fromhex("0a 02 08 05")
    values = [
        framed(schema_id, b"\0" + message),
        framed(schema_id, b"\2\2"),
        framed(schema_id, b"\4\0\0"),
        framed(8, b"\0"),
    ]
    rows, errors = decoded(decoder, *values)
    assert rows == [{"part": {"a": 5}}, None, None, None]
    assert errors == [None, ("OtherMessage", schema_id), ("OtherMessage", schema_id), ("UnknownSchemaId", 8)]


def test_a_schema_of_another_kind_is_an_error_of_the_record(registry: SchemaRegistry) -> None:
    registry.register("orders-value", FIRST)
    other = registry.register("else", 'syntax = "proto3"; message M {}', "PROTOBUF")
    rows, errors = decoded(avro(registry), framed(other, b""))
    assert (rows, errors) == ([None], [("NotAvro", other)])


def test_another_server_is_refused(registry: SchemaRegistry) -> None:
    client = RegistryClient(f"{registry.url}/elsewhere")
    with pytest.raises(StateError, match="404"):
        client._get("/x")  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(RecordError):
        client.by_id(1)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Each test has a registry of its own, perhaps on the port of another one."""
    yield
    client_module._by_id.cache_clear()  # pyright: ignore[reportPrivateUsage]
    client_module._referenced.cache_clear()  # pyright: ignore[reportPrivateUsage]
    client_module._unknown.clear()  # pyright: ignore[reportPrivateUsage]
