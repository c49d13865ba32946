"""What happens to rows that their stream would refuse: they fail the write, are dropped, or become dead letters."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bascule.errors import BrokerError, error
from bascule.spark.sink.calls import SinkStream, Target
from bascule.spark.sink.checking import DIGEST_MODULUS, Checked, Closed, LetterRequest, Numbers, Refusal, check
from bascule.spark.sink.options import SinkOptions
from bascule.spark.sink.rows import with_subject
from bascule.spark.usage import usage

logger = logging.getLogger("bascule.spark")

NO_STREAM: Final = "the row has no stream: set it in the column stream, or set the option"


@dataclass(frozen=True)
class Counts:
    """Refused rows that did not fail the write.

    Attributes:
        oversize: rows that are too large.
        invalid: rows that are invalid.
        cut: dead letters that were cut to fit in their stream.
    """

    oversize: int = 0
    invalid: int = 0
    cut: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.oversize + other.oversize, self.invalid + other.invalid, self.cut + other.cut)

    def sentence(self, options: SinkOptions) -> str:
        """What happened to the rows, as a clause; empty = there are none."""
        done = {"drop": "dropped", "dlq": f"sent to the dead letter stream {options.dlq_stream}"}
        parts = [
            f"{count} {what} {'row' if count == 1 else 'rows'} {done[action]}"
            for count, what, action in (
                (self.oversize, "oversize", options.on_oversize),
                (self.invalid, "invalid", options.on_invalid),
            )
            if count
        ]
        if self.cut:
            parts.append(f"{self.cut} of the dead letters cut to fit")
        return ", ".join(parts)


NO_COUNTS: Final = Counts()


@dataclass
class RowCheck:
    """Checks the rows of one task.

    Attributes:
        options: of the write.
        task: number of the task.
        limits: what a stream accepts; None = it does not exist, or takes no rows of clients.
        origin: headers of dead letters: query, epoch, task.
        counts: of rows refused so far.
        rows: that the task was given so far.
        digest: of these as they came, below 2^128.
        sent_rows: rows and dead letters that are to be stored so far.
        sent_digest: of the rows that are to be stored, below 2^128; meaningless once a row was refused.
    """

    options: SinkOptions
    task: int
    limits: Callable[[str], SinkStream | None]
    origin: tuple[tuple[str, str], ...] = ()
    counts: Counts = NO_COUNTS
    rows: int = 0
    digest: int = 0
    sent_rows: int = 0
    sent_digest: int = 0
    _has_logged: bool = field(default=False, init=False)

    def letter_limits(self) -> SinkStream | None:
        """What the dead letters' stream accepts; None = none is set.

        Raises:
            UsageError: it does not exist.
        """
        name = self.options.dlq_stream
        if name is None:
            return None
        found = self.limits(name)
        if found is None:
            raise usage(f"option dlqStream is {name!r}, and there is no such stream: create it, or name another")
        return found

    def sifted(self, stream: str | None, rows: Any, numbers: Numbers) -> Checked:
        """The rows of one stream, checked and counted; `kept` and `letters` are to be sent, with the option `subject`.

        The digest of the input is taken before that option, so a repeated epoch has the same one under another subject.

        Raises:
            BrokerError: a row is refused and its option says `fail`; the error names it.
        """
        rule = self._rule(stream)
        filled = with_subject(rows, self.options.subject)
        checked = check(filled, stream or "", rule, numbers=numbers, letters=self._letters(stream, rule))
        self._add(checked if filled is rows else check(rows, stream or ""))
        self.sent_rows += checked.kept.num_rows + sum(letters.num_rows for letters in checked.letters)
        self.sent_digest = (self.sent_digest + checked.digest) % DIGEST_MODULUS
        if checked.oversize.count or checked.invalid.count:
            self._refuse(rule, checked)
        return checked

    def compare(self, stored: Sequence[Target]) -> None:
        """Compare what the broker stored with what was to be stored.

        Raises:
            StateError: `sink_pieces_missing`: they differ, which is a defect of the broker or of the connection.
        """
        rows = sum(target.rows for target in stored)
        digest = sum(int(target.digest, 16) for target in stored) % DIGEST_MODULUS
        if rows != self.sent_rows:
            found = f"{rows} of the {self.sent_rows} rows of task {self.task}"
        elif self.counts == NO_COUNTS and digest != self.sent_digest:
            found = f"other rows than the {rows} of task {self.task}"
        else:
            return
        text = f"the broker stored {found}, so nothing of them is published: run the epoch again, and report the defect"
        raise error("sink_pieces_missing", text, {"task": self.task, "sent": self.sent_rows, "stored": rows})

    def digested(self, stream: str | None, rows: Any) -> None:
        """Only count the rows: those of an epoch that is stored already, whatever its stream accepts by now."""
        self._add(check(rows, stream or ""))

    def _add(self, checked: Checked) -> None:
        self.rows += checked.rows
        self.digest = (self.digest + checked.digest) % DIGEST_MODULUS

    def _rule(self, stream: str | None) -> SinkStream | Closed:
        if not stream:
            return Closed("invalid_argument", NO_STREAM)
        if stream == self.options.dlq_stream:
            return Closed("invalid_argument", f"stream {stream} is the one for dead letters: rows cannot name it")
        missing = f"stream {self.options.namespace}/{stream} does not exist, or takes no rows of clients"
        return self.limits(stream) or Closed("stream_not_found", missing)

    def _letters(self, stream: str | None, rule: SinkStream | Closed) -> LetterRequest | None:
        bound = self.letter_limits()
        if bound is None:
            return None
        headers = [("stream", stream or ""), *self.origin]
        if isinstance(rule, SinkStream):
            headers.append(("max_record_bytes", str(rule.max_record_bytes)))
        oversize, invalid = (action == "dlq" for action in (self.options.on_oversize, self.options.on_invalid))
        return LetterRequest(oversize, invalid, bound.max_record_bytes, headers)

    def _refuse(self, rule: SinkStream | Closed, checked: Checked) -> None:
        options = self.options
        if checked.oversize.first is not None and options.on_oversize == "fail":
            assert isinstance(rule, SinkStream)  # only its limit makes a row too large
            raise self._too_large(rule, checked.oversize.first)
        if checked.invalid.first is not None and options.on_invalid == "fail":
            raise self._invalid(checked.invalid.first)
        counts = Counts(checked.oversize.count, checked.invalid.count, checked.cut)
        self.counts += counts
        if not self._has_logged:
            self._has_logged = True
            first = checked.invalid.first or checked.oversize.first
            text = "" if first is None else first.text
            logger.warning("task %d: %s; the first: %s", self.task, counts.sentence(options), text)

    def _too_large(self, stream: SinkStream, row: Refusal) -> BrokerError:
        text = (
            f"row {row.number} of task {self.task} is too large for stream {stream.name}: its record has {row.bytes} "
            f"bytes (the value {row.value_bytes}), and max_record_bytes is {stream.max_record_bytes}; raise it with "
            f"`bascule stream edit {stream.name} --max-record-bytes`, or set {self._other('onOversize')}"
        )
        details = {"bytes": row.bytes, "limit": stream.max_record_bytes, "row": row.number, "task": self.task}
        return error(row.code, text, {**details, "stream": stream.name})

    def _invalid(self, row: Refusal) -> BrokerError:
        text = (
            f"row {row.number} of task {self.task} is invalid: {row.text}; correct the query, or set "
            f"{self._other('onInvalid')}"
        )
        return error(row.code, text, {"row": row.number, "task": self.task})

    def _other(self, option: str) -> str:
        """What the option may be set to, so that such rows do not end the query."""
        return f"sink.{option} of the job to drop" if self.options.in_job else f"{option} to drop or dlq"


def total(counts: Iterable[Counts]) -> Counts:
    """The sum."""
    return sum(counts, NO_COUNTS)
