"""A job: what a job file holds."""

from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import Field, field_validator, model_validator

from bascule.pipeline.model.base import Location, Milliseconds, Name, Part
from bascule.pipeline.model.decoders import Decode
from bascule.pipeline.model.expectations import Expectations
from bascule.pipeline.model.source import Source, SourceKeys
from bascule.pipeline.model.streams import Sink
from bascule.pipeline.model.targets import Stream, Table, Target
from bascule.spark.checkpoint_copies import overlap
from bascule.spark.options import MAX_GROUP_BYTES

__all__ = ["Job", "Mode", "Restarts", "Spark"]

Mode = Literal["continuous", "availableNow", "batch"]

_SET_BY_THE_JOB: Final = frozenset({"spark.master", "spark.app.name"})


class Restarts(Part):
    """How the job continues after an error that may pass: lost executors, a broker or a registry that is not reached
    any more.

    Errors that need a change end the job: a broker that was not reached at the start, a wrong setting, a record that
    may not fail, lost data, denied access.
    """

    most: int = Field(default=10, ge=0, description="restarts without a finished epoch between them; 0 = never")
    first_delay: Milliseconds = Field(default=1000, description="time before the first restart; doubled each time")
    longest_delay: Milliseconds = Field(default=60_000, description="longest time before a restart")


