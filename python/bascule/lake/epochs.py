"""Decides whether an epoch is appended to a table, is there already, or is refused. Pure.

A *writer* is one target of one query. The table's own commit records the last epoch of each writer, so that an epoch
that is replayed after a crash is recognised. It also records the offsets that the table covers, so that records are
not appended again by another query, or by the same one with a new or an older checkpoint.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from bascule.errors import BrokerError, StateError
from bascule.lake.ranges import Covered, Source, Written, extend, starting_offsets

_RANDOM_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Writer:
    """One target of one query, or of one run of a batch job.

    Attributes:
        query_id: of the query, or the same for all runs of the job.
        target: name of the target.
        range_id: of a batch job: stands for what the job does and the range of records that it reads. Each range is
            one writer with the single epoch 0, so that a run that is repeated is recognised.
    """

    query_id: str
    target: str
    range_id: str = ""

    def __str__(self) -> str:
        return f"{self.query_id}.{self.range_id}/{self.target}" if self.range_id else self._owner

    @property
    def number(self) -> int:
        """A number that stands for this writer."""
        return number_of(str(self))

    @property
    def owner(self) -> int:
        """A number that stands for the query or the job: the same for all ranges of a job."""
        return number_of(self._owner)

    @property
    def _owner(self) -> str:
        return f"{self.query_id}/{self.target}"


@dataclass(frozen=True)
class Epoch:
    """What one attempt at an epoch has written for one table.

    Attributes:
        writer: who writes.
        number: of the epoch.
        run_id: run of the query; a new one after each restart.
        token: drawn for each attempt.
        rows: number of rows.
        ranges: offsets by source; None = the rows have no offsets.
        complete: see `bascule.lake.ranges.extend`.
        offsets_hash: of the checkpoint's file of offsets for this epoch, by `bascule.spark.checkpoint_copies`; empty =
            not known.
    """

    writer: Writer
    number: int
    run_id: str
    token: str
    rows: int
    ranges: Mapping[Source, Written] | None
    complete: bool = False
    offsets_hash: str = ""

    def shown_ranges(self) -> dict[str, list[int]]:
        """First offset and end by source, as the table's history shows them."""
        return {
            f"{source} (incarnation {source.incarnation})": [written.first, written.end]
            for source, written in (self.ranges or {}).items()
        }


@dataclass(frozen=True)
class Recorded:
    """The last epoch of a writer, as the table's commit has it. `offsets` stands for `Epoch.offsets_hash`; 0 = not
    known. `complete`: 1, if `Epoch.complete` was true.
    """

    epoch: int
    run: int
    token: int
    rows: int
    offsets: int = 0
    complete: int = 0


@dataclass(frozen=True)
class TableState:
    """What a snapshot of a table says about one epoch.

    Attributes:
        last: last epoch of its writer.
        target_writer: `Writer.owner` of the writer that used the same target name last.
        covered: offsets of those sources of the epoch that the table has rows of.
        is_foreign: the table has rows, and none of its commits is of a query or a job.
    """

    last: Recorded | None = None
    target_writer: int | None = None
    covered: Mapping[Source, Covered] = field(default_factory=dict[Source, Covered])
    is_foreign: bool = False


@dataclass(frozen=True)
class Append:
    """The epoch is appended; its commit records these."""

    recorded: Recorded
    covered: Mapping[Source, Covered]


@dataclass(frozen=True)
class Already:
    """The table has the epoch. `own`: from this very attempt, whose first answer was lost."""

    own: bool


@dataclass(frozen=True)
class Noted:
    """An epoch that the checkpoint has written to the table before.

    Attributes:
        epoch: its number.
        file: of the checkpoint, which says so.
    """

    epoch: int
    file: str


