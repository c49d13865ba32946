"""Streams that a new stream would share messages with, by subject or name. Pure.

A partition above 0 listens on the stream's subject with its number behind it, so the stream `pay` with two partitions
shares what the stream `pay.1` has, and `pay.1` shares partition 1 of `pay`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from bascule.control.specs import INTERNAL_STREAMS
from bascule.metadata import DEFAULT_NAMESPACE, Stream

__all__ = ["Neighbour", "neighbours"]

_Token: TypeAlias = str | range
"""A token of a subject: text, a wildcard, or the numbers of partitions."""
_Pattern: TypeAlias = tuple[_Token, ...]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A stream that shares messages with a new one.

    Attributes:
        resource: its name as policies have it.
        by_number: whether a partition above 0 of the new stream is among what shares them.
    """

    resource: str
    by_number: bool


def neighbours(
    streams: Iterable[Stream], name: str, subject: str, partitions: int, *, by_subject: bool
) -> Iterator[Neighbour]:
    """Those of `streams` that a stream of this name and subject shares messages with, in their order.

    Args:
        streams: what exists; the broker's own listen on nothing and are left out.
        name: of the new stream; one of the same name is not a neighbour.
        subject: of the new stream, wildcards allowed.
        partitions: of the new stream, ≥ 1.
        by_subject: all its partitions listen on the subject itself.
    """
    base, *numbered = _listens(subject, partitions, by_subject=by_subject)
    first = base[0]
    for stream in streams:
        is_own = stream.namespace == DEFAULT_NAMESPACE and stream.name in INTERNAL_STREAMS
        if is_own or (stream.namespace, stream.name) == (DEFAULT_NAMESPACE, name):
            continue
        if not _may_meet(first, stream):
            continue
        theirs: list[_Pattern] = [tuple(stream.name.split("."))]
        if stream.subject:
            by_hash = stream.settings.partition_by_subject
            theirs += _listens(stream.subject, len(stream.partitions), by_subject=by_hash)
        by_number = any(_meet(own, other) for own in numbered for other in theirs)
        if by_number or any(_meet(base, other) for other in theirs):
            is_default = stream.namespace == DEFAULT_NAMESPACE
            yield Neighbour(stream.name if is_default else f"{stream.namespace}/{stream.name}", by_number)


def _listens(subject: str, partitions: int, *, by_subject: bool) -> list[_Pattern]:
    """What partition 0 listens on, then what those above do."""
    base = tuple(subject.split("."))
    return [base] if by_subject or partitions < 2 else [base, (*base, range(1, partitions))]


def _may_meet(first: _Token, stream: Stream) -> bool:
    """Whether the first tokens can match: a fast check that excludes nearly all streams."""
    if first in ("*", ">"):
        return True
    return stream.subject.partition(".")[0] in (first, "*", ">") or stream.name.partition(".")[0] == first


def _meet(one: _Pattern, other: _Pattern) -> bool:
    """Whether there is a subject that both match."""
    for a, b in zip(one, other, strict=False):
        if ">" in (a, b):
            return True
        if not _same(a, b):
            return False
    return len(one) == len(other)


def _same(a: _Token, b: _Token) -> bool:
    if "*" in (a, b):
        return True
    if isinstance(a, range) and isinstance(b, range):
        return True  # both have 1
    if isinstance(a, range):
        a, b = b, a
    if isinstance(b, range):
        return isinstance(a, str) and a.isascii() and a.isdigit() and a[0] != "0" and len(a) < 10 and int(a) in b
    return a == b
