"""Records as rows: what is kept, lost and refused, and how many fit."""

from datetime import UTC, datetime
from importlib import import_module
from typing import Any, cast

import pytest
from bascule.cli.commands.spark_replay import FLAGS
from bascule.errors import StateError, UsageError
from bascule.spark.replaying.copies import copy_continuously
from bascule.spark.replaying.options import Bounds
from bascule.spark.replaying.rows import ROW_BYTES, Shape, fit_of, fitting, row_bytes
from bascule.spark.spelling import surface

pa: Any = import_module("pyarrow")

ARCHIVE = ("stream", "incarnation", "partition", "offset", "timestamp", "subject", "key", "value", "headers")
PAIR = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


def records(**columns: Any) -> Any:
    kinds: dict[str, Any] = {
        "value": pa.binary(),
        "key": pa.binary(),
        "headers": pa.list_(PAIR),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ns": pa.int64(),
        "origin_time": pa.timestamp("us", "UTC"),
    }
    arrays = {name: pa.array(values, kinds[name]) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def shape(batch: Any, **more: Any) -> Shape:
    given: dict[str, Any] = {"keeps_partition": True, "may_lose_names": False, "bounds": Bounds(), **more}
    return Shape(tuple(batch.schema.names), **given)


def test_the_default_archive_lacks_replies_and_ids() -> None:
    refused = fit_of(ARCHIVE, ()).refused
    assert [each.split(":")[0] for each in refused] == ["the source has no column reply", "the source has no column id"]
    fit = fit_of((*ARCHIVE, "date", "bucket"), ("reply", "id"))
    assert fit.refused == ()
    assert fit.columns == ("value", "key", "headers", "subject", "timestamp", "offset")
    assert {"reply: left out", "id: left out"} <= set(fit.lost)


def test_a_column_that_no_record_has_is_refused_until_it_is_left_out() -> None:
    assert fit_of((*ARCHIVE, "reply", "id", "price"), ()).refused == (
        "column price is not one of a record: name it in leaveOut to lose it",
    )
    assert fit_of((*ARCHIVE, "reply", "id", "price"), ("price",)).refused == ()


@pytest.mark.parametrize(
    ("there", "leave_out", "message"),
    [
        (ARCHIVE, ("value",), "leaveOut names 'value': a record without its value"),
        (ARCHIVE, ("origin_time",), "leaveOut names 'origin_time', which needs no naming: a record without it gets"),
        (ARCHIVE, ("timestamp",), "leaveOut names 'timestamp', which needs no naming: the target stores its own"),
        (ARCHIVE, ("offset",), "leaveOut names 'offset', which needs no naming: the target gives"),
        (ARCHIVE, ("date",), "leaveOut names 'date', which needs no naming: it follows"),
        (ARCHIVE, ("header_name",), "did you mean header_names"),
        (("stream", "partition", "offset", "timestamp"), (), "no column value"),
        (("stream", "partition", "offset", "value"), (), "no column timestamp"),
    ],
)
def test_what_cannot_be_left_out_is_named(there: tuple[str, ...], leave_out: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit_of(there, leave_out)


def test_a_command_names_its_own_flag_and_python_its_own_argument() -> None:
    with surface(FLAGS), pytest.raises(UsageError, match=r"^--leave-out names 'repl'"):
        fit_of(ARCHIVE, ("repl",))
    with surface(FLAGS):
        assert all("name it in --leave-out to lose it" in each for each in fit_of(ARCHIVE, ()).refused)
    with pytest.raises(UsageError, match=r"^argument leave_out names 'repl' \(did you mean reply"):
        copy_continuously(
            cast("Any", None), stream="a", to="b", id="i", checkpoint="/c", leave_out="repl", address="127.0.0.1:1"
        )


def test_the_receipt_time_becomes_the_origin_unless_there_is_one() -> None:
    batch = records(
        value=[b"a", b"b"], offset=[4, 5], timestamp=[1, 2], timestamp_ns=[1001, 2002], origin_time=[None, 7]
    )
    rows, offsets = shape(batch).rows(batch, 3)
    assert rows.column("origin_time").cast(pa.int64()).to_pylist() == [1001, 7000]
    assert rows.column("partition").to_pylist() == [3, 3]
    assert offsets.to_pylist() == [4, 5]
    assert "partition" not in shape(batch, keeps_partition=False).rows(batch, 3)[0].schema.names


def test_times_bound_rows_exactly() -> None:
    batch = records(value=[b"a", b"b", b"c"], offset=[0, 1, 2], timestamp=[10, 20, 30])
    rows, offsets = shape(batch, bounds=Bounds(since_us=20, until_us=30)).rows(batch, 0)
    assert (rows.column("value").to_pylist(), offsets.to_pylist()) == ([b"b"], [1])
    assert rows.column("origin_time")[0].as_py() == datetime(1970, 1, 1, microsecond=20, tzinfo=UTC)


def test_a_header_without_a_name_is_refused_until_names_may_be_lost() -> None:
    headers = [[{"key": "a", "value": b"1"}], [{"key": None, "value": b"2"}]]
    batch = records(value=[b"a", b"b"], offset=[8, 9], timestamp=[1, 2], headers=headers)
    with pytest.raises(StateError, match="offsets 8 to 9 1 headers have names that are not text"):
        shape(batch).rows(batch, 0)
    assert shape(batch, may_lose_names=True).rows(batch, 0)[0].column("headers").to_pylist() == headers


def test_the_bytes_of_rows_are_those_of_their_content() -> None:
    headers = [
        None,
        [],
        [{"key": "ab", "value": b"12345"}, {"key": None, "value": None}],
        [{"key": "x", "value": b"y"}],
    ]
    rows = records(value=[b"a", None, b"ccc", b""], key=[None, b"12", b"", b"1"], headers=headers)
    expected = [ROW_BYTES + 1, ROW_BYTES + 2, ROW_BYTES + 3 + 7 + 16, ROW_BYTES + 1 + 2 + 8]
    assert row_bytes(rows).to_pylist() == expected
    assert row_bytes(rows.slice(2)).to_pylist() == expected[2:]


@pytest.mark.parametrize(
    ("left_rows", "left_bytes", "count"),
    [(3, 1 << 40, 3), (2, 1 << 40, 2), (9, 2 * (ROW_BYTES + 1), 2), (9, 2 * (ROW_BYTES + 1) - 1, 1), (9, 0, 0)],
)
def test_rows_fit_up_to_both_bounds(left_rows: int, left_bytes: int, count: int) -> None:
    rows = records(value=[b"a", b"b", b"c"])
    assert fitting(rows, left_rows, left_bytes) == (count, count * (ROW_BYTES + 1))


def test_a_subject_that_is_a_pattern_becomes_that_of_the_target() -> None:
    subjects = ["orders.eu", "orders.>", ">", "orders.*.x", "a>b", None]
    batch = records(value=[b""] * 6, offset=range(6), timestamp=[datetime.now(UTC)] * 6)
    batch = batch.append_column("subject", pa.array(subjects))
    rows, _ = shape(batch).rows(batch, 0)
    assert rows.column("subject").to_pylist() == ["orders.eu", None, None, None, "a>b", None]