def decide(table: str, state: TableState, epoch: Epoch, noted: Noted | None = None) -> Append | Already:
    """Whether to append an epoch.

    Args:
        table: path of the table, for messages.
        state: of the snapshot that the commit will be based on.
        epoch: with at least one row, or a planned range without records.
        noted: the last epoch before it that the checkpoint has written; None = none, or not known.

    Raises:
        StateError: the epoch is older than the table, a second write under one name, or its records are in the table;
            or the table lacks the epoch that is noted, or has rows that no query wrote.
    """
    last = state.last
    if noted is not None and (last is None or last.epoch < noted.epoch):
        raise lacking(table, last, epoch, noted, state.covered)
    if last is not None and epoch.number < last.epoch:
        raise _refused(
            f"{table} has epoch {last.epoch} of this query, and the checkpoint continues with epoch {epoch.number}: an "
            f"older copy of the checkpoint was restored. {_remedy(state)}",
            table,
            epoch,
            "sink_epoch",
        )
    if last is not None and epoch.number == last.epoch:
        return _replayed(table, state, last, epoch)
    if state.is_foreign and epoch.ranges is not None:
        raise foreign(table, epoch)
    if epoch.ranges is None:
        _check_target(table, state, epoch)
    else:
        _check_overlap(table, state, epoch, epoch.ranges)
    number = epoch.writer.number
    # The options may change between runs: an epoch that was filtered may have left out records behind its last row.
    follows = last is not None and bool(last.complete) and epoch.number == last.epoch + 1
    covered = {
        source: extend(state.covered.get(source), written, number, complete=epoch.complete, follows=follows)
        for source, written in (epoch.ranges or {}).items()
        if written.rows or not _is_covered(state, source, written)
    }
    numbers = (number_of(epoch.run_id), number_of(epoch.token), epoch.rows, _offsets_number(epoch), int(epoch.complete))
    return Append(Recorded(epoch.number, *numbers), covered)


def lacking(
    table: str, last: Recorded | None, epoch: Epoch, noted: Noted, covered: Mapping[Source, Covered] | None = None
) -> BrokerError:
    """The refusal of a table that lacks an epoch which its checkpoint has written.

    Args:
        table: path of the table.
        last: last epoch of the query in it; None = it has none.
        epoch: that would be appended.
        noted: what the checkpoint notes.
        covered: what the table has of the epoch's sources, as far as known.
    """
    has = "none of this query's epochs" if last is None else f"epoch {last.epoch} of this query"
    why = "the table was deleted, or this is another one" if last is None else "an older copy of it was restored"
    offsets = f"startingOffsets {_offsets(covered)}" if covered else "startingOffsets"
    return _refused(
        f"{table} has {has}, and the checkpoint continues with epoch {epoch.number} after it has written epoch "
        f"{noted.epoch}: {why}, and the records between would be missing. Restore the table, or use a new checkpoint "
        f"and {offsets}; to continue without these records, delete {noted.file}",
        table,
        epoch,
        "sink_epoch",
    )


def foreign(table: str, epoch: Epoch) -> BrokerError:
    """The refusal of a table whose rows another program wrote: which records they are is not recorded."""
    return _refused(
        f"{table} has rows that Bascule did not write, and nothing shows which records of the streams are among them: "
        "write to a new table. To keep these rows, begin the query after them (startingOffsets), and copy them to the "
        "new table with the program that wrote them",
        table,
        epoch,
    )


def run_of(job_group: str | None) -> str | None:
    """The id of the run of a streaming query; None = the job group is the user's, not Spark's.

    Spark gives each run a random UUID. A group that a notebook or a scheduler sets keeps its name after a restart, so
    it does not distinguish runs.
    """
    return job_group if job_group and _RANDOM_UUID.fullmatch(job_group) else None


