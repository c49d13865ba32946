"""CreateStream: the checks that need no state, and the request for the controller (liftbridge §3.1)."""

import re
from typing import Any, get_args

from bascule.control import StreamRequest
from bascule.control.decide import ALL_BROKERS
from bascule.control.specs import INTERNAL_STREAMS
from bascule.engine import name_flaw
from bascule.metadata import DEFAULT_NAMESPACE, MAX_SUBJECT_BYTES, StreamSettings
from bascule.metadata.model import Codec, Durability, NatsAcks, NatsCopy
from bascule.metadata.rejection import MAX_NAME_BYTES, wrong_setting
from bascule.protocols.grpc_status import Status, StatusError

MAX_SHOWN = 80

_FORBIDDEN_IN_NAME = re.compile(r"[/\\*>\s]")
_FORBIDDEN_IN_SUBJECT = re.compile(r"[\x00-\x20\x7f]")


def stream_request(asked: Any, defaults: StreamSettings) -> StreamRequest:
    """Make the controller's request, after the checks that need no state, in the order of liftbridge §3.1.

    Raises:
        StatusError: what is wrong with it.
    """
    if not asked.name:
        raise StatusError(Status.INVALID_ARGUMENT, "Name cannot be empty")
    # Before anything that looks at every character.
    _check_length("Stream name", asked.name, MAX_NAME_BYTES)
    _check_length("Subject", asked.subject, MAX_SUBJECT_BYTES)
    _check_length("Queue group", asked.group, MAX_NAME_BYTES)
    if not is_subject(asked.subject):
        raise StatusError(Status.INVALID_ARGUMENT, "Subject is invalid", reason="invalid_subject")
    if asked.name in INTERNAL_STREAMS:
        raise StatusError(Status.INVALID_ARGUMENT, "Stream is reserved")
    _check_name(asked.name)
    if flaw := name_flaw(asked.subject):
        raise StatusError(Status.INVALID_ARGUMENT, f"Subject {flaw}")
    if _FORBIDDEN_IN_SUBJECT.search(asked.group):
        text = f"Queue group {asked.group[:MAX_SHOWN]!r} is invalid: white space and control characters are not allowed"
        raise StatusError(Status.INVALID_ARGUMENT, text)
    if flaw := name_flaw(asked.group):
        raise StatusError(Status.INVALID_ARGUMENT, f"Queue group {flaw}")
    if asked.partitions < 0:
        raise StatusError(Status.INVALID_ARGUMENT, f"Invalid partitions {asked.partitions}, must not be negative")
    return StreamRequest(
        namespace=DEFAULT_NAMESPACE,
        name=asked.name,
        subject=asked.subject,
        queue_group=asked.group,
        partitions=asked.partitions or 1,
        replication_factor=_replication_factor(asked.replicationFactor),
        settings=_settings(asked, defaults),
    )


def is_subject(subject: str) -> bool:
    """Whether a stream may sit on `subject`: no white space, no empty token, `>` only at the end; `*` anywhere."""
    tokens = subject.split(".")
    return not _FORBIDDEN_IN_SUBJECT.search(subject) and all(tokens) and ">" not in tokens[:-1]


def _check_length(what: str, name: str, most: int) -> None:
    if (size := len(name.encode())) > most:
        text = f"{what} {name[:MAX_SHOWN]!r}… is {size} bytes long, more than {most}: give a shorter one"
        raise StatusError(Status.INVALID_ARGUMENT, text)


def _check_name(name: str) -> None:
    """Names appear in subjects, paths and logs: reject some characters."""
    if flaw := name_flaw(name):
        raise StatusError(Status.INVALID_ARGUMENT, f"Stream name {flaw}")
    reason = ""
    if name in (".", ".."):
        reason = "it must not be . or .."
    elif found := _FORBIDDEN_IN_NAME.search(name):
        reason = f"it contains {found.group()!r}; white space and / \\ * > are not allowed"
    if reason:
        raise StatusError(Status.INVALID_ARGUMENT, f"Stream name {name[:MAX_SHOWN]!r} is invalid: {reason}")


def _replication_factor(asked: int) -> int:
    """0 stands for 1, −1 for all brokers; other negative numbers are refused when replicas are placed."""
    if asked == 0:
        return 1
    return ALL_BROKERS if asked == -1 else asked


def _settings(asked: Any, defaults: StreamSettings) -> StreamSettings:
    def number(field: str, setting: str) -> int | None:
        if not asked.HasField(field):
            return None
        value: int = getattr(asked, field).value
        if problem := wrong_setting(setting, value, field):
            raise StatusError(Status.INVALID_ARGUMENT, problem)
        return value

    def flag(field: str) -> bool | None:
        return bool(getattr(asked, field).value) if asked.HasField(field) else None

    def one_of(field: str, names: tuple[str, ...], default: str) -> Any:
        value: str = getattr(asked, field)
        if value and value not in names:
            raise StatusError(Status.INVALID_ARGUMENT, f"{field} is {value[:80]!r}, not one of {', '.join(names)}")
        return value or default

    concurrency_control, encryption = flag("optimisticConcurrencyControl"), flag("encryption")
    return StreamSettings(
        durability=one_of("durability", get_args(Durability), defaults.durability),
        codec=one_of("codec", get_args(Codec), defaults.codec),
        nats_copy=one_of("natsCopy", get_args(NatsCopy), defaults.nats_copy),
        nats_acks=one_of("natsAcks", get_args(NatsAcks), defaults.nats_acks),
        max_record_bytes=number("maxRecordBytes", "max_record_bytes"),
        partition_by_subject=bool(flag("partitionBySubject")),
        concurrency_control=defaults.concurrency_control if concurrency_control is None else concurrency_control,
        retention_bytes=number("retentionMaxBytes", "retention_bytes"),
        retention_messages=number("retentionMaxMessages", "retention_messages"),
        retention_age_ms=number("retentionMaxAge", "retention_age_ms"),
        cleaner_interval_ms=number("cleanerInterval", "cleaner_interval_ms"),
        segment_bytes=number("segmentMaxBytes", "segment_bytes"),
        segment_age_ms=number("segmentMaxAge", "segment_age_ms"),
        compact_enabled=flag("compactEnabled"),
        compact_parallelism=number("compactMaxGoroutines", "compact_parallelism"),
        auto_pause_ms=number("autoPauseTime", "auto_pause_ms"),
        auto_pause_disable_if_subscribers=flag("autoPauseDisableIfSubscribers"),
        min_isr=number("minIsr", "min_isr"),
        retention_after_archive=flag("retentionAfterArchive"),
        retention_after_archive_max_bytes=number("retentionAfterArchiveMaxBytes", "retention_after_archive_max_bytes"),
        retention_hold_max_bytes=number("retentionHoldMaxBytes", "retention_hold_max_bytes"),
        retention_hold_expiry_ms=number("retentionHoldExpiry", "retention_hold_expiry_ms"),
        encryption=defaults.encryption if encryption is None else encryption,
    )
