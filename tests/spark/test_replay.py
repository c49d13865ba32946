"""Replays of an archive into a stream, with real Spark and a real broker: every record is compared."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bascule
import pytest
from bascule.client import StreamOptions
from bascule.errors import CorruptionError, StateError, UsageError
from bascule.failpoints import Name
from bascule.spark.archiving import COLUMNS
from bascule.spark.replaying.preview import Progress
from bascule.testing import TestBroker as Broker
from lakes import FORMATS, Archive, Format
from replay_driver import Driver

pytestmark = [pytest.mark.spark]

ALL = ("stream", "incarnation", "partition", "offset", "timestamp", "subject", "key", "value", "headers", "reply", "id")
READ = "partition,offset,subject,key,value,headers,reply,id,origin_time,timestamp"
PARTITIONS = 3
COUNT = 400


@pytest.fixture
def names(request: pytest.FixtureRequest, client: bascule.Client) -> Iterator[tuple[str, str]]:
    """A source with records, and an empty target with as many partitions."""
    source = f"in-{abs(hash(request.node.nodeid))}"
    target = f"out-{source}"
    for name in (source, target):
        client.create_stream(name, options=StreamOptions(partitions=PARTITIONS))
    yield source, target
    for name in (source, target):
        client.delete_stream(name)


def fill(spark: Any, broker: Broker, stream: str, count: int = COUNT) -> None:
    """Records of every form: tombstones, empty values, no key, repeated headers, replies, ids."""
    frame = spark.range(count).selectExpr(
        "case when id % 7 = 0 then null when id % 7 = 1 then binary('') else binary(concat('value-', id)) end as value",
        "case when id % 3 = 0 then null else binary(concat('key-', id % 20)) end as key",
        "case when id % 2 = 0 then array() else array(struct('a' as key, binary(string(id)) as value), "
        "struct('a' as key, binary('again') as value), struct('ü' as key, binary('') as value)) end as headers",
        "concat('orders.', id % 5) as subject",
        "case when id % 4 = 0 then 'answers.here' end as reply",
        "unhex(lpad(hex(id + 1), 32, '0')) as id",
    )
    frame.write.format("bascule").mode("append").options(address=broker.address, stream=stream).save()


def records(spark: Any, broker: Broker, stream: str) -> list[dict[str, Any]]:
    """All of a stream, in order of partition and offset."""
    reader = spark.read.format("bascule").options(address=broker.address, stream=stream, columns=READ)
    rows = [row.asDict(recursive=True) for row in reader.load().collect()]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def comparable(rows: list[dict[str, Any]], *, as_source: bool) -> list[tuple[Any, ...]]:
    """What a replay keeps, in order; of a source the receipt time stands for that at the origin."""
    fields = ("partition", "subject", "key", "value", "headers", "reply", "id")
    return [(*(row[name] for name in fields), row["timestamp" if as_source else "origin_time"]) for row in rows]


def check_order_of_keys(there: list[dict[str, Any]], here: list[dict[str, Any]]) -> None:
    """Each key is in one partition, and in its order."""
    for key in {row["key"] for row in there if row["key"] is not None}:
        of_key = [[row["id"] for row in rows if row["key"] == key] for rows in (there, here)]
        assert of_key[0] == of_key[1]
        assert len({row["partition"] for row in here if row["key"] == key}) == 1


def archived(spark: Any, broker: Broker, folder: Path, stream: str, kind: Format, **options: Any) -> Archive:
    found = Archive(spark, broker, folder, kind, **{"stream": stream, "columns": ALL, **options})  # type: ignore[arg-type]
    found.run()
    return found


def replayed(spark: Any, broker: Broker, archive: Archive, target: str, folder: Path, **more: Any) -> Any:
    options = {"address": broker.address, "id": target, "checkpoint": str(folder / "replay"), **more}
    if "credentials" in archive.options:
        options.setdefault("credentials", archive.options["credentials"])
    return bascule.spark.replay(spark, archive=archive.to, format=archive.format, to=target, **options)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_record_of_an_archive_comes_back_as_it_was(
    spark: Any, broker: Broker, names: tuple[str, str], tmp_path: Path, kind: Format
) -> None:
    source, target = names
    fill(spark, broker, source)
    archive = archived(spark, broker, tmp_path, source, kind, partition_by="date")
    fill(spark, broker, source, 50)
    archive.run()
    seen: list[Progress] = []
    outcome = replayed(spark, broker, archive, target, tmp_path, maxRowsPerEpoch=150, on_progress=seen.append)
    there = records(spark, broker, source)
    assert comparable(records(spark, broker, target), as_source=False) == comparable(there, as_source=True)
    assert (outcome.rows, seen[-1].total_rows, seen[-1].expected_rows) == (len(there), len(there), len(there))
    assert outcome.epochs == len(seen) >= 3
    assert max(each.rows for each in seen) <= 150
    again = replayed(spark, broker, archive, target, tmp_path)
    assert (again.rows, again.epochs_of_this_run) == (len(there), 0)
    assert len(records(spark, broker, target)) == len(there)


def test_the_preview_counts_and_names_what_is_lost_and_refused(
    spark: Any, broker: Broker, client: bascule.Client, names: tuple[str, str], tmp_path: Path
) -> None:
    source, target = names
    fill(spark, broker, source)
    archive = archived(spark, broker, tmp_path, source, "delta", columns=COLUMNS)
    client.create_stream(f"{target}-small", options=StreamOptions(partitions=1))

    def preview(to: str, **options: Any) -> Any:
        return bascule.spark.replay_preview(spark, archive=archive.to, to=to, address=broker.address, **options)

    found = preview(target)
    there = records(spark, broker, source)
    by_partition = [sum(row["partition"] == number for row in there) for number in range(PARTITIONS)]
    assert (found.stream, found.rows) == (source, COUNT)
    assert [(part.first, part.end, part.rows) for part in found.partitions] == [(0, n, n) for n in by_partition]
    assert found.bytes > COUNT
    assert (
        min(part.since for part in found.partitions)
        == f"{min(row['timestamp'] for row in there):%Y-%m-%dT%H:%M:%S.%fZ}"
    )
    assert [refusal.split(":")[0] for refusal in found.refused] == [
        "the source has no column reply",
        "the source has no column id",
    ]
    small = preview(f"{target}-small", leaveOut="reply,id")
    (refusal,) = small.refused
    assert refusal.startswith(f"stream {target}-small has 1 partitions, and the source has records of partition 2: set")
    assert preview(f"{target}-small", leaveOut="reply,id", repartition=True).refused == []
    assert "stream no-such does not exist" in preview("no-such", leaveOut="reply,id").refused[0]
    assert preview(target, fromOffset=10, toOffset=20).rows == 30
    later = preview(target, fromTime="2999-01-01T00:00:00Z", leaveOut="reply,id")
    assert (later.rows, later.partitions) == (0, [])
    assert later.refused == [
        "no record lies between the offsets and times asked for: change fromOffset, toOffset, fromTime or toTime"
    ]
    with pytest.raises(UsageError, match="column reply: name it in leaveOut"):
        replayed(spark, broker, archive, target, tmp_path)
    with pytest.raises(UsageError, match="leaveOut names 'replay' \\(did you mean reply"):
        replayed(spark, broker, archive, target, tmp_path, leaveOut="replay")
    assert records(spark, broker, target) == []
    with pytest.raises(UsageError, match="has 1 partitions"):
        replayed(spark, broker, archive, f"{target}-small", tmp_path, leaveOut="reply,id")
    # A try that was refused leaves its checkpoint to the next one.
    assert replayed(spark, broker, archive, target, tmp_path, leaveOut="reply,id").rows == len(there)
    client.delete_stream(f"{target}-small")


def test_a_range_of_offsets_and_times_is_replayed_and_another_one_under_the_same_id_is_refused(
    spark: Any, broker: Broker, names: tuple[str, str], tmp_path: Path
) -> None:
    source, target = names
    fill(spark, broker, source)
    first = records(spark, broker, source)
    fill(spark, broker, source, 90)
    archive = archived(spark, broker, tmp_path, source, "delta")
    cut = f"{max(row['timestamp'] for row in first):%Y-%m-%dT%H:%M:%S.%fZ}"
    options: dict[str, Any] = {"toTime": cut, "fromOffset": 10, "maxRowsPerSecond": 100_000}
    replayed(spark, broker, archive, target, tmp_path, **options)
    last = max(row["timestamp"] for row in first)
    there = [row for row in records(spark, broker, source) if row["offset"] >= 10 and row["timestamp"] < last]
    assert 0 < len(there) < COUNT
    assert comparable(records(spark, broker, target), as_source=False) == comparable(there, as_source=True)
    with pytest.raises(StateError, match="there fromOffset is 10, and now it is 11"):
        replayed(spark, broker, archive, target, tmp_path, **{**options, "fromOffset": 11})
    ends = Counter(str(row["partition"]) for row in there)
    with pytest.raises(StateError, match=r"use the folder of that run.* begin after the records that .* has") as lost:
        replayed(spark, broker, archive, target, tmp_path, **options, checkpoint=str(tmp_path / "another"))
    assert str(lost.value).endswith(f"by stream and partition: {json.dumps({target: dict(sorted(ends.items()))})}")


def test_rows_go_by_key_to_another_number_of_partitions_and_keep_their_order(
    spark: Any, broker: Broker, client: bascule.Client, names: tuple[str, str], tmp_path: Path
) -> None:
    source, target = names
    fill(spark, broker, source)
    archive = archived(spark, broker, tmp_path, source, "delta")
    wide = f"{target}-wide"
    client.create_stream(wide, options=StreamOptions(partitions=7))
    replayed(spark, broker, archive, wide, tmp_path, repartition=True, maxRowsPerEpoch=100)
    there, here = records(spark, broker, source), records(spark, broker, wide)
    assert sorted(row["id"] for row in here) == sorted(row["id"] for row in there)
    assert len({row["partition"] for row in here}) == 7
    check_order_of_keys(there, here)
    client.delete_stream(wide)


@pytest.mark.parametrize(
    "point",
    [*(pytest.param(each, marks=pytest.mark.long) for each in ("replay.staged", "replay.ended")), "replay.published"],
)
def test_a_replay_whose_driver_is_killed_continues_and_appends_nothing_twice(
    spark: Any, broker: Broker, names: tuple[str, str], tmp_path: Path, point: Name
) -> None:
    source, target = names
    fill(spark, broker, source)
    archive = archived(spark, broker, tmp_path, source, "delta")
    options = {"archive": archive.to, "to": target, "id": target, "checkpoint": str(tmp_path / "replay")}
    options |= {"address": broker.address, "maxRowsPerEpoch": "120"}
    driver = Driver(tmp_path, {"function": "replay", "options": options}, hold=point)
    driver.wait_until_held()
    driver.continue_until_held_again()
    driver.kill()
    outcome = bascule.spark.replay(spark, **options)
    there = records(spark, broker, source)
    assert comparable(records(spark, broker, target), as_source=False) == comparable(there, as_source=True)
    assert outcome.rows == COUNT
    assert 0 < outcome.epochs_of_this_run < outcome.epochs


def test_a_file_that_is_missing_is_named_by_the_preview_and_by_the_replay(
    spark: Any, broker: Broker, names: tuple[str, str], tmp_path: Path
) -> None:
    source, target = names
    fill(spark, broker, source, 20)
    archive = archived(spark, broker, tmp_path, source, "delta")
    file = next(Path(archive.to).rglob("*.parquet"))
    file.unlink()
    with pytest.raises(CorruptionError, match=f"file .*{file.name} is missing; restore it") as raised:
        bascule.spark.replay_preview(spark, archive=archive.to, to=target, address=broker.address)
    assert "\n" not in str(raised.value)
    with pytest.raises(CorruptionError, match=f"file .*{file.name} is missing; restore it"):
        replayed(spark, broker, archive, target, tmp_path)
