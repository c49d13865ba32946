"""Decoders for the sections of a job file: reads schema files and asks registries, once, on the driver."""

import json

from bascule.errors import StateError, UsageError
from bascule.pipeline.decode.avro import AvroDecoder, AvroText
from bascule.pipeline.decode.decoder import PythonDecoder
from bascule.pipeline.decode.failures import RecordError
from bascule.pipeline.decode.protobuf import ProtobufDecoder
from bascule.pipeline.decode.protobuf_files import (
    MAIN,
    ProtobufFile,
    compiled,
    files_of,
    from_descriptor_set,
    registered_file,
)
from bascule.pipeline.decode.registry import RegistryClient
from bascule.pipeline.model.decoders import Avro, Protobuf
from bascule.pipeline.model.schemas import Registry, read_file

__all__ = ["python_decoder"]


def python_decoder(section: Avro | Protobuf, stream: str | None, part: str) -> PythonDecoder:
    """The decoder of a section.

    Args:
        section: of the job file.
        stream: name of the only stream that is read, for the default subject; None = there are several.
        part: `key` or `value`, for the default subject.

    Raises:
        UsageError: a schema is not valid, has no column type, or cannot be read; the subject must be named.
        BrokerError: of the registry.
    """
    decoder = _avro(section, stream, part) if isinstance(section, Avro) else _protobuf(section, stream, part)
    _ = decoder.arrow_type  # refuses what has no column type, before anything starts
    return decoder


def _avro(section: Avro, stream: str | None, part: str) -> AvroDecoder:
    given = section.schema_
    reader = None
    if section.reader_schema is not None:
        reader = AvroText(_as_json(section.reader_schema.text()))
    if given.registry is None:
        writer = AvroText(_as_json(given.text()))
        return AvroDecoder(reader or writer, writer)
    client = RegistryClient.of(given.registry)
    if reader is None:
        registered = client.by_version(_subject(given.registry, stream, part), given.registry.version)
        try:
            reader = AvroText.of(client, registered)
        except RecordError as failure:
            raise StateError("failed_precondition", str(failure)) from None
    return AvroDecoder(reader, registry=client)


def _as_json(text: str) -> str:
    """The schema text; a bare name such as `string` is a schema too."""
    stripped = text.strip()
    return stripped if stripped[:1] in ("{", "[", '"') else json.dumps(stripped)


def _protobuf(section: Protobuf, stream: str | None, part: str) -> ProtobufDecoder:
    client, file = _protobuf_file(section, stream, part)
    return ProtobufDecoder(file, file.message(section.message).full_name, client)


def _protobuf_file(section: Protobuf, stream: str | None, part: str) -> tuple[RegistryClient | None, ProtobufFile]:
    given = section.schema_
    if given.descriptor_set is not None:
        return None, from_descriptor_set(given.descriptor_set)
    if given.inline is not None:
        return None, compiled({MAIN: given.inline}, MAIN)
    if given.file is not None:
        return None, compiled(files_of(given.file, read_file(given.file)), given.file.name)
    assert given.registry is not None  # the model demands exactly one
    client = RegistryClient.of(given.registry)
    registered = client.by_version(_subject(given.registry, stream, part), given.registry.version)
    try:
        return client, registered_file(client, registered.id)
    except RecordError as failure:
        raise StateError("failed_precondition", str(failure)) from None


def _subject(registry: Registry, stream: str | None, part: str) -> str:
    if registry.subject is not None:
        return registry.subject
    if stream is None:
        message = f"decode.{part}: several streams are read, so name the subject in the section registry"
        raise UsageError("configuration_invalid", message, {"part": part})
    return f"{stream}-{part}"
