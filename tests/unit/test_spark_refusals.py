"""Rows that a stream refuses, by task: found, numbered, counted, and made dead letters; without Spark and a broker."""

import pyarrow as pa
import pytest
from bascule.errors import BrokerError, UsageError
from bascule.spark.sink import rows as rows_module
from bascule.spark.sink.calls import SinkStream, Target
from bascule.spark.sink.checking import Checked, Numbers
from bascule.spark.sink.options import IN_JOB, SinkOptions, parse_sink_options
from bascule.spark.sink.refusals import Counts, RowCheck, total
from bascule.spark.sink.rows import by_stream, check_columns
from pyspark.sql.types import DataType, DoubleType, LongType, StringType, StructField, StructType, TimestampType

STREAMS = {name: SinkStream(name, 2, most) for name, most in (("s", 10), ("t", 10), ("dead", 1000), ("tiny", 10))}


def options(**given: str) -> SinkOptions:
    return parse_sink_options(given, is_stream=False)


def checked(check: RowCheck, batch: pa.RecordBatch) -> list[Checked]:
    return [
        check.sifted(stream, rows, numbers) for stream, rows, numbers in by_stream(batch, check.options, check.rows)
    ]


def batch(values: list[bytes], **columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": values, **columns})


def said(letters: pa.RecordBatch, row: int = 0) -> dict[str, str]:
    headers = letters.column("headers")[row].as_py()
    return {header["key"].decode().removeprefix("bascule.dlq."): header["value"].decode() for header in headers}


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (
            {"id": LongType()},
            r"^column value is missing: .*; pack other columns into it, as by to_json\(struct\(\*\)\) AS value$",
        ),
        ({"id": LongType(), "amount": DoubleType()}, "^there is no column 'amount': .*as by to_json$"),
        (
            {"id": LongType(), "value": StringType()},
            "^column id is bigint: it must be binary; it is the id of a message, of 16 bytes; pack other ids into",
        ),
        ({"value": LongType()}, "^column value is bigint: it must be binary or string; cast it$"),
        (
            {"value": StringType(), "origin_time_ns": StringType()},
            "^column origin_time_ns is string: it must be bigint; cast it$",
        ),
        (
            {"value": StringType(), "origin_time_ns": LongType(), "Origin_Time": TimestampType()},
            "^columns origin_time and origin_time_ns are the same time: select one$",
        ),
    ],
)
def test_a_result_of_other_columns_is_refused_with_what_to_do_first(
    columns: dict[str, DataType], sentence: str
) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    with pytest.raises(UsageError, match=sentence):
        check_columns(schema, options(stream="s"))


def test_a_time_at_the_origin_may_have_nanoseconds() -> None:
    times = pa.array([1_700_000_000_123_456_789, None], pa.int64())
    rows = batch([b"a", b"b"], Origin_Time_NS=times, stream=["s", "t"])
    parts = [part for _, part, _ in by_stream(rows, options())]
    assert [part.column("origin_time").cast(pa.int64()).to_pylist() for part in parts] == [[times[0].as_py()], [None]]
    assert parts[0].schema.field("origin_time").type == pa.timestamp("ns", "UTC")
    (found,) = checked(RowCheck(options(stream="s"), 0, STREAMS.get), rows.drop_columns(["stream"]))
    assert found.kept.column("origin_time").cast(pa.int64()).to_pylist() == times.to_pylist()


def test_rows_are_numbered_within_their_task() -> None:
    check = RowCheck(options(stream="s", onOversize="drop"), 3, STREAMS.get)
    checked(check, batch([b"a"] * 5))
    (found,) = checked(check, batch([b"a", b"b" * 11, b"c"]))
    assert found.kept.column("value").to_pylist() == [b"a", b"c"]
    assert (found.oversize.count, found.invalid.count) == (1, 0)
    assert found.oversize.first is not None
    assert (found.oversize.first.number, found.oversize.first.bytes) == (6, 11)
    assert (check.rows, check.counts) == (8, Counts(oversize=1))


