"""Dead letters: the records that a job could not decode, or that failed an expectation, with where they came from.

| Column | Meaning |
|---|---|
| `stream`, `incarnation`, `partition`, `offset`, `timestamp`, `subject` | the record's place |
| `key`, `value`, `headers` | the record as it was |
| `error_class`, `error_message`, `error_part` | the error; the part is `key`, `value`, `headers` or null |
| `decoder`, `schema_id` | of a decode error; the id is that of the registry |
| `expectations` | names of the expectations that it failed; empty for decode errors |
| `query_name`, `query_id`, `epoch` | the job, its query, and the epoch that left it out |
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bascule.pipeline.decode.columns import PARTS, error_name, raw_name
from bascule.pipeline.expectations import FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

__all__ = ["DLQ_PREFIX", "PROVENANCE", "Origin", "decode_failed", "letters"]

DLQ_PREFIX: Final = "bascule.dlq."
"""With this begin the names of headers that say where a dead letter in a stream is from."""
PROVENANCE: Final = ("stream", "incarnation", "partition", "offset", "timestamp", "subject")
"""Columns of the source that a job with dead letters reads in any case, beside key, value and headers."""
EXPECTATION_FAILED: Final = "ExpectationFailed"


@dataclass(frozen=True)
class Origin:
    """The epoch of a query, or the run of a batch job, that rows and dead letters belong to.

    Attributes:
        query_name: name of the job.
        query_id: Spark's id of the query; `batch-` and the name of a batch job.
        epoch: of the query; 0 of a batch run.
        range_id: of a batch run: what it does and reads, see `bascule.pipeline.batches`; else empty.
        checkpoint: of the query; empty of a batch run.
    """

    query_name: str
    query_id: str
    epoch: int
    range_id: str = ""
    checkpoint: str = ""


def decode_failed(columns: "Sequence[str]") -> "Column":
    """Whether a part of a row could not be decoded; never null."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    errors = [F.col(error_name(part)).isNotNull() for part in PARTS if error_name(part) in columns]
    failed = F.lit(False)
    for error in errors:
        failed = failed | error
    return failed


def letters(dead: "DataFrame", origin: Origin, because: tuple[str, str] | None = None) -> "DataFrame":
    """The dead letters of rows that are left out.

    Args:
        dead: rows of the decoding stage, with the column `failed_expectations` if there are expectations.
        origin: of the epoch.
        because: class and message of an error that all have; None = each has one of its own.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    errors = [
        F.when(
            F.col(error_name(part)).isNotNull(),
            F.col(error_name(part)).withField("part", F.lit(part)),
        )
        for part in PARTS
        if error_name(part) in dead.columns
    ]
    nothing = F.lit(None).cast("struct<class: string, message: string, decoder: string, schema_id: int, part: string>")
    error = F.coalesce(*errors, nothing)
    failed = F.col(FAILED) if FAILED in dead.columns else F.array().cast("array<string>")
    unmet = F.concat(F.lit("the record does not meet: "), F.array_join(failed, ", "))
    kind, message = (F.lit(None if because is None else text).cast("string") for text in because or ("", ""))
    return dead.select(
        *(F.col(name) for name in PROVENANCE),
        *(F.col(raw_name(part)).alias(part) for part in PARTS),
        F.coalesce(kind, error["class"], F.lit(EXPECTATION_FAILED)).alias("error_class"),
        F.coalesce(message, error["message"], unmet).alias("error_message"),
        error["part"].alias("error_part"),
        error["decoder"].alias("decoder"),
        error["schema_id"].alias("schema_id"),
        failed.alias("expectations"),
        F.lit(origin.query_name).alias("query_name"),
        F.lit(origin.query_id).alias("query_id"),
        F.lit(origin.epoch).cast("bigint").alias("epoch"),
    )
