"""Decodes Avro with fastavro: plain values of one schema, or framed values whose schemas are in a registry."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any, Final

from bascule._json import load_json
from bascule.errors import UsageError
from bascule.pipeline.decode.avro_types import arrow_type, simplified
from bascule.pipeline.decode.decoder import Conversion, with_pairs
from bascule.pipeline.decode.failures import RecordError
from bascule.pipeline.decode.framing import split_frame
from bascule.pipeline.decode.registry import RegisteredSchema, RegistryClient

__all__ = ["AvroDecoder", "AvroText"]

_PARSED: Final = 256
"""Parsed schemas that one process keeps."""


@dataclass(frozen=True)
class AvroText:
    """A schema as JSON text, and those that it uses, in order of use."""

    text: str
    uses: tuple[str, ...] = ()

    @classmethod
    def of(cls, client: RegistryClient, registered: RegisteredSchema) -> "AvroText":
        """A registered schema with all that it refers to.

        Raises:
            RecordError: `NotAvro`: it is a schema of another kind.
            BrokerError: of the registry.
        """
        if registered.kind != "AVRO":
            message = f"the schema {registered.id} is of the kind {registered.kind}, not AVRO"
            raise RecordError("NotAvro", message, registered.id)
        return cls(registered.text, tuple(dict.fromkeys(_used(client, registered))))


def _used(client: RegistryClient, registered: RegisteredSchema) -> list[str]:
    texts: list[str] = []
    for reference in registered.references:
        found = client.referenced(reference)
        texts += [*_used(client, found), found.text]
    return texts


class _Values:
    """Bytes as a file that refuses to read beyond its end: fastavro takes fewer bytes for a shorter text."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def read(self, size: int) -> bytes:
        """The next `size` bytes.

        Raises:
            EOFError: there are fewer, or `size` is negative.
        """
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise EOFError
        found = self.data[self.position : end]
        self.position = end
        return found


@dataclass(frozen=True)
class AvroDecoder:
    """Decodes values into the columns of `reader`.

    Attributes:
        reader: the schema of the column.
        writer: the schema of the values; None = each value has the id of its own, in `registry`.
        registry: where ids are resolved; None = values are plain.
    """

    reader: AvroText
    writer: AvroText | None = None
    registry: RegistryClient | None = None

    @property
    def name(self) -> str:
        """The format."""
        return "avro"

    @cached_property
    def arrow_type(self) -> Any:
        """See `avro_types`.

        Raises:
            UsageError: the schema is not valid, or a part of it has no column type.
        """
        _parsed(self.reader)
        return _arrow_type(self.reader)

    @cached_property
    def _conversion(self) -> Conversion | None:
        return with_pairs(self.arrow_type)

    def decode(self, value: bytes) -> Any:
        """See `PythonDecoder`. Errors of records: `NotFramed`, `UnknownSchemaId`, `NotAvro`, `Malformed`,
        `NotResolved` (the writer's schema cannot be converted to the reader's), `TrailingBytes`.
        """
        schema_id, writer = None, self.writer or self.reader
        if self.registry is not None:
            schema_id, value = split_frame(value)
            writer = AvroText.of(self.registry, self.registry.by_id(schema_id))
        row = _read(value, writer, self.reader, schema_id)
        return row if self._conversion is None else self._conversion(row)


def _read(value: bytes, writer: AvroText, reader: AvroText, schema_id: int | None) -> Any:
    fastavro = _fastavro()
    source = _Values(value)
    try:
        written = _parsed(writer)
    except UsageError as invalid:
        raise RecordError("NotAvro", str(invalid), schema_id) from None
    try:
        row = fastavro.schemaless_reader(source, written, None if reader == writer else _parsed(reader))
    except EOFError:
        message = f"the value of {len(value)} bytes ends before its schema does"
        raise RecordError("Malformed", message, schema_id) from None
    except fastavro._read_common.SchemaResolutionError as failure:  # noqa: SLF001 - exported nowhere else
        raise RecordError("NotResolved", f"the schemas do not fit: {failure}", schema_id) from None
    except (ValueError, IndexError, KeyError, TypeError, ArithmeticError, RecursionError) as failure:
        raise RecordError("Malformed", f"{type(failure).__name__}: {failure}", schema_id) from None
    if source.position != len(value):
        rest = len(value) - source.position
        raise RecordError("TrailingBytes", f"{rest} of {len(value)} bytes remain after the value", schema_id)
    return row


@lru_cache(_PARSED)
def _parsed(schema: AvroText) -> Any:
    """The schema as fastavro reads by it.

    Raises:
        UsageError: code `invalid_argument`: it is not a valid Avro schema.
    """
    fastavro = _fastavro()
    named: dict[str, Any] = {}
    try:
        for text in schema.uses:
            fastavro.parse_schema(simplified(load_json(text)), named_schemas=named)
        return fastavro.parse_schema(simplified(load_json(schema.text)), named_schemas=named)
    except Exception as failure:  # fastavro raises many kinds for schemas that are not valid
        if isinstance(failure, MemoryError):
            raise
        raise UsageError("invalid_argument", f"the Avro schema is not valid: {failure}") from None


@lru_cache(_PARSED)
def _arrow_type(schema: AvroText) -> Any:
    named: dict[str, Any] = {}
    for text in schema.uses:
        _collect(json.loads(text), "", named)
    return arrow_type(json.loads(schema.text), named)


def _collect(schema: Any, space: str, named: dict[str, Any]) -> None:
    """Add the named types of a schema to `named`, by full name."""
    if isinstance(schema, list):
        for each in schema:  # pyright: ignore[reportUnknownVariableType]
            _collect(each, space, named)
    if not isinstance(schema, Mapping):
        return
    document: dict[str, Any] = dict(schema)  # pyright: ignore[reportUnknownArgumentType]
    kind = document.get("type")
    if kind in ("record", "error", "enum", "fixed"):
        name = str(document.get("name", ""))
        space = name.rpartition(".")[0] if "." in name else str(document.get("namespace", space) or "")
        full = name if "." in name or not space else f"{space}.{name}"
        named[full] = {**document, "name": full}
    for below in (kind, document.get("items"), document.get("values")):
        if isinstance(below, (Mapping, list)):
            _collect(below, space, named)
    for field in document.get("fields") or ():
        _collect(field.get("type"), space, named)


@lru_cache(1)
def _fastavro() -> Any:
    try:
        return import_module("fastavro")
    except ImportError:
        message = "Avro needs the package fastavro: pip install 'bascule[pipeline]', on every executor"
        raise UsageError("invalid_argument", message) from None
