"""One task of a write, without Spark and a broker: what it does while it has no row, and with the broker's answers."""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from bascule.errors import BrokerError
from bascule.spark.sink import tasks
from bascule.spark.sink.calls import OpenedSink, SinkStream, Target
from bascule.spark.sink.checking import check
from bascule.spark.sink.identity import Writer
from bascule.spark.sink.options import parse_sink_options
from bascule.spark.sink.renewal import Renewal

from tests.unit.test_spark_sink import STREAMING, TOKEN, WRITER

OPTIONS = parse_sink_options({"stream": "t", "sinkId": "s"}, is_stream=True)


class Calls:
    """The broker's answers about the sink; `renewed` is set by the first renewal."""

    renewed = threading.Event()

    def __init__(self, _options: object) -> None:
        pass

    def open(self, _writer: Writer, _streams: tuple[str, ...]) -> OpenedSink:
        return OpenedSink(5, 6, None, (SinkStream("t", 2, 1000),))

    def renew(self, writer: Writer, sink: tuple[int, int], token: str) -> None:
        assert (writer, sink, token) == (WRITER, (5, 6), TOKEN)
        self.renewed.set()


class Stager:
    """Stores all rows but the last `lost`."""

    lost = 0

    def __init__(self, *_place: object) -> None:
        self.rows: list[pa.RecordBatch] = []

    def send(self, _stream: str, batch: pa.RecordBatch) -> None:
        self.rows.append(batch)

    def finish(self) -> list[Target]:
        rows = sum(batch.num_rows for batch in self.rows) - self.lost
        digest = sum(check(batch, "t").digest for batch in self.rows) % (1 << 128)
        return [Target("t", 0, 7, rows, f"{digest:032x}")] if rows else []

    def cancel(self) -> None:
        raise AssertionError("the write failed before its end")


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "SinkCalls", Calls)
    monkeypatch.setattr(tasks, "Stager", Stager)
    monkeypatch.setattr(tasks, "Renewal", partial(Renewal, every_s=0.001))
    monkeypatch.setattr(tasks, "_opened", {})
    monkeypatch.setattr(Calls, "renewed", threading.Event())


def written(batches: Iterator[Any]) -> tasks.TaskMessage:
    return tasks.write_task(OPTIONS, TOKEN, batches, STREAMING, is_stream=True)


def values(*given: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": list(given)})


def test_a_task_without_a_row_renews_its_epoch() -> None:
    def silent() -> Iterator[pa.RecordBatch]:
        assert Calls.renewed.wait(30.0), "the epoch expires while the task sorts its rows"
        yield values(b"a")

    assert written(silent()).rows == 1


def test_a_task_whose_rows_are_all_stored_says_so() -> None:
    message = written(iter([values(b"a", b"b"), values(b"c")]))
    assert (message.rows, [target.rows for target in message.targets]) == (3, [3])


@pytest.mark.parametrize("lost", [1, 3])
def test_a_task_fails_when_the_broker_stored_fewer_rows_than_it_sent(
    monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    monkeypatch.setattr(Stager, "lost", lost)
    with pytest.raises(BrokerError, match=f"the broker stored {3 - lost} of the 3 rows of task 0") as caught:
        written(iter([values(b"a", b"b", b"c")]))
    assert caught.value.code == "sink_pieces_missing"