def test_rows_of_several_streams_keep_their_numbers() -> None:
    names = ["s", "t", "s", None, "gone", "t"]
    check = RowCheck(options(onInvalid="dlq", dlqStream="dead"), 0, STREAMS.get, (("task", "0"),))
    parts = checked(check, batch([b"%d" % number for number in range(6)], stream=names))
    assert [part.kept.column("value").to_pylist() for part in parts] == [[b"0", b"2"], [b"1", b"5"], [], []]
    numbers = [(said(letters)["row"], said(letters)["stream"]) for part in parts for letters in part.letters]
    assert numbers == [("3", ""), ("4", "gone")]
    assert check.counts == Counts(invalid=2)


def test_numbers_of_a_slice_are_its_own() -> None:
    assert list(Numbers(0, pa.array([1, 2, 3, 4], pa.uint64())[1:3]).buffer()) == [2, 3]


def test_the_remedy_of_a_job_is_a_key_of_its_file() -> None:
    """A job has no dead letters for rows that a stream refuses."""
    for extra, oversize, invalid in (
        ({}, "or set onOversize to drop or dlq", "or set onInvalid to drop or dlq"),
        ({IN_JOB: "true"}, "or set sink.onOversize of the job to drop", "or set sink.onInvalid of the job to drop"),
    ):
        check = RowCheck(options(stream="s", **extra), 7, STREAMS.get)
        with pytest.raises(BrokerError, match=f"{oversize}$"):
            checked(check, batch([b"b" * 11]))
        with pytest.raises(BrokerError, match=f"{invalid}$"):
            checked(RowCheck(check.options, 7, STREAMS.get), batch([b"a"], subject=["a b"]))


def test_a_row_that_may_not_be_refused_is_named() -> None:
    check = RowCheck(options(stream="s"), 7, STREAMS.get)
    with pytest.raises(BrokerError) as failure:
        checked(check, batch([b"a", b"b" * 11]))
    assert failure.value.code == "too_large"
    assert failure.value.details == {"bytes": 11, "limit": 10, "row": 1, "task": 7, "stream": "s"}
    with pytest.raises(BrokerError, match=r"row 0 of task 7 is invalid: .*; correct the query, or set onInvalid"):
        checked(RowCheck(check.options, 7, STREAMS.get), batch([b"a"], subject=["a b"]))
    with pytest.raises(BrokerError) as failure:
        checked(RowCheck(options(), 7, STREAMS.get), batch([b"a"], stream=["gone"]))
    assert failure.value.code == "stream_not_found"


def test_kinds_of_refusals_have_actions_of_their_own() -> None:
    rows = batch([b"a" * 11, b"b", b"c"], subject=[None, "b b", None])
    check = RowCheck(options(stream="s", onOversize="dlq", onInvalid="drop", dlqStream="dead"), 0, STREAMS.get)
    (found,) = checked(check, rows)
    (letters,) = found.letters
    assert letters.column("value").to_pylist() == [b"a" * 11]
    assert check.counts.sentence(check.options) == (
        "1 oversize row sent to the dead letter stream dead, 1 invalid row dropped"
    )
    with pytest.raises(BrokerError, match="onInvalid"):
        checked(RowCheck(options(stream="s", onOversize="drop"), 0, STREAMS.get), rows)


def test_a_dead_letter_that_cannot_be_stored_at_all_fails_the_write() -> None:
    check = RowCheck(options(stream="s", onOversize="dlq", dlqStream="tiny"), 0, STREAMS.get)
    with pytest.raises(BrokerError, match="the dead letter of row 0 cannot be stored") as failure:
        checked(check, batch([b"a" * 11]))
    assert failure.value.code == "too_large"


def test_a_replay_counts_rows_without_their_streams() -> None:
    first = RowCheck(options(onInvalid="drop", onOversize="drop"), 0, STREAMS.get)
    rows = batch([b"a", b"b" * 11, b"c"], stream=["s", "s", "gone"])
    checked(first, rows)
    replay = RowCheck(first.options, 0, {}.get)
    for stream, part, _ in by_stream(rows, replay.options):
        replay.digested(stream, part)
    assert (replay.rows, replay.digest) == (first.rows, first.digest) != (0, 0)


