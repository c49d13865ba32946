"""`bascule.spark.copy`: a stream into another one, as it is now or for ever."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from bascule.spark.option_model import OptionSet
from bascule.spark.options import SOURCE
from bascule.spark.reaching import check_reached
from bascule.spark.replaying.api import asked_of, checkpoint_at, finish, new_plan, parsed_for, previewed, texts
from bascule.spark.replaying.options import ARGUMENTS, COPY, HEADER_NAMES, LEAVE_OUT, TransferOptions
from bascule.spark.replaying.preview import Outcome, Preview
from bascule.spark.replaying.rows import KEPT, WILDCARDS, fit_of
from bascule.spark.replaying.streams import COLUMNS, StreamReader, contents, source_options
from bascule.spark.replaying.transfer import OnProgress
from bascule.spark.sink.options import SINK
from bascule.spark.spelling import surface
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SET_HERE: Final = frozenset({"stream", "columns", "sinkid", "checkpointlocation", "queryname"})
_NO_NAME: Final = (
    "a header has a name that is not text, and readers get only its value: add header_names to leave_out to write it "
    "without its name"
)


@surface(ARGUMENTS)
def copy(  # noqa: PLR0913 - all by name
    spark: "SparkSession",
    *,
    stream: str,
    to: str,
    id: str,  # noqa: A002 - the word for it
    checkpoint: str,
    on_progress: OnProgress | None = None,
    **options: str | float | bool,
) -> Outcome:
    """Write the records that a stream has now to another stream of the same broker, each exactly once.

    With `repartition` each record goes to the partition of its key; else to the number that it has. Records of one
    partition keep their order, and so do those of one key. A run that is killed is started again by the same call.

    Args:
        spark: the session.
        stream: the stream to read.
        to: the stream to write to. It exists, and is another one.
        id: names the copy at the broker: 1 to 64 letters, digits, `_`, `.` or `-`.
        checkpoint: folder of this copy; it belongs to the id.
        on_progress: called after each epoch.
        **options: see [the options](../reference/spark-options.md#copy).

    Returns:
        What all runs have written.

    Raises:
        UsageError: an option is wrong.
        StateError: id or checkpoint belong to another copy, another run took over, or records were lost before they
            were read.
        BrokerError: an epoch was not written, or that is not known: call again.
    """
    parsed = _parsed(options, stream, to, id)
    kept = checkpoint_at(checkpoint)
    asked = {"stream": stream, **asked_of(parsed)}
    plan = kept.plan(asked)
    check_reached(f"copy {id}", parsed.sink)
    fit = fit_of(COLUMNS, parsed.leave_out)
    source = source_options(stream, parsed)
    if plan is None:
        plan = new_plan(kept, asked, contents(source), parsed)
    return finish(spark, parsed, kept, plan, StreamReader(source, fit.columns), fit, on_progress)


@surface(ARGUMENTS)
def copy_preview(*, stream: str, to: str, **options: str | float | bool) -> Preview:
    """What `copy` would do, from its start; nothing is written.

    Args:
        stream: the stream to read.
        to: the stream to write to.
        **options: as for `copy`.

    Raises:
        UsageError: an option is wrong.
        BrokerError: there is no such stream to read, or the broker is not reachable.
    """
    parsed = _parsed(options, stream, to, "preview")
    check_reached("the preview", parsed.sink)
    return previewed(parsed, stream, contents(source_options(stream, parsed)), fit_of(COLUMNS, parsed.leave_out))


def copy_continuously(  # noqa: PLR0913 - all by name
    spark: "SparkSession",
    *,
    stream: str,
    to: str,
    id: str,  # noqa: A002 - the word for it
    checkpoint: str,
    repartition: bool = False,
    leave_out: str | Sequence[str] = (),
    available_now: bool = False,
    **options: str | float | bool,
) -> "StreamingQuery":
    """Start a query that keeps writing the records of a stream to another one, each exactly once.

    Args:
        spark: the session.
        stream: the stream to read, from its first record on unless `startingOffsets` says otherwise.
        to: the stream to write to. It exists, and is another one.
        id: name of the query and of its sink.
        checkpoint: folder of the query's checkpoint.
        repartition: whether the partition is chosen by the key; else records keep theirs.
        leave_out: what may be lost: columns other than `value`, and `header_names`; one or several.
        available_now: copy what is there now and end.
        **options: options of the [source](../reference/spark-options.md#source) and of the
            [sink](../reference/spark-options.md#sink) by their names there.

    Returns:
        The running query.

    Raises:
        UsageError: an option is wrong.
    """
    _check_streams(stream, to)
    lost = (leave_out,) if isinstance(leave_out, str) else tuple(leave_out)
    with surface({LEAVE_OUT.name: "argument leave_out"}):
        fit_of(COLUMNS, lost)
    given = texts(options)
    for name in given:
        if name.lower() in _SET_HERE:
            raise usage(f"option {name} cannot be given to copy_continuously: it is set here", option=name)
        if name.lower() not in {known.lower() for known in (*SOURCE.names, *SINK.names)}:
            raise SOURCE.unknown(name, SINK.names)
    check_reached(f"copy {id}", given)
    source = {"startingOffsets": "earliest", **_of(SOURCE, given), "stream": stream, "columns": ",".join(COLUMNS)}
    frame = _rows(spark.readStream.format("bascule").options(**source).load(), lost, repartition=repartition)
    target = {**_of(SINK, given), "stream": to, "sinkId": f"copy-{id}", "checkpointLocation": checkpoint}
    writer = frame.writeStream.format("bascule").queryName(f"copy-{id}").options(**target)
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def _rows(frame: "DataFrame", leave_out: tuple[str, ...], *, repartition: bool) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    columns = [F.col(name) for name in KEPT if name not in leave_out and name not in {"headers", "subject"}]
    if "subject" not in leave_out:  # a pattern is that of the stream, of a record whose client named none
        columns.append(F.when(~F.col("subject").rlike(WILDCARDS), F.col("subject")).alias("subject"))
    if "headers" not in leave_out:
        unnamed = F.exists("headers", lambda each: each["key"].isNull())
        kept = F.col("headers")
        if HEADER_NAMES not in leave_out:
            kept = F.when(unnamed, F.raise_error(F.lit(_NO_NAME)).cast(frame.schema["headers"].dataType)).otherwise(
                kept
            )
        columns.append(kept.alias("headers"))
    columns.append(F.coalesce(F.unix_micros("origin_time") * 1000, "timestamp_ns").alias("origin_time_ns"))
    return frame.select(*columns, *([] if repartition else [F.col("partition")]))


def _of(options: OptionSet, given: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower() for name in options.names}
    return {name: text for name, text in given.items() if name.lower() in names}


def _parsed(options: Mapping[str, str | float | bool], stream: str, to: str, name: str) -> TransferOptions:
    _check_streams(stream, to)
    return parsed_for(COPY, options, name, to)


def _check_streams(stream: str, to: str) -> None:
    if stream == to:
        raise usage(f"stream {stream} cannot be copied to itself: name another target", stream=stream)
