"""Rows that are staged for a sink: invisible, answered once they are sealed, and judged by the sink table alone."""

import json
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bascule.engine import check_rows, verify_log
from bascule.errors import BrokerError
from pyarrow import flight

from tests.integration.engine.staging import FIRST, GENERATION, SINK, STREAM, TOKEN, Plane, rows, serialized

REFUSED = (flight.FlightError, pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowException, OSError)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    opened = Plane(tmp_path / "data")
    opened.sinks(GENERATION)
    yield opened
    opened.close()


def refused(call: Callable[[], Any]) -> str:
    """The code that a call fails with."""
    with pytest.raises(REFUSED) as failure:
        call()
    return str(failure.value).partition("[")[2].partition("]")[0]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_staged_rows_are_sealed_by_partition_and_no_reader_sees_them(plane: Plane) -> None:
    keys = [b"%d" % i for i in range(100)]
    batch = rows([b"v" * 10] * 100, key=pa.array(keys, pa.binary()))
    answers = plane.stage(batch, batch)
    counts = [2 * sum(zlib.crc32(key) % 2 == number for key in keys) for number in (0, 1)]
    assert [(a["partition"], a["incarnation"], a["rows"]) for a in answers] == [
        (0, FIRST, counts[0]),
        (1, FIRST + 1, counts[1]),
    ]
    assert [a["bytes"] for a in answers] == [path.stat().st_size for path in plane.pieces()]
    total = sum(int(a["digest"], 16) for a in answers) % (1 << 128)
    expected = check_rows(serialized(batch, batch), STREAM)
    assert expected[:2] == (200, total.to_bytes(16, "little"))
    assert [status[2:4] for status in plane.engine.status(plane.incarnations)] == [(0, 0), (0, 0)]
    assert plane.client.do_get(flight.Ticket(json.dumps({"stream": STREAM, "partition": 0}))).read_all().num_rows == 0
    staged = plane.engine.staged()
    assert [(s["sink"], s["epoch"], s["token"], s["pieces"], s["incarnations"]) for s in staged] == [
        (SINK, 0, TOKEN, 2, plane.incarnations)
    ]
    assert plane.confirm(answers, [64]) == {"missing": [], "from_offsets": {str(i): 0 for i in plane.incarnations}}


def test_rows_without_a_key_go_where_their_task_says(plane: Plane) -> None:
    for task in (0, 1, 2):
        answers = plane.stage(rows([b"a", b"b"]), task=task)
        assert [a["partition"] for a in answers] == [task % 2]
    numbered = rows([b"a", b"b"], partition=pa.array([1, None], pa.int32()))
    assert [a["partition"] for a in plane.stage(numbered, task=4)] == [0, 1]
    assert [a["partition"] for a in plane.stage(rows([b"a"]), task=6, partition=1)] == [1]


def test_an_empty_batch_is_work_on_the_epoch_until_it_is_void(plane: Plane) -> None:
    batch = rows([b"a"])

    def idle_ms() -> int:
        return plane.engine.staged()[0]["idle_ms"]

    descriptor = flight.FlightDescriptor.for_command(json.dumps({"stream": STREAM, "stage": _stage()}).encode())
    writer, _ = plane.client.do_put(descriptor, batch.schema)
    writer.write_batch(batch)
    until(lambda: bool(plane.engine.staged()))
    until(lambda: idle_ms() > 500)
    before = time.monotonic()
    writer.write_batch(batch.slice(0, 0))
    # The attempt was idle for longer than has passed since, unless the empty batch counts.
    until(lambda: idle_ms() <= (time.monotonic() - before) * 1000)
    plane.sinks(GENERATION + 1, generation=GENERATION + 1)

    def write_empty_batches() -> None:
        for _ in range(200):
            writer.write_batch(batch.slice(0, 0))
            time.sleep(0.05)  # the refusal is on its way

    assert refused(write_empty_batches) == "sink_fenced", "while no rows come"