class Spark(Part):
    """The Spark session. Not allowed with `spark-submit`, which has its own settings for both."""

    master: str | None = Field(
        default=None, description="master URL; default: local[*], all processors of this machine"
    )
    config: dict[str, str] = Field(default={}, description="settings of Spark, by name")

    @field_validator("config", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        given = cast("dict[Any, Any]", value)
        return {str(key): str(item).lower() if isinstance(item, bool) else str(item) for key, item in given.items()}

    @field_validator("config")
    @classmethod
    def _check_config(cls, value: dict[str, str]) -> dict[str, str]:
        for key in value:
            if key in _SET_BY_THE_JOB:
                raise ValueError(f'"{key}" is set by the job: use `master`, and `name` of the job')
        return value


class Job(Part):
    """Reads streams, decodes and checks their records, selects from them with SQL, and writes the result to targets: in
    one Spark query, each target exactly once.
    """

    name: Name = Field(
        description="name of the job, of its query, of its application and, if a target is a stream, of its sink. Give "
        "no two jobs the same name, and do not change it: under another name the sink is a new one"
    )
    source: Source = Field(description="the streams that are read")  # pyright: ignore[reportInvalidTypeForm]
    decode: Decode = Field(default=Decode(), description="how bytes become columns")
    expectations: Expectations = Field(default=Expectations(), description="conditions on the decoded records")
    sql: str | None = Field(
        default=None,
        description="one SELECT on the view `source`; default: all its columns. In a streaming run it must treat each "
        "row alone: no aggregates, sorts or limits",
    )
    targets: Annotated[tuple[Target, ...], Field(min_length=1)] = Field(description="where the result is written")
    dead_letters: Target | None = Field(
        default=None, description="where records go that could not be decoded, or that failed an expectation"
    )
    sink: Sink = Field(default=Sink(), description="how the job writes to streams; only if a target is one")
    mode: Mode = Field(
        default="continuous",
        description="continuous: until it is stopped; availableNow: up to the present end of the streams, continuing "
        "where the last run ended; batch: the whole range of the source; a run over the same range completes an "
        "earlier one and writes nothing twice",
    )
    interval: Milliseconds = Field(
        default=0, description="time between the starts of two epochs of a continuous run; 0 = as fast as possible"
    )
    checkpoint: Location | None = Field(
        default=None, description="directory with the positions of the query; needed unless the mode is batch"
    )
    report: bool = Field(
        default=True,
        description="the broker shows where the job stands, in `bascule lag` and metrics, under the name of the job or "
        "`source.consumerGroup`; not of the mode batch",
    )
    restarts: Restarts = Field(default=Restarts(), description="how the job continues after errors that may pass")
    spark: Spark = Field(default=Spark(), description="the Spark session")

    @field_validator("dead_letters", mode="before")
    @classmethod
    def _named_letters(cls, value: Any) -> Any:
        return {"name": "dead-letters", **cast("dict[str, Any]", value)} if isinstance(value, dict) else value

    @field_validator("sql")
    @classmethod
    def _check_sql(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("the SELECT is empty")
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mode == "batch":
            if self.checkpoint is not None:
                raise ValueError("a batch run has no checkpoint: remove it, or use the mode availableNow")
        elif self.checkpoint is None:
            raise ValueError(f"the mode {self.mode} needs a checkpoint: give a directory of its own")
        if self.interval and self.mode != "continuous":
            raise ValueError(f"interval is for continuous runs, not for the mode {self.mode}")
        self.source_keys.check_kind("batch" if self.mode == "batch" else "stream")
        if not self.report and self.source_keys.parsed().consumer_group is not None:
            raise ValueError("source.consumerGroup is never reported with report: false: remove one of them")
        if not self.report and self.source_keys.parsed().hold:
            raise ValueError("source.retentionHold needs reports: remove report: false")
        if self.report and self.mode != "batch" and len(self.name.encode()) > MAX_GROUP_BYTES:
            text = f"the name has {len(self.name.encode())} bytes, at most {MAX_GROUP_BYTES} can be reported"
            raise ValueError(f"{text}: shorten it, or set report: false")
        self._check_dead_letters()
        self._check_names()
        self._check_streams()
        self._check_places()
        return self

    def _check_dead_letters(self) -> None:
        wanted = [
            key
            for key, is_set in (
                ("decode.onDecodeError: dlq", self.decode.on_decode_error == "dlq"),
                ("expectations.expect_or_dlq", bool(self.expectations.expect_or_dlq)),
                *(
                    (f"onSchemaChange: dlq of {each.name}", each.on_schema_change == "dlq")
                    for each in self.targets
                    if isinstance(each, Table)
                ),
            )
            if is_set
        ]
        if wanted and self.dead_letters is None:
            raise ValueError(f"{wanted[0]} needs deadLetters")
        if isinstance(self.dead_letters, Table) and self.dead_letters.merge is not None:
            raise ValueError("deadLetters has merge: dead letters are appended; remove it")
        if self.dead_letters is not None and not wanted:
            raise ValueError(
                "deadLetters is never written: set decode.onDecodeError or onSchemaChange to dlq, or use expect_or_dlq"
            )

    @property
    def every_target(self) -> list[Target]:
        """The targets, and last the dead letters."""
        return [*self.targets, *([] if self.dead_letters is None else [self.dead_letters])]

    @property
    def streams(self) -> list[Stream]:
        """The streams that are written to."""
        return [each for each in self.every_target if isinstance(each, Stream)]

    def _check_streams(self) -> None:
        names = [each.stream for each in self.streams]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f'two targets are the stream "{name}": name another stream')
        if not names and self.sink != Sink():
            raise ValueError("sink is for streams, and no target is one: remove it")
        source = self.source_keys
        own = self.sink.address in (None, source.options().get("address"))
        if own and self.sink.namespace in (None, source.parsed().namespace) and self.stream in names:
            raise ValueError(f'the stream "{self.stream}" is source and target: the job would read what it writes')

    def _check_names(self) -> None:
        every = self.every_target
        for each in every:
            if sum(other.name == each.name for other in every) > 1:
                raise ValueError(f'two targets have the name "{each.name}": give each a name of its own')

    def _check_places(self) -> None:
        seen: dict[tuple[str, str], Table] = {}
        for each in self.every_target:
            if isinstance(each, Table):
                other = seen.setdefault(each.located, each)
                if other is not each:
                    text = f'the targets "{other.name}" and "{each.name}" are the same table, {each.path}'
                    raise ValueError(f"{text}: give each a table of its own")
        for each in self.every_target:
            if isinstance(each, Table) and each.format != "iceberg" and self.checkpoint is not None:
                refusal = overlap(str(self.checkpoint), str(each.path))
                if refusal is not None:
                    raise ValueError(refusal)

    @property
    def source_keys(self) -> SourceKeys:
        """The section `source`, with its methods."""
        found: object = self.source  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        assert isinstance(found, SourceKeys)
        return found

    @property
    def stream(self) -> str | None:
        """The only stream that is read; None = several may be."""
        selection = self.source_keys.parsed().selection
        named = selection.streams or tuple(selection.assigned or ())
        return named[0] if len(named) == 1 else None