def stored(check: RowCheck, rows: int | None = None, digest: int | None = None) -> list[Target]:
    """What the broker answers, in two partitions; by default what was sent."""
    rows = check.sent_rows if rows is None else rows
    digest = check.sent_digest if digest is None else digest
    return [Target("s", 0, 7, rows - 1, f"{digest - 1:032x}"), Target("s", 1, 8, 1, f"{1:032x}")]


def test_what_the_broker_stored_is_compared_with_what_was_sent() -> None:
    check = RowCheck(options(stream="s"), 7, STREAMS.get)
    check.compare([])
    checked(check, batch([b"a", b"b", b"c"]))
    check.compare(stored(check))
    for wrong, said in (
        ([], "the broker stored 0 of the 3 rows of task 7"),
        (stored(check, rows=2), "the broker stored 2 of the 3 rows"),
        (stored(check, digest=check.sent_digest + 1), "the broker stored other rows than the 3 of task 7"),
    ):
        with pytest.raises(BrokerError, match=said) as failure:
            check.compare(wrong)
        assert failure.value.code == "sink_pieces_missing"
        assert failure.value.details["sent"] == 3


def test_dead_letters_are_sent_too_and_dropped_rows_are_not() -> None:
    check = RowCheck(options(stream="s", onOversize="dlq", onInvalid="drop", dlqStream="dead"), 0, STREAMS.get)
    checked(check, batch([b"a" * 11, b"b", b"c"], subject=[None, "b b", None]))
    assert (check.rows, check.sent_rows) == (3, 2)
    check.compare(stored(check, digest=5))  # digests of rows and letters are not known here
    with pytest.raises(BrokerError, match="the broker stored 1 of the 2 rows"):
        check.compare(stored(check, rows=1, digest=5))


def test_the_digest_of_the_input_does_not_depend_on_the_option_subject() -> None:
    rows = batch([b"a", b"b"], subject=[None, "own"])
    found: list[RowCheck] = []
    for given in ({}, {"subject": "x"}, {"subject": "y"}):
        check = RowCheck(options(stream="s", **given), 0, STREAMS.get)
        (sent,) = checked(check, rows)
        assert sent.kept.column("subject").to_pylist() == [given.get("subject"), "own"]
        replay = RowCheck(check.options, 0, {}.get)
        for stream, part, _ in by_stream(rows, replay.options):
            replay.digested(stream, part)
        assert (replay.rows, replay.digest) == (check.rows, check.digest)
        found.append(check)
    assert len({check.digest for check in found}) == 1
    assert len({check.sent_digest for check in found}) == 3, "what is sent has the subject"
    assert found[0].digest == found[0].sent_digest


def test_a_partitioner_sees_the_subject_of_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_subject(given: pa.RecordBatch, partitions: int) -> pa.Array:
        return pa.array([len(subject) % partitions for subject in given.column("subject").to_pylist()], pa.int32())

    monkeypatch.setattr(rows_module, "_partitioner", lambda _name: by_subject)
    found = rows_module.with_partition(batch([b"a"]), options(stream="s", subject="xyz", partitioner="m:f"), 2)
    assert found.schema.names == ["value", "partition"]
    assert found.column("partition").to_pylist() == [1]


def test_counts_of_tasks_are_added() -> None:
    found = total([Counts(1, 2, 3), Counts(10, 20, 30)])
    assert found == Counts(11, 22, 33)
    sentence = found.sentence(options(stream="s", onOversize="drop", onInvalid="dlq", dlqStream="d"))
    assert sentence.startswith("11 oversize rows dropped, 22 invalid rows sent to the dead letter stream d, ")
    assert sentence.endswith(", 33 of the dead letters cut to fit")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"onOversize": "dlq"}, "option onOversize is dlq: set dlqStream"),
        ({"onInvalid": "dlq"}, "option onInvalid is dlq: set dlqStream"),
        ({"dlqStream": "d"}, "dlqStream is never written"),
        ({"stream": "d", "dlqStream": "d", "onInvalid": "dlq"}, "are both 'd'"),
        ({"onInvalid": "skip"}, "fail, drop, dlq"),
    ],
)
def test_options_for_dead_letters_belong_together(given: dict[str, str], text: str) -> None:
    with pytest.raises(BrokerError, match=text):
        options(**given)
