"""Which rows of a record batch their stream would refuse; found natively, by the rules of the broker."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from bascule import engine
from bascule.spark.sink.calls import SinkStream

DIGEST_MODULUS: Final = 1 << 128


@dataclass(frozen=True)
class Refusal:
    """Why a row is refused.

    Attributes:
        code: error code.
        text: the sentence.
        number: of the row within its task, from 0.
        bytes: of the record; 0 = it is none.
        value_bytes: of its value.
    """

    code: str
    text: str
    number: int
    bytes: int
    value_bytes: int


@dataclass(frozen=True)
class Refused:
    """How many rows are refused, and the first of them."""

    count: int
    first: Refusal | None


@dataclass(frozen=True)
class Numbers:
    """Numbers of rows within their task: consecutive ones from `first` on, or an Arrow array of type uint64."""

    first: int
    listed: Any = None

    def buffer(self) -> Any:
        """The array's memory; None = the numbers are consecutive."""
        if self.listed is None:
            return None
        offset, count = self.listed.offset, len(self.listed)
        return memoryview(self.listed.buffers()[1]).cast("B").cast("Q")[offset : offset + count]


FROM_ZERO: Final = Numbers(0)


@dataclass(frozen=True)
class Closed:
    """Why a stream takes no rows at all: error code and sentence."""

    code: str
    text: str


@dataclass(frozen=True)
class LetterRequest:
    """Which refused rows become dead letters.

    Attributes:
        oversize: rows that are too large.
        invalid: rows that are invalid.
        record_bytes: `max_record_bytes` of the dead letters' stream.
        headers: that all letters get, by name without the prefix `bascule.dlq.`.
    """

    oversize: bool
    invalid: bool
    record_bytes: int
    headers: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Checked:
    """A record batch after the check.

    Attributes:
        rows: of the batch.
        digest: of all of them, below 2^128.
        kept: the rows that are not refused.
        oversize: rows that are too large.
        invalid: rows that are invalid.
        letters: record batches of dead letters, with columns of DoPut.
        cut: how many letters were cut to fit.
    """

    rows: int
    digest: int
    kept: Any
    oversize: Refused
    invalid: Refused
    letters: Sequence[Any]
    cut: int


def check(
    batch: Any,
    stream: str,
    rule: SinkStream | Closed | None = None,
    *,
    numbers: Numbers = FROM_ZERO,
    letters: LetterRequest | None = None,
) -> Checked:
    """Compare a record batch with the stream that it is for.

    Args:
        batch: with columns of DoPut.
        stream: name.
        rule: what the stream accepts, or why it takes no rows at all; None = no row is refused.
        numbers: of the rows.
        letters: dead letters to make.

    Raises:
        BrokerError: a column that no stream takes; a dead letter that does not fit even when it is cut.
    """
    wanted = letters and (letters.oversize, letters.invalid, letters.record_bytes, letters.headers)
    with engine.native_errors():
        rows, digest, kept, oversize, invalid, messages, cut = engine.check_rows(
            _serialized(batch),
            stream,
            limits=(rule.partitions, rule.max_record_bytes) if isinstance(rule, SinkStream) else None,
            closed=(rule.code, rule.text) if isinstance(rule, Closed) else None,
            first=numbers.first,
            numbers=numbers.buffer(),
            letters=wanted,
        )
    return Checked(
        rows=rows,
        digest=int.from_bytes(digest, "little"),
        kept=batch if kept is None else _kept(batch, kept),
        oversize=_refused(oversize),
        invalid=_refused(invalid),
        letters=[found for message in messages for found in _batches(message)],
        cut=cut,
    )


def _serialized(batch: Any) -> Any:
    pa: Any = import_module("pyarrow")
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(out.getvalue()).cast("B")


def _batches(message: bytes) -> Any:
    return import_module("pyarrow").ipc.open_stream(message)


def _kept(batch: Any, bitmap: bytes) -> Any:
    pa: Any = import_module("pyarrow")
    return batch.filter(pa.Array.from_buffers(pa.bool_(), batch.num_rows, [None, pa.py_buffer(bitmap)]))


def _refused(found: tuple[int, tuple[str, str, int, int, int] | None]) -> Refused:
    count, first = found
    return Refused(count, None if first is None else Refusal(*first))