def test_a_second_call_of_the_same_name_is_answered_or_refused_by_its_rows(plane: Plane) -> None:
    first = plane.stage(rows([b"a", b"b"]))
    assert plane.stage(rows([b"b", b"a"])) == first
    assert refused(lambda: plane.stage(rows([b"a", b"c"]))) == "sink_conflict"
    assert refused(lambda: plane.stage(rows([b"a", b"b"]), partition=1)) == "sink_conflict"
    until(lambda: len(plane.pieces()) == 1)  # what was refused is removed after the answer
    plane.stage(rows([b"a", b"c"]), attempt=65)
    assert plane.confirm(first, [64])["missing"] == []
    assert "not those" in plane.confirm(first, [65])["missing"][0]["reason"]


def test_a_call_that_ends_early_or_fails_leaves_nothing(plane: Plane) -> None:
    def fail() -> None:
        plane.stage(rows([b"a"]), rows([b"b" * (2 << 20)]))

    assert refused(fail) == "too_large"
    descriptor = flight.FlightDescriptor.for_command(
        json.dumps({"stream": STREAM, "stage": {**_stage(), "attempt": 65}}).encode()
    )
    batch = rows([b"x" * 100_000] * 400)
    soon = flight.FlightCallOptions(timeout=3)
    writer, _ = plane.client.do_put(descriptor, batch.schema, options=soon)
    writer.write_batch(batch)
    until(lambda: any(path.suffix == ".tmp" for path in plane.pieces()))
    assert plane.engine.status([FIRST])[0][9] >= 1, "an open call keeps its partition from pausing"
    until(lambda: not plane.pieces())
    until(lambda: not plane.engine.staged())


def test_a_call_without_rows_seals_nothing(plane: Plane) -> None:
    assert plane.stage(schema=rows([]).schema) == []
    assert plane.stage(rows([])) == []
    assert plane.pieces() == []


@pytest.mark.parametrize(
    ("row", "call", "code"),
    [
        ({"generation": GENERATION + 1}, {}, "sink_fenced"),
        ({"last_epoch": 3}, {"epoch": 3}, "sink_published"),
        ({"expired": [{"generation": GENERATION, "epoch": 0, "token": TOKEN}]}, {}, "sink_expired"),
        ({"owner": "spark"}, {}, "sink_not_owned"),
        ({"quota_bytes": 4096}, {}, "sink_quota"),
        ({}, {"sink": SINK - 1}, "sink_not_found"),
        ({}, {"generation": GENERATION + 5}, "unavailable"),
        ({}, {"task": 10_000}, "invalid_argument"),
        ({}, {"epoch": 1 << 63}, "invalid_argument"),
        ({}, {"epoch": -1}, "invalid_argument"),
        ({}, {"token": "1"}, "invalid_argument"),
        ({}, {"surprise": 1}, "invalid_argument"),
        ({}, {"producer": {"id": 1, "base_sequence": 0}, "partition": 0}, "invalid_argument"),
        ({}, {"nats_copy": True}, "invalid_argument"),
        ({}, {"stream": "no-such"}, "stream_not_found"),
        ({}, {"partition": 2}, "partition_not_found"),
    ],
)
def test_what_may_not_be_staged_is_refused_by_its_reason(
    plane: Plane, row: dict[str, Any], call: dict[str, Any], code: str
) -> None:
    plane.sinks(GENERATION + 1, **row)
    assert refused(lambda: plane.stage(rows([b"v" * 8000]), **call)) == code
    until(lambda: not plane.pieces())
    assert plane.engine.staged() == []


def test_a_call_waits_for_the_table_that_knows_its_generation(tmp_path: Path) -> None:
    plane = Plane(tmp_path / "data")
    try:
        assert refused(lambda: plane.stage(rows([b"a"]))) == "unavailable"
        plane.sinks(GENERATION)
        assert [a["rows"] for a in plane.stage(rows([b"a"]))] == [1]
    finally:
        plane.close()


