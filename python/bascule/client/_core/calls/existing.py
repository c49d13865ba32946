"""Compares an existing stream with the requested one, in the properties that cannot be changed later. No I/O."""

from collections.abc import Iterator
from typing import Any, Final

from bascule.client._core.calls.details import StreamDetails
from bascule.client._core.requests import StreamOptions
from bascule.client._core.types import Stream
from bascule.errors import BrokerError, error

__all__ = ["asks_for_details", "asks_for_something", "mismatch"]

_FIXED: Final = ("encryption", "partition_by_subject")
"""Settings that cannot change after creation and that only a Bascule broker reports."""


def asks_for_something(subject: str | None, options: StreamOptions) -> bool:
    """Whether the request contains a property to compare."""
    return subject is not None or options.partitions is not None or asks_for_details(options)


def asks_for_details(options: StreamOptions) -> bool:
    """Whether one of them is reported by FetchStreamDetails only."""
    return bool(options.group) or any(getattr(options, name) is not None for name in _FIXED)


def mismatch(
    name: str, subject: str | None, options: StreamOptions, found: Stream | None, details: StreamDetails | None
) -> BrokerError | None:
    """The error for an existing stream that differs from the request; `None` if it does not differ.

    Args:
        name: name of the stream.
        subject: the requested subject; `None` = any.
        options: the requested options.
        found: the existing stream; `None` = not known.
        details: details of the existing stream; `None` = not known.
    """
    differences = [*_seen_by_all(subject, options, found), *_seen_by_ours(options, details)]
    if not differences:
        return None
    said = ", its ".join(f"{what} is {there!r}, not {asked!r}" for what, asked, there in differences)
    text = f'stream "{name}" already exists, and its {said}: choose another name, or request these properties'
    asked_for, there_is = ({each[0]: each[at] for each in differences} for at in (1, 2))
    return error("stream_exists", text, {"stream": name, "asked": asked_for, "found": there_is})


def _seen_by_all(subject: str | None, options: StreamOptions, found: Stream | None) -> Iterator[tuple[str, Any, Any]]:
    """The differences in properties of Liftbridge's metadata: property, requested value, existing value."""
    if found is None:
        return
    if subject is not None and subject != found.subject:
        yield "subject", subject, found.subject
    if options.partitions is not None and (options.partitions or 1) != len(found.partitions):
        yield "number of partitions", options.partitions or 1, len(found.partitions)


def _seen_by_ours(options: StreamOptions, details: StreamDetails | None) -> Iterator[tuple[str, Any, Any]]:
    """The differences in properties that only Bascule has."""
    if details is None:
        return
    if options.group and options.group != details.group:
        yield "group", options.group, details.group
    there = {"encryption": details.encrypted, "partition_by_subject": bool(details.settings["partition_by_subject"])}
    for name in _FIXED:
        asked = getattr(options, name)
        if asked is not None and asked != there[name]:
            yield name, asked, there[name]
