"""The stages of a job from the source to the checked rows: read, decode, expect. The same for streams and batches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bascule.errors import UsageError
from bascule.pipeline.batches import POSITIONS
from bascule.pipeline.dead_letters import PROVENANCE, decode_failed
from bascule.pipeline.decode.columns import PARTS, Decoding, error_name
from bascule.pipeline.decode.envelopes import EVENT
from bascule.pipeline.expectations import ROWS, failed_any, observed, raising, with_failed
from bascule.pipeline.model.job import Job
from bascule.pipeline.model.source import DEFAULT_EPOCH_BYTES
from bascule.pipeline.sql import first_line
from bascule.spark.options import CONSUMER_GROUP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

__all__ = ["DECODE_FAILED", "Stages"]

FORMAT: Final = "bascule"
DECODE_FAILED: Final = "bascule-decode-failed: "
"""Begin of the message of the error that a record raises with `onDecodeError: fail`."""
SOURCE_METRICS: Final = "source"
DECODE_METRICS: Final = "decode"
EXPECTATION_METRICS: Final = "expectations"


@dataclass(frozen=True)
class Stages:
    """Builds the rows of a job.

    Attributes:
        job: what to do.
        decoding: its decoders, resolved.
        observe: in a batch run, who gets the metrics, by the name of the stage; in a streaming run they are in the
            query's progress.
    """

    job: Job
    decoding: Decoding
    observe: Mapping[str, "Observation"] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, job: Job, observe: "Mapping[str, Observation] | None" = None) -> "Stages":
        """Reads schema files and asks registries; see `Decoding.of` for errors."""
        return cls(job, Decoding.of(job.decode, job.stream), observe or {})

    @property
    def observed(self) -> tuple[str, ...]:
        """The names of the metrics that the job has."""
        names = [DECODE_METRICS] if self.decoding.decoded_parts else []
        return tuple([*names, EXPECTATION_METRICS] if self.job.expectations.listed() else names)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read: those of the view, and all that dead letters need."""
        chosen = self.job.source_keys.parsed().columns
        needed = [part for part in self.decoding.decoded_parts if part not in chosen]
        if needed:
            raise UsageError("configuration_invalid", f"decode.{needed[0]}: source.columns does not have it")
        if self.job.dead_letters is None:
            return chosen
        return tuple(dict.fromkeys((*chosen, *PROVENANCE, *PARTS)))

    def source(
        self, spark: "SparkSession", *, streaming: bool, positions: Mapping[str, str] | None = None
    ) -> "DataFrame":
        """The rows of the source, with their own columns.

        Args:
            spark: the session.
            streaming: as a stream, or a batch.
            positions: options with the streams, starts and ends, instead of those of the job.
        """
        reader = spark.readStream if streaming else spark.read
        options = self.job.source_keys.options()
        if positions is not None:
            options = {name: value for name, value in options.items() if name not in POSITIONS} | dict(positions)
        options["columns"] = ",".join(self.columns)
        if streaming and self.job.report:
            options.setdefault(CONSUMER_GROUP.name, self.job.name)
        if streaming and not {"maxOffsetsPerTrigger", "maxBytesPerTrigger"} & options.keys():
            options["maxBytesPerTrigger"] = DEFAULT_EPOCH_BYTES
        return reader.format(FORMAT).options(**options).load()

    def checked(self, source: "DataFrame") -> "DataFrame":
        """Rows of the source, decoded and checked, without those that were dropped.

        Raises:
            UsageError: a schema is not valid, or Spark refuses a condition.
        """
        if (rows := self.observe.get(SOURCE_METRICS)) is not None:
            source = _counted(source, rows)
        frame = self.decoding.apply(source)
        if self.decoding.decoded_parts:
            frame = self._decode_counted(frame)
            if self.job.decode.on_decode_error == "fail":
                frame = _raising(frame)
        expectations = self.job.expectations.listed()
        if not expectations:
            return frame
        return self._expected(frame, {name: condition for _, name, condition in expectations})

    def shown(self, checked: "DataFrame") -> "DataFrame":
        """The view of the SELECT: the chosen columns, decoded; their errors only with `onDecodeError: null`."""
        chosen = self.job.source_keys.parsed().columns
        names: list[str] = []
        for name in chosen:
            names += EVENT if name not in checked.columns else [name]
        if self.job.decode.on_decode_error == "null":
            names += [error_name(part) for part in PARTS if error_name(part) in checked.columns]
        return checked.select(*names)

    def _observer(self, stage: str) -> "str | Observation":
        return self.observe.get(stage, stage)

    def _decode_counted(self, frame: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

        untyped: Any = frame
        names = [error_name(part) for part in PARTS if error_name(part) in frame.columns]
        counts = [F.count(F.col(name)).alias(f"{name}s") for name in names]
        return untyped.observe(self._observer(DECODE_METRICS), F.count(F.lit(1)).alias(ROWS), *counts)

    def _expected(self, frame: "DataFrame", conditions: dict[str, str]) -> "DataFrame":
        from pyspark.errors import PySparkException  # noqa: PLC0415 - heavy

        is_left_out = decode_failed(frame.columns) if self.job.decode.on_decode_error == "dlq" else None
        try:
            frame = with_failed(frame, conditions, unless=is_left_out)
        except PySparkException as failure:
            raise UsageError("configuration_invalid", f"expectations: {first_line(failure)}") from None
        frame = observed(frame, list(conditions), self._observer(EXPECTATION_METRICS))
        sections = self.job.expectations
        if sections.expect_or_fail:
            frame = raising(frame, list(sections.expect_or_fail))
        if sections.expect_or_drop:
            frame = frame.where(~failed_any(list(sections.expect_or_drop)))
        return frame


def _counted(source: "DataFrame", rows: "Observation") -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    untyped: Any = source
    return untyped.observe(rows, F.count(F.lit(1)).alias(ROWS))


def _raising(frame: "DataFrame") -> "DataFrame":
    """`frame`; a record that could not be decoded raises."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    errors = [F.col(error_name(part)) for part in PARTS if error_name(part) in frame.columns]
    error = F.coalesce(*errors)
    place = [
        F.col(name).cast("string") if name in frame.columns else F.lit("?")
        for name in ("stream", "partition", "offset")
    ]
    message = F.concat(
        *(F.lit(DECODE_FAILED), place[0], F.lit("/"), place[1], F.lit(" offset "), place[2], F.lit(": ")),
        *(error["decoder"], F.lit(" "), error["class"], F.lit(": "), error["message"]),
    )
    return frame.where(F.when(error.isNull(), F.lit(True)).otherwise(F.raise_error(message).cast("boolean")))
