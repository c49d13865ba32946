"""Refusals that name what was asked for: fixed texts of the Liftbridge protocol say neither name nor value."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from bascule.errors import BrokerError, error

__all__ = ["naming"]

_BAD_SUBJECT: Final = "Subject is invalid"


@contextmanager
def naming(stream: str, *, partition: int | None = None, subject: str | None = None) -> Generator[None]:
    """Raise what the body raises, with the stream, the partition or the subject in the sentence.

    Args:
        stream: name of the stream that the body is about.
        partition: the partition, when it is about one.
        subject: the subject, when it is about one.
    """
    try:
        yield
    except BrokerError as failure:
        sentence = _sentence(failure, stream, partition, subject)
        if not sentence:
            raise
        raise error(failure.code, sentence, failure.details) from failure


def _sentence(failure: BrokerError, stream: str, partition: int | None, subject: str | None) -> str:
    """The better sentence; empty when the broker's own is good enough."""
    match failure.code:
        case "partition_not_found" if partition is not None:
            return f'stream "{stream}" has no partition {partition}, or does not exist: see bascule stream list'
        case "stream_not_found" if stream not in str(failure):
            return f'stream "{stream}" does not exist: see bascule stream list'
        case "stream_exists":
            return f'stream "{stream}" already exists: delete it first or take another name'
        case "invalid_argument" if str(failure) == _BAD_SUBJECT and subject is not None:
            return (
                f"subject {subject[:200]!r} is invalid: tokens joined by dots, without white space, `>` only at the end"
            )
        case _:
            return ""
