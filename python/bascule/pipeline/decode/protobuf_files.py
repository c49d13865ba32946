"""Protobuf schemas as descriptor sets: compiled from `.proto` text by the compiler of grpcio-tools, or given."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from bascule.errors import UsageError
from bascule.pipeline.decode.failures import RecordError
from bascule.pipeline.decode.registry import RegisteredSchema, RegistryClient

__all__ = ["ProtobufFile", "compiled", "files_of", "from_descriptor_set", "message_at", "registered_file"]

MAIN: Final = "schema.proto"
"""Name of a `.proto` text that has none."""
_LIMIT_S: Final = 60.0


@dataclass(frozen=True)
class ProtobufFile:
    """A serialized descriptor set and the name of the file in it that has the schema; None = all of them have."""

    descriptors: bytes
    main: str | None = None

    def message(self, name: str | None) -> Descriptor:
        """The descriptor of a message.

        Args:
            name: full name; None = the only top-level message.

        Raises:
            UsageError: there is no such message, or several to choose from.
        """
        return _message(self, name)


def compiled(files: Mapping[str, str], main: str) -> ProtobufFile:
    """Compile `.proto` texts.

    Args:
        files: text by import path.
        main: the path of the schema itself.

    Raises:
        UsageError: code `invalid_argument`: a text is not valid, an import is missing, or there is no compiler.
    """
    if find_spec("grpc_tools") is None:
        message = "`.proto` text needs the package grpcio-tools: pip install 'bascule[pipeline]', or give descriptorSet"
        raise UsageError("invalid_argument", message)
    import grpc_tools  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs] - only for text

    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory(prefix="bascule-proto-") as folder:
        for name, text in files.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise UsageError("invalid_argument", f'the import path "{name}" leaves the directory of the schema')
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_text(text, encoding="utf-8")
        output = Path(folder) / "descriptors.bin"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={folder}", f"--proto_path={well_known}"]
        command += ["--include_imports", f"--descriptor_set_out={output}", main]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
        if ended.returncode:
            reason = " ".join((ended.stderr or ended.stdout).replace(f"{folder}/", "").split())
            raise UsageError("invalid_argument", f"the Protobuf schema is not valid: {reason[:500]}")
        return ProtobufFile(output.read_bytes(), main)


def files_of(file: Path, text: str) -> dict[str, str]:
    """A `.proto` file and those beside it that it imports, by import path.

    Raises:
        UsageError: an imported file cannot be read.
    """
    from bascule.pipeline.model.schemas import read_file  # noqa: PLC0415 - only here

    found: dict[str, str] = {file.name: text}
    waiting = [text]
    while waiting:
        for name in _imports(waiting.pop()):
            path = file.parent / name
            if name not in found and path.is_file():  # the others are the compiler's own, or its error
                found[name] = read_file(path)
                waiting.append(found[name])
    return found


def _imports(text: str) -> list[str]:
    return re.findall(r'(?:^|;)\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"\s*;', text, re.MULTILINE)


def from_descriptor_set(file: Path) -> ProtobufFile:
    """The descriptor set in a file.

    Raises:
        UsageError: the file cannot be read, is not a descriptor set, or lacks files that it imports.
    """
    try:
        found = ProtobufFile(file.read_bytes())
    except OSError as failure:
        raise UsageError("configuration_invalid", f"cannot read {file}: {failure.strerror}") from None
    _pool(found)
    return found


@lru_cache(256)
def registered_file(client: RegistryClient, schema_id: int) -> ProtobufFile:
    """The compiled schema of an id.

    Raises:
        RecordError: `UnknownSchemaId`; `NotProtobuf`: the schema is of another kind, or is not valid.
        BrokerError: of the registry.
    """
    registered = client.by_id(schema_id)
    if registered.kind != "PROTOBUF":
        message = f"the schema {schema_id} is of the kind {registered.kind}, not PROTOBUF"
        raise RecordError("NotProtobuf", message, schema_id)
    files = {MAIN: registered.text}
    _add_references(client, registered, files)
    try:
        return compiled(files, MAIN)
    except UsageError as invalid:
        raise RecordError("NotProtobuf", str(invalid), schema_id) from None


def _add_references(client: RegistryClient, registered: RegisteredSchema, files: dict[str, str]) -> None:
    for reference in registered.references:
        if reference.name not in files:
            found = client.referenced(reference)
            files[reference.name] = found.text
            _add_references(client, found, files)


def message_at(file: ProtobufFile, path: tuple[int, ...]) -> str | None:
    """The full name of the message at an index path of the main file; None = there is none."""
    pool: Any = _pool(file)
    descriptor: FileDescriptor = pool.FindFileByName(file.main)
    messages: list[Descriptor] = list(descriptor.message_types_by_name.values())
    found: Descriptor | None = None
    for index in path:
        if index >= len(messages):
            return None
        found = messages[index]
        messages = list(found.nested_types)
    return None if found is None else found.full_name


@lru_cache(256)
def _pool(file: ProtobufFile) -> DescriptorPool:
    try:
        documents = FileDescriptorSet.FromString(file.descriptors)
    except DecodeError:
        raise UsageError("invalid_argument", "the file is not a Protobuf descriptor set") from None
    if not documents.file:
        raise UsageError("invalid_argument", "the Protobuf descriptor set has no files")
    pool = DescriptorPool()
    waiting = {document.name: document for document in documents.file}
    done: set[str] = set()

    def add(name: str) -> None:
        """Add a file after those that it imports."""
        if name in done:
            return
        if name not in waiting:
            message = f'the Protobuf descriptor set lacks "{name}": write it with protoc --include_imports'
            raise UsageError("invalid_argument", message)
        done.add(name)
        for imported in waiting[name].dependency:
            add(imported)
        pool.AddSerializedFile(waiting[name].SerializeToString())

    for name in waiting:
        add(name)
    return pool


def _message(file: ProtobufFile, name: str | None) -> Descriptor:
    pool: Any = _pool(file)
    if name is not None:
        try:
            return pool.FindMessageTypeByName(name)
        except KeyError:
            there = ", ".join(message.full_name for message in _top_level(file))
            raise UsageError("invalid_argument", f"there is no message {name!r}: the schema has {there}") from None
    messages = _top_level(file)
    if len(messages) != 1:
        there = ", ".join(message.full_name for message in messages)
        raise UsageError("invalid_argument", f"name the message: the schema has {there or 'none'}")
    return messages[0]


def _top_level(file: ProtobufFile) -> list[Descriptor]:
    pool: Any = _pool(file)
    names = [file.main] if file.main else [each.name for each in FileDescriptorSet.FromString(file.descriptors).file]
    files: list[FileDescriptor] = [
        pool.FindFileByName(name) for name in names if file.main or not name.startswith("google/protobuf/")
    ]
    return [message for each in files for message in each.message_types_by_name.values()]
