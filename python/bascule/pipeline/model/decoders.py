"""The decoders of a job file. A decoder without settings is written as its name: `value: string`."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from bascule.pipeline.model.base import Part
from bascule.pipeline.model.schemas import AvroSchema, JsonSchema, ProtobufSchema

__all__ = [
    "Avro",
    "Decode",
    "Decoder",
    "Envelope",
    "HeaderDecoder",
    "Json",
    "Protobuf",
    "Raw",
    "String",
    "Variant",
]

Envelope = Literal["debezium", "deltaChangeFeed"]
"""Formats of change events: columns `op`, `before`, `after`, `ts` replace the column `value`."""

_ENVELOPE: Any = Field(
    default=None,
    description="the values are change events of Debezium or of Delta's change data feed: the columns op, before, "
    "after and ts replace the column value",
)


class Raw(Part):
    """The bytes as they are."""

    format: Literal["raw"] = "raw"


class String(Part):
    """UTF-8 text. Bytes that are not UTF-8 are a decode error."""

    format: Literal["string"] = "string"


class Json(Part):
    """JSON with known columns, decoded in the JVM. Other fields are ignored, missing ones are null."""

    format: Literal["json"] = "json"
    schema_: JsonSchema = Field(
        alias="schema", description="the columns; with an envelope, those of one row (before and after)"
    )
    envelope: Envelope | None = _ENVELOPE


class Variant(Part):
    """JSON of any shape, as Spark's VARIANT, decoded in the JVM: `variant_get(value, '$.customer.id', 'bigint')`."""

    format: Literal["variant"] = "variant"
    envelope: Envelope | None = _ENVELOPE


class Avro(Part):
    """Avro."""

    format: Literal["avro"] = "avro"
    schema_: AvroSchema = Field(alias="schema", description="the schema of the values, and of the column")
    reader_schema: AvroSchema | None = Field(
        default=None, description="the schema of the column, if it differs; a file or inline"
    )
    envelope: Envelope | None = _ENVELOPE


class Protobuf(Part):
    """Protobuf."""

    format: Literal["protobuf"] = "protobuf"
    schema_: ProtobufSchema = Field(alias="schema", description="the schema")
    message: str | None = Field(
        default=None, description="full name of the message; default: the only top-level message of the schema"
    )
    envelope: Envelope | None = _ENVELOPE


def _named(value: object) -> object:
    """A name alone is a decoder without settings."""
    return {"format": value} if isinstance(value, str) else value


Decoder = Annotated[Raw | String | Json | Variant | Avro | Protobuf, Field(discriminator="format")]
_Decoder = Annotated[
    Decoder, BeforeValidator(_named, json_schema_input_type=Decoder | Literal["raw", "string", "variant"])
]
HeaderDecoder = Annotated[
    Raw | String | Variant,
    Field(discriminator="format"),
]
_HeaderDecoder = Annotated[
    HeaderDecoder, BeforeValidator(_named, json_schema_input_type=HeaderDecoder | Literal["raw", "string", "variant"])
]


def _word(given: object) -> object:
    """`null` of YAML without quotes, as the word that it is meant to be."""
    return "null" if given is None else given


_Words = Literal["fail", "null", "dlq"]
_OnDecodeError = Annotated[_Words, BeforeValidator(_word, json_schema_input_type=_Words)]


class Decode(Part):
    """How bytes become columns. Key, value and headers are decoded independently; null stays null."""

    key: _Decoder = Field(default=Raw(), description="decoder of the column key")
    value: _Decoder = Field(default=Raw(), description="decoder of the column value")
    headers: _HeaderDecoder = Field(default=Raw(), description="decoder of each header's value")
    on_decode_error: _OnDecodeError = Field(
        default="fail",
        description="what a record that cannot be decoded does: fail = end the job; null = the column is null, and "
        "key_error, value_error or headers_error has the reason; dlq = the record goes to deadLetters",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if getattr(self.key, "envelope", None) is not None:
            raise ValueError("key: an envelope is for values: leave it out")
        return self
