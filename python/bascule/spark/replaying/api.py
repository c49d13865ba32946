"""`bascule.spark.replay` and what it would do: from an archive into a stream."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bascule.lake.options import ArchiveOptions
from bascule.lake.storage import Storage, open_storage
from bascule.spark.option_model import OptionSet
from bascule.spark.reaching import check_reached
from bascule.spark.replaying.archives import ArchiveReader, chosen, contents, opened
from bascule.spark.replaying.checkpoint import Checkpoint, Plan
from bascule.spark.replaying.lanes import Lane, lanes_of
from bascule.spark.replaying.options import (
    ARGUMENTS,
    HEADER_NAMES,
    LEAVE_OUT,
    REPLAY,
    TransferOptions,
    archive_options,
    parse_transfer,
)
from bascule.spark.replaying.preview import Found, Outcome, PartitionPreview, Preview
from bascule.spark.replaying.rows import Fit, Shape, fit_of
from bascule.spark.replaying.transfer import OnProgress, Reader, Transfer, check_partitions
from bascule.spark.sink.calls import SinkCalls
from bascule.spark.sink.options import parse_sink_options
from bascule.spark.spelling import renamed, spelled, surface
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@surface(ARGUMENTS)
def replay(  # noqa: PLR0913 - all by name
    spark: "SparkSession",
    *,
    archive: str,
    to: str,
    id: str,  # noqa: A002 - the word for it
    checkpoint: str,
    stream: str | None = None,
    format: str = "delta",  # noqa: A002 - Spark's word
    on_progress: OnProgress | None = None,
    **options: str | float | bool,
) -> Outcome:
    """Write the records of an archive to a stream, each exactly once, and wait until it is done.

    The records go in bounded epochs. A run that is killed is started again by the same call: it continues after the
    last epoch that the stream has. A replay that is finished writes nothing.

    Args:
        spark: the session.
        archive: the table, as `archive(to=…)` named it: a folder, `s3://bucket/folder`, or of Iceberg
            `namespace.table`; `{stream}` in it stands for `stream`.
        to: the stream to write to. It exists.
        id: names the replay at the broker: 1 to 64 letters, digits, `_`, `.` or `-`.
        checkpoint: folder of this replay, or `s3://bucket/folder`. It keeps what is replayed and how far it is; it
            belongs to the id, and both are used by one run at a time.
        stream: the stream whose records are replayed; None = the only one in the archive.
        format: `delta`, `iceberg` or `parquet`.
        on_progress: called after each epoch.
        **options: see [the options](../reference/spark-options.md#replay).

    Returns:
        What all runs have written.

    Raises:
        UsageError: an option is wrong, there is no such archive, or something would be lost that `leaveOut` does not
            name.
        StateError: id or checkpoint belong to another replay, or another run took over.
        CorruptionError: a file of the archive is missing or damaged.
        BrokerError: an epoch was not written, or that is not known: call again.
    """
    parsed = parsed_for(REPLAY, options, id, to)
    table = archive_options(archive, format, parsed)
    kept = checkpoint_at(checkpoint, table)
    asked = {"archive": archive, "format": format, "stream": stream, **asked_of(parsed)}
    plan = kept.plan(asked)
    check_reached(f"replay {id}", parsed.sink)
    pinned = opened(table, stream or "")
    fit = fit_of(sorted(pinned.columns), parsed.leave_out)
    refuse(fit.refused)
    if plan is None:
        _, found = chosen(contents(spark, table, stream or "", pinned.files), stream)
        plan = new_plan(kept, asked, found, parsed)
    reader = ArchiveReader(table, stream or "", pinned.files, fit.columns)
    return finish(spark, parsed, kept, plan, reader, fit, on_progress)


@surface(ARGUMENTS)
def replay_preview(
    spark: "SparkSession",
    *,
    archive: str,
    to: str,
    stream: str | None = None,
    format: str = "delta",  # noqa: A002 - Spark's word
    **options: str | float | bool,
) -> Preview:
    """What `replay` would do with an archive, from its start; nothing is written.

    Args:
        spark: the session.
        archive: as for `replay`, and so are the others.
        to: the stream.
        stream: the stream whose records are replayed.
        format: of the table.
        **options: as for `replay`.

    Raises:
        UsageError: an option is wrong, or there is no such archive.
        BrokerError: the broker is not reachable.
    """
    parsed = parsed_for(REPLAY, options, "preview", to)
    table = archive_options(archive, format, parsed)
    check_reached("the preview", parsed.sink)
    pinned = opened(table, stream or "")
    name, found = chosen(contents(spark, table, stream or "", pinned.files), stream)
    return previewed(parsed, name, found, fit_of(sorted(pinned.columns), parsed.leave_out))


def parsed_for(known: OptionSet, options: Mapping[str, str | float | bool], name: str, to: str) -> TransferOptions:
    """The options of a transfer into one stream.

    Raises:
        UsageError: the stream has no name, or as `parse_transfer`.
    """
    if not to.strip():
        raise usage("the target stream is empty: name it")
    return parse_transfer(known, texts(options), name=name, to=to)


def asked_of(options: TransferOptions) -> dict[str, Any]:
    """What of the options a checkpoint keeps: all that decides which rows are written, and where."""
    return {
        "id": options.id,
        "to": options.to,
        "namespace": options.sink.get("namespace", "default"),
        "leaveOut": sorted(options.leave_out),
        "repartition": options.repartition,
        **vars(options.bounds),
    }


def new_plan(kept: Checkpoint, asked: Mapping[str, Any], found: list[Found], options: TransferOptions) -> Plan:
    """The plan of a replay that begins.

    Raises:
        UsageError: no record lies in the bounds.
    """
    lanes = _lanes(found, options)
    if not lanes:
        raise usage(_nothing(found))
    return kept.new(asked, lanes, sum(each.rows for each in _partitions(found, lanes)))


def finish(  # noqa: PLR0913, PLR0917 - what a transfer has
    spark: "SparkSession",
    options: TransferOptions,
    kept: Checkpoint,
    plan: Plan,
    reader: Reader,
    fit: Fit,
    on_progress: OnProgress | None,
) -> Outcome:
    """Run a transfer to its end."""
    may_lose_names = HEADER_NAMES in options.leave_out
    leave_out = spelled(LEAVE_OUT.name)
    shape = Shape(fit.columns, not options.repartition, may_lose_names, options.bounds, leave_out)
    return Transfer(spark, options, kept, plan, reader, shape, on_progress).run(fit.lost)


def previewed(options: TransferOptions, stream: str, found: list[Found], fit: Fit) -> Preview:
    """What a transfer of sources would do."""
    lanes = _lanes(found, options)
    partitions = _partitions(found, lanes)
    refused = [*fit.refused, *_refused_by_target(options, found, lanes)]
    counts = (sum(each.rows for each in partitions), sum(each.bytes for each in partitions))
    return Preview(stream, options.to, *counts, partitions, list(fit.lost), refused)


def refuse(refused: tuple[str, ...]) -> None:
    """Raise for what a transfer may not do.

    Raises:
        UsageError: there is something.
    """
    if refused:
        raise usage("; ".join(refused))


def _lanes(found: list[Found], options: TransferOptions) -> tuple[Lane, ...]:
    """The lanes of sources whose records may lie in the bounds."""
    inside = [each for each in found if each.may_be_in(options.bounds)]
    return lanes_of([(each.source, each.first, each.end) for each in inside], options.bounds)


def _nothing(found: list[Found]) -> str:
    """Why there is nothing to write."""
    if not found:
        return "the source has no records: there is nothing to write"
    names = [spelled(name) for name in ("fromOffset", "toOffset", "fromTime", "toTime")]
    return f"no record lies between the offsets and times asked for: change {', '.join(names[:-1])} or {names[-1]}"


def _refused_by_target(options: TransferOptions, found: list[Found], lanes: tuple[Lane, ...]) -> list[str]:
    there = SinkCalls(parse_sink_options({**options.sink, "stream": options.to}, is_stream=False)).streams([options.to])
    if options.to not in there:
        return [f"stream {options.to} does not exist: create it first"]
    if not lanes:
        return [_nothing(found)]
    try:
        check_partitions(options, lanes, there[options.to].partitions)
    except ValueError as refusal:
        return [str(refusal)]
    return []


def _partitions(found: list[Found], lanes: tuple[Lane, ...]) -> list[PartitionPreview]:
    by_source = {each.source: each for each in found}
    shown: list[PartitionPreview] = []
    for part in (part for lane in lanes for part in lane.parts):
        whole = by_source[part.source]
        share = (part.end - part.first) / (whole.end - whole.first)
        times = (_time(whole.since), _time(whole.until))
        place = (part.source.partition, part.source.incarnation, part.first, part.end)
        shown.append(PartitionPreview(*place, round(whole.rows * share), round(whole.bytes * share), *times))
    return shown


def _time(when: datetime | None) -> str:
    return "" if when is None else when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def texts(options: Mapping[str, str | float | bool]) -> dict[str, str]:
    """Options as text, as Spark passes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


def checkpoint_at(checkpoint: str, table: ArchiveOptions | None = None) -> Checkpoint:
    """The checkpoint in a folder.

    Raises:
        UsageError: as `storage_at`.
    """
    return Checkpoint(storage_at(checkpoint, table))


def storage_at(checkpoint: str, table: ArchiveOptions | None = None) -> Storage:
    """The folder of a checkpoint: in S3 with the credentials of the archive, unless these are a catalog's.

    Raises:
        UsageError: the place is not a folder.
    """
    place: dict[str, Any] = {}
    if table is not None and checkpoint.startswith("s3://") and table.table_format != "iceberg":
        place = {"credentials": table.credentials, "endpoint": table.endpoint, "region": table.region}
    with renamed({"path": "checkpoint"}):
        return open_storage(checkpoint, ArchiveOptions(checkpoint, **place))