def number_of(text: str) -> int:
    """A number of 63 bits that stands for a text: tables record numbers only."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def _offsets_number(epoch: Epoch) -> int:
    return number_of(epoch.offsets_hash) if epoch.offsets_hash else 0


def _replayed(table: str, state: TableState, last: Recorded, epoch: Epoch) -> Already:
    if last.token == number_of(epoch.token):
        return Already(own=True)
    if last.run == number_of(epoch.run_id) and not epoch.writer.range_id:
        raise _refused(
            f"{table} has epoch {epoch.number} of this query from another write of the same run: give each of the "
            f"query's writes to this table a name of its own with the option target (now {epoch.writer.target})",
            table,
            epoch,
        )
    if 0 not in (last.offsets, _offsets_number(epoch)) and last.offsets != _offsets_number(epoch):
        raise _refused(
            f"{table} has epoch {epoch.number} of this query, and this checkpoint planned the epoch at another time: "
            "it is a copy of the checkpoint that wrote it, or the other way round. Give each query a new checkpoint of "
            f"its own; the one that wrote the epoch may continue. {_remedy(state)}{_rest(epoch)}",
            table,
            epoch,
            "sink_replay_differs",
        )
    missing = [
        source
        for source, written in (epoch.ranges or {}).items()
        if written.rows and (source not in state.covered or written.end > state.covered[source].end)
    ]
    if missing or epoch.rows != last.rows:
        what = f"records of {missing[0]} that the table lacks" if missing else f"{epoch.rows} rows, not {last.rows}"
        if epoch.writer.range_id:
            raise _refused(
                f"{table} has the rows of an earlier run of this job over the same records, and this run has {what}: "
                "the query gives other rows each time. Write to a new table",
                table,
                epoch,
                "sink_replay_differs",
            )
        raise _refused(
            f"{table} has epoch {epoch.number} of this query, and its repetition has {what}: the checkpoint was copied "
            f"or restored, or the query gives other rows each time. {_remedy(state)}{_rest(epoch)}",
            table,
            epoch,
            "sink_replay_differs",
        )
    return Already(own=False)


def _check_target(table: str, state: TableState, epoch: Epoch) -> None:
    if state.last is None and state.target_writer not in (None, epoch.writer.owner):
        raise _refused(
            f"{table} was written by another query under the target name {epoch.writer.target}, and without the "
            "columns stream, partition and offset nothing shows whether these rows are there already. If the "
            "checkpoint was deleted, write to a new table; if both queries are meant, set the option target",
            table,
            epoch,
        )


def _check_overlap(table: str, state: TableState, epoch: Epoch, ranges: Mapping[Source, Written]) -> None:
    for source, written in ranges.items():
        covered = state.covered.get(source)
        if covered is None or not written.rows or not _is_covered(state, source, written):
            continue
        if covered.writer == epoch.writer.number and not epoch.complete:
            continue  # a join or a watermark gives records later than others: the epoch alone shows that they are new
        if epoch.writer.range_id:
            raise _refused(
                f"{table} has the records of {source} before offset {covered.end}, and this run would append them "
                f"again from offset {written.first}. {_range_remedy(state)}",
                table,
                epoch,
            )
        because = "another query has archived them"
        if state.last is None:
            because = "the query has a new checkpoint, or another query archives the same stream"
        elif covered.writer == epoch.writer.number:
            because = "its earlier epochs have them"
        raise _refused(
            f"{table} has the records of {source} before offset {covered.end}, and epoch {epoch.number} would append "
            f"them again from offset {written.first}: {because}. {_remedy(state)}",
            table,
            epoch,
        )


def _is_covered(state: TableState, source: Source, written: Written) -> bool:
    """Whether the table has the first offset of a range already."""
    covered = state.covered.get(source)
    return covered is not None and written.first < covered.end


def _remedy(state: TableState) -> str:
    if not state.covered:
        return "Write to a new table"
    offsets = _offsets(state.covered)
    return f"Continue with a new checkpoint and startingOffsets {offsets}, or write to a new table"


def _rest(epoch: Epoch) -> str:
    """The records that the remedy may leave out when an epoch is not repeated as it was."""
    if not epoch.ranges:
        return ""
    begins = {source: Covered(written.first, written.first, 0) for source, written in epoch.ranges.items()}
    return (
        f". The epoch begins at {_offsets(begins)}: this table may lack some of its records, and other targets all of "
        "them"
    )


def _range_remedy(state: TableState) -> str:
    return (
        f"Set startingOffsets {_offsets(state.covered)} to append the records after them, or write to a new table; a "
        "run that was interrupted is completed by a run over the same records (startingOffsets and endingOffsets)"
    )


def _offsets(covered: Mapping[Source, Covered]) -> str:
    return json.dumps(starting_offsets(covered), sort_keys=True)


def _refused(message: str, table: str, epoch: Epoch, code: str = "sink_conflict") -> BrokerError:
    details: dict[str, Any] = {"table": table, "query": epoch.writer.query_id, "epoch": epoch.number}
    return StateError(code, message, details)
