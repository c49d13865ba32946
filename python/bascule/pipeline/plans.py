"""The plan of a job: what a run would do, found out without writing anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bascule.errors import BrokerError, StateError, UsageError
from bascule.pipeline.checkpoints import LastEpoch, last_epoch
from bascule.pipeline.failures import failure_of
from bascule.pipeline.files import parse_job
from bascule.pipeline.model.base import is_url
from bascule.pipeline.model.job import Job
from bascule.pipeline.reaching import check_reached
from bascule.pipeline.sessions import check_packages, session_of
from bascule.pipeline.sql import check_query, check_row_by_row, selected
from bascule.pipeline.stages import Stages
from bascule.pipeline.targets import targets_of
from bascule.pipeline.targets.streams import StreamTarget
from bascule.pipeline.targets.table import TableTarget
from bascule.spark.resolving import resolve_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PlannedColumn", "PlannedPartition", "PlannedTarget", "RunPlan", "plan"]


FAIL: Final = "fail: "
"""Begins the action of a target that does not take the rows; the reason follows."""


@dataclass(frozen=True)
class PlannedPartition:
    """A partition of the source, and the offsets that a new query would read now. `end` is exclusive."""

    stream: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class PlannedColumn:
    """A column of a stage: `source` = the view of the SELECT, `result` = what targets get."""

    stage: str
    column: str
    type: str


@dataclass(frozen=True)
class PlannedTarget:
    """A target. `action`: create, append, merge, or what keeps the rows from it."""

    name: str
    place: str
    action: str


@dataclass(frozen=True)
class RunPlan:
    """What a run would do.

    Attributes:
        job: its name.
        mode: of the job.
        checkpoint: its directory, and whether the run begins or continues there; empty for a batch run.
        partitions: that are read.
        columns: of the stages.
        targets: of the job; the dead letters are last.
        once: what gets each epoch, or range of a batch job, exactly once, together or each by itself.
    """

    job: str
    mode: str
    checkpoint: str
    partitions: list[PlannedPartition]
    columns: list[PlannedColumn]
    targets: list[PlannedTarget]
    once: str

    @property
    def would_fail(self) -> bool:
        """Whether the run would end at one of its targets."""
        return any(target.action.startswith(FAIL) for target in self.targets)


def plan(job: Job | Mapping[str, Any], *, spark: "SparkSession | None" = None) -> RunPlan:
    """Check a job as far as possible without writing: streams, schemas, conditions, SELECT and targets.

    Args:
        job: of `from_file`, or a mapping with the keys of a job file.
        spark: the session; None = one as the job says.

    Raises:
        UsageError: the job is not valid, or Spark refuses a part of it.
        BrokerError: a broker or a registry does not answer, or there is no such stream.
    """
    given = job if isinstance(job, Job) else parse_job(job)
    check_packages()
    check_reached(given)
    session = spark or session_of(given)
    try:
        return _plan(given, session)
    except BrokerError:
        raise
    except Exception as failure:
        raise failure_of(failure) from failure


def _plan(given: Job, session: "SparkSession") -> RunPlan:
    stages = Stages.of(given)
    partitions = [
        PlannedPartition(each.stream, each.partition, each.start, each.end)
        for each in sorted(resolve_ranges(given.source_keys.parsed()))
    ]
    if given.sql is not None:
        check_query(session, given.sql)
    shown = stages.shown(stages.checked(stages.source(session, streaming=given.mode != "batch")))
    result = selected(shown, given.sql)
    if given.mode != "batch" and given.sql is not None:
        check_row_by_row(result)
    columns = [PlannedColumn("source", name, kind) for name, kind in shown.dtypes]
    columns += [PlannedColumn("result", name, kind) for name, kind in result.dtypes]
    targets = _targets(given, result)
    return RunPlan(
        given.name,
        given.mode,
        _checkpoint(given),
        partitions,
        columns,
        targets,
        _once(len(targets), len(given.streams), "range" if given.mode == "batch" else "epoch"),
    )


def _once(targets: int, streams: int, unit: str) -> str:
    tables = targets - streams
    if targets == 1:
        return f"the target gets each {unit} exactly once"
    if not tables:
        return f"the streams get each {unit} exactly once, together"
    if not streams:
        return f"each table gets each {unit} exactly once; not together"
    both = "the stream" if streams == 1 else "the streams together"
    return f"each table and {both} get each {unit} exactly once; tables and streams not together"


def _targets(job: Job, result: "DataFrame") -> list[PlannedTarget]:
    targets = targets_of(job)
    letters = None if job.dead_letters is None else targets.pop()
    planned = [_planned(each, result) for each in targets]
    if letters is not None:
        planned.append(PlannedTarget(letters.name, letters.place, "append" if letters.exists() else "create"))
    return planned


def _planned(target: TableTarget | StreamTarget, result: "DataFrame") -> PlannedTarget:
    if isinstance(target, StreamTarget):
        difference = target.difference(result.schema)
        action = "append" if target.exists() else "create"
        return PlannedTarget(target.name, target.place, action if difference is None else f"{FAIL}{difference}")
    try:
        target.check(result.schema)
    except (UsageError, StateError) as refused:
        return PlannedTarget(target.name, target.place, f"{FAIL}{refused}")
    if not target.exists():
        return PlannedTarget(target.name, target.place, "create")
    difference = target.difference(result.schema)
    if difference is None:
        return PlannedTarget(target.name, target.place, target.action)
    verb = {"fail": FAIL, "evolve": "change the table: ", "dlq": "send the records to deadLetters: "}
    return PlannedTarget(target.name, target.place, f"{verb[target.on_schema_change]}{difference}")


def _checkpoint(job: Job) -> str:
    if job.checkpoint is None:
        return ""
    if is_url(job.checkpoint):
        return job.checkpoint
    last = last_epoch(job.checkpoint)
    if last is None:
        return f"{job.checkpoint} (new)"
    return f"{job.checkpoint} (continues after epoch {last.number}{_reached(last)})"


def _reached(last: LastEpoch) -> str:
    """The offsets at which a query continues, as a clause; empty if the checkpoint does not have them."""
    try:
        streams: dict[str, dict[str, Any]] = {} if last.end is None else last.end["streams"]
        reached = [f"{stream}/{part} {mark['next']}" for stream, of in streams.items() for part, mark in of.items()]
    except (KeyError, TypeError, AttributeError):
        return ""
    return f", at {', '.join(reached)}" if reached else ""
