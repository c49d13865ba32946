"""Decodes Protobuf: plain messages of one schema, or framed messages whose schemas are in a registry.

A message is read by the schema of the column, whatever schema it was written by: fields are matched by number, and
those that the column's schema lacks are left out.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from bascule.pipeline.decode.failures import RecordError
from bascule.pipeline.decode.framing import split_frame, split_index_path
from bascule.pipeline.decode.protobuf_files import ProtobufFile, message_at, registered_file
from bascule.pipeline.decode.protobuf_types import Mapped, message_type
from bascule.pipeline.decode.registry import RegistryClient

__all__ = ["ProtobufDecoder"]


@dataclass(frozen=True)
class ProtobufDecoder:
    """Decodes messages into the columns of one message type.

    Attributes:
        file: the schema of the column.
        message: full name of the message.
        registry: where ids are resolved; None = values are plain messages.
    """

    file: ProtobufFile
    message: str
    registry: RegistryClient | None = None

    @property
    def name(self) -> str:
        """The format."""
        return "protobuf"

    @property
    def arrow_type(self) -> Any:
        """See `protobuf_types`.

        Raises:
            UsageError: there is no such message, or it has no column type.
        """
        return self._mapped.arrow

    @cached_property
    def _mapped(self) -> Mapped:
        return message_type(self.file.message(self.message))

    @cached_property
    def _class(self) -> Any:
        return GetMessageClass(self.file.message(self.message))

    def __reduce__(self) -> tuple[Any, ...]:
        # what is built from the schema is not sent to tasks
        return (type(self), (self.file, self.message, self.registry))

    def decode(self, value: bytes) -> Any:
        """See `PythonDecoder`. Errors of records: `NotFramed`, `UnknownSchemaId`, `NotProtobuf`, `OtherMessage`,
        `Malformed`, `MissingRequired`, `OutOfRange`.
        """
        schema_id = None
        if self.registry is not None:
            schema_id, rest = split_frame(value)
            path, value = split_index_path(rest)
            found = message_at(registered_file(self.registry, schema_id), path)
            if found != self.message:
                reason = f"it is a message {found or f'at {list(path)}, which the schema lacks'}, not {self.message}"
                raise RecordError("OtherMessage", reason, schema_id)
        try:
            message = self._class.FromString(value)
        except DecodeError:
            reason = f"the {len(value)} bytes are not a message {self.message}"
            raise RecordError("Malformed", reason, schema_id) from None
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise RecordError("MissingRequired", f"required fields are not set: {missing}", schema_id)
        convert = self._mapped.convert
        try:
            return message if convert is None else convert(message)
        except (json_format.Error, ValueError, TypeError, OverflowError, RecursionError) as problem:
            reason = f"a value of the message {self.message} does not fit its column: {problem}"
            raise RecordError("OutOfRange", reason, schema_id) from None
