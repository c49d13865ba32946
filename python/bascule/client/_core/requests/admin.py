"""Requests of `bascule.admin.v1`, and answers that are a few values. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from bascule._admin_pb import message
from bascule._liftbridge_pb import message as liftbridge_message
from bascule.client._core.requests.bounds import check_partition
from bascule.client._core.types import Purged
from bascule.errors import UsageError

__all__ = [
    "broker_details",
    "check_create_stream",
    "cluster_status",
    "edit_stream",
    "group_details",
    "purge_stream",
    "read_in_effect",
    "read_purged",
    "read_settings",
    "read_trimmed",
    "resume_stream",
    "stream_details",
    "trim_partition",
]

_KINDS: Final[dict[int, tuple[type, str]]] = {
    FieldDescriptor.TYPE_STRING: (str, "a text"),
    FieldDescriptor.TYPE_BOOL: (bool, "true or false"),
    FieldDescriptor.TYPE_INT64: (int, "a whole number of 64 bits"),
}
_FIELDS: Final[Mapping[str, FieldDescriptor]] = message("StreamSettings").DESCRIPTOR.fields_by_name


def trim_partition(name: str, partition: int, before: int, *, dry_run: bool) -> bytes:
    """A TrimPartitionRequest."""
    _check_64_bits("before", before)
    request = message("TrimPartitionRequest")(
        name=name, partition=check_partition(partition), before=before, dry_run=dry_run
    )
    return request.SerializeToString()


def read_trimmed(answer: bytes) -> tuple[int, int]:
    """The log start before and after, of a TrimPartitionResponse."""
    found = message("TrimPartitionResponse").FromString(answer)
    return found.log_start_before, found.log_start


def purge_stream(name: str, *, now: bool, dry_run: bool) -> bytes:
    """A PurgeStreamRequest."""
    return message("PurgeStreamRequest")(name=name, now=now, dry_run=dry_run).SerializeToString()


def read_purged(answer: bytes) -> Purged:
    """The result of a PurgeStreamResponse."""
    found = message("PurgeStreamResponse").FromString(answer)
    return Purged(found.records, found.at_once)


def edit_stream(name: str, changes: Mapping[str, Any], *, dry_run: bool) -> bytes:
    """An EditStreamRequest.

    Args:
        name: of the stream.
        changes: settings to values; `None` = as the broker's configuration says.
        dry_run: only decide.

    Raises:
        UsageError: code `invalid_argument`: a setting that does not exist, or a value of another type.
    """
    request = message("EditStreamRequest")(name=name, dry_run=dry_run)
    for setting, value in changes.items():
        field = _FIELDS.get(setting)
        if field is None:
            text = f"{setting} is not a setting of a stream, which has {', '.join(_FIELDS)}"
            raise UsageError("invalid_argument", text)
        if value is None:
            request.reset.append(setting)
            continue
        kind, said = _KINDS[field.type]
        if type(value) is not kind:
            raise UsageError("invalid_argument", f"the settings are not valid: {setting} is {value!r}, not {said}")
        if kind is int:
            _check_64_bits(setting, value)
        setattr(request.changes, setting, value)
    return request.SerializeToString()


def read_settings(found: Any) -> dict[str, Any]:
    """All settings of a StreamSettings; `None` = absent."""
    return {name: getattr(found, name) if found.HasField(name) else None for name in _FIELDS}


def read_in_effect(answer: bytes) -> dict[str, Any]:
    """The settings in effect of a FetchStreamDetailsResponse, those that are known."""
    found = message("FetchStreamDetailsResponse").FromString(answer).in_effect
    return {field.name: value for field, value in found.ListFields()}


def resume_stream(name: str, partitions: Sequence[int], *, dry_run: bool) -> bytes:
    """A ResumeStreamRequest."""
    chosen = [check_partition(partition) for partition in partitions]
    return message("ResumeStreamRequest")(name=name, partitions=chosen, dry_run=dry_run).SerializeToString()


def check_create_stream(create: bytes) -> bytes:
    """A CheckCreateStreamRequest about a CreateStreamRequest."""
    asked = liftbridge_message("CreateStreamRequest").FromString(create)
    return message("CheckCreateStreamRequest")(create=asked).SerializeToString()


def stream_details(name: str) -> bytes:
    """A FetchStreamDetailsRequest."""
    return message("FetchStreamDetailsRequest")(name=name).SerializeToString()


def group_details(groups: Sequence[str]) -> bytes:
    """A FetchGroupDetailsRequest; no ids = all."""
    return message("FetchGroupDetailsRequest")(groups=groups).SerializeToString()


def broker_details() -> bytes:
    """A FetchBrokerDetailsRequest."""
    return message("FetchBrokerDetailsRequest")().SerializeToString()


def cluster_status() -> bytes:
    """A FetchClusterStatusRequest."""
    return message("FetchClusterStatusRequest")().SerializeToString()


def _check_64_bits(name: str, value: int) -> None:
    if not -(1 << 63) <= value < 1 << 63:
        raise UsageError("invalid_argument", f"{name} is {value}, not a whole number of 64 bits")