def test_the_table_makes_pieces_void_and_a_call_that_it_overtakes(plane: Plane) -> None:
    plane.stage(rows([b"a"]))
    plane.stage(rows([b"a"]), epoch=1)
    plane.sinks(10, last_epoch=0)
    until(lambda: len(plane.pieces()) == 1)
    descriptor = flight.FlightDescriptor.for_command(
        json.dumps({"stream": STREAM, "stage": {**_stage(), "epoch": 1, "attempt": 65}}).encode()
    )
    writer, _ = plane.client.do_put(descriptor, rows([]).schema)
    writer.write_batch(rows([b"late"]))
    until(lambda: plane.engine.status([FIRST])[0][9] == 2)
    plane.sinks(11, last_epoch=1)
    writer.done_writing()
    assert refused(writer.close) == "sink_published"
    until(lambda: not plane.pieces())
    assert plane.engine.staged() == []


def test_a_version_that_does_not_ascend_is_refused(plane: Plane) -> None:
    with pytest.raises(BrokerError) as failure:
        plane.sinks(GENERATION)
    assert failure.value.code == "invalid_argument"


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_restart_keeps_what_was_sealed(tmp_path: Path, encrypted: bool) -> None:
    plane = Plane(tmp_path / "data", encrypted=encrypted)
    plane.sinks(GENERATION)
    answers = plane.stage(rows([b"secret-rows" * 10] * 3000))
    piece = plane.pieces()[0]
    assert (b"secret-rows" in piece.read_bytes()) is not encrypted
    (piece.parent / f"{piece.name}.9.tmp").write_bytes(b"half")
    (piece.parent / "garbage").write_bytes(b"of somebody")
    (piece.parent / "7-9-0-short-0-64.piece").write_bytes(b"")
    plane.close()
    logs = verify_log(str(tmp_path / "data"))["logs"]
    assert [(log["damaged"], log["findings"]) for log in logs] == [(False, [])] * 2
    plane = Plane(tmp_path / "data", encrypted=encrypted)
    try:
        assert not list(piece.parent.glob("*.tmp"))
        plane.sinks(GENERATION)
        assert plane.confirm(answers, [64])["missing"] == []
        assert plane.stage(rows([b"secret-rows" * 10] * 3000)) == answers, "answered as the first"
        piece.write_bytes(piece.read_bytes()[:-1])
        assert "damaged" in plane.confirm(answers, [64])["missing"][0]["reason"]
        piece.unlink()
        assert "missing" in plane.confirm(answers, [64])["missing"][0]["reason"]
        assert plane.stage(rows([b"other"]), attempt=66)[0]["rows"] == 1, "the partition takes rows all the same"
    finally:
        plane.close()


def test_a_partition_that_is_read_only_or_gone_is_refused(plane: Plane) -> None:
    plane.show(readonly=True)
    assert refused(lambda: plane.stage(rows([b"a"]))) == "readonly"
    plane.show()
    answers = plane.stage(rows([b"a"]))
    plane.engine.delete_partitions([FIRST], at_once=True)
    assert plane.engine.staged() == []
    assert plane.pieces() == []
    assert plane.confirm(answers, [64])["missing"][0]["reason"] == "the partition is not open on this broker"


def test_a_folder_that_cannot_be_written_fails_the_call_alone(plane: Plane) -> None:
    folder = plane.data / "partitions" / str(FIRST) / "stage"
    folder.write_bytes(b"in the way")
    assert refused(lambda: plane.stage(rows([b"a"]))) == "stage_failed"
    folder.unlink()
    assert [a["rows"] for a in plane.stage(rows([b"a"]))] == [1]
    assert plane.engine.append(FIRST, [b"direct"], 10_000) == 0


def test_digests_of_rows_add_up() -> None:
    with pytest.raises(Exception, match=r"not an Arrow IPC stream|cut off"):
        check_rows(b"\xff\xff\xff\xff\x10\x00\x00\x00short", STREAM)
    one, other = rows([b"a"]), rows([b"b"])
    sums = [int.from_bytes(check_rows(serialized(item), STREAM)[1], "little") for item in (one, other)]
    both = int.from_bytes(check_rows(serialized(other, one), STREAM)[1], "little")
    assert both == sum(sums) % (1 << 128)


def _stage() -> dict[str, Any]:
    return {"sink": SINK, "generation": GENERATION, "epoch": 0, "token": TOKEN, "task": 0, "attempt": 64}
