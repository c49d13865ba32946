"""Decode errors: what is reported of a record that cannot be decoded, and the column that holds it.

A record never ends a batch by itself: a decoder raises `RecordError`, and the record's error column is set. Errors that
are not the record's, such as a registry that does not answer, are raised to Spark.
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["ERROR_DDL", "LONGEST_MESSAGE", "UNKNOWN_SCHEMA_ID", "Failure", "RecordError"]

ERROR_DDL: Final = "struct<class: string, message: string, decoder: string, schema_id: int>"
"""Type of an error column. `class`: kind of error; `message`: one sentence; `schema_id`: id in the registry or null."""

UNKNOWN_SCHEMA_ID: Final = "UnknownSchemaId"
"""Class of the errors of ids that the registry does not know."""

LONGEST_MESSAGE: Final = 500
"""Characters of a message that are kept."""


class RecordError(Exception):
    """The bytes of a record do not fit its schema.

    Attributes:
        kind: the class of the error, in camel case, e.g. `UnknownSchemaId`.
        schema_id: id in the registry, if it is known.
    """

    def __init__(self, kind: str, message: str, schema_id: int | None = None) -> None:
        super().__init__(message)
        self.kind: Final = kind
        self.schema_id: Final = schema_id


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of one record, as the error column has it."""

    kind: str
    message: str
    decoder: str
    schema_id: int | None = None

    @classmethod
    def of(cls, error: RecordError, decoder: str) -> "Failure":
        """From what a decoder raised."""
        return cls(error.kind, str(error)[:LONGEST_MESSAGE], decoder, error.schema_id)

    def row(self) -> dict[str, str | int | None]:
        """A value of the error column."""
        return {"class": self.kind, "message": self.message, "decoder": self.decoder, "schema_id": self.schema_id}
