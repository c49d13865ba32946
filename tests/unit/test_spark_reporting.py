"""How a streaming read reports its positions, without a broker."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from bascule._admin_pb import message
from bascule.errors import AccessError, BrokerError, StateError, UnavailableError
from bascule.spark import reporting
from bascule.spark.offsets import Mark
from bascule.spark.reporting import PositionReporter, ReportAnswer, ReportedQuery, begin_hold

from tests.waiting import until

Call = tuple[dict[str, dict[int, tuple[int, int]]], tuple[str, ...], bool]


class Broker:
    """Takes reports. `failures`: so many fail first; `unknown`: what it says not to know, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[Call] = []
        self.failures = 0
        self.failure: BrokerError = UnavailableError("unavailable", "no broker answered")
        self.unknown: list[str] = []
        self.not_held: list[str] = []
        self.refused: dict[str, list[str]] = {}
        self.answers = threading.Event()
        self.answers.set()
        monkeypatch.setattr(reporting, "report_positions", self.report)

    def report(
        self, query: ReportedQuery, positions: Any, *, renewed: tuple[str, ...] = (), ended: bool = False
    ) -> ReportAnswer:
        assert query.name == "totals"
        assert self.answers.wait(30)
        self.calls.append((dict(positions), renewed, ended))
        if self.failures:
            self.failures -= 1
            raise self.failure
        unknown, self.unknown = self.unknown, []
        return ReportAnswer(unknown, self.not_held, self.refused)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(reporting, "RENEW_S", 0.05)
    monkeypatch.setattr(reporting, "RETRY_S", 0.01)
    return Broker(monkeypatch)


def reporter() -> PositionReporter:
    return PositionReporter(ReportedQuery("grpc://127.0.0.1:1", "default", "totals"))


def marks(**following: int) -> dict[tuple[str, int], Mark]:
    return {(stream, 0): Mark(7, 0, offset) for stream, offset in following.items()}


def seen(broker: Broker, wanted: Call) -> Callable[[], bool]:
    return lambda: wanted in broker.calls


def test_only_streams_that_moved_are_sent_and_the_others_renewed(broker: Broker) -> None:
    made = reporter()
    made.reached(marks(a=1, b=2), wait_s=30)
    assert broker.calls[-1] == ({"a": {0: (7, 1)}, "b": {0: (7, 2)}}, (), False)
    made.reached(marks(a=1, b=3), wait_s=30)
    assert ({"b": {0: (7, 3)}}, ("a",), False) in broker.calls
    until(seen(broker, ({}, ("a", "b"), False)), 30)
    made.stop()
    assert broker.calls[-1] == ({}, ("a", "b"), True)


def test_what_the_broker_has_forgotten_is_sent_again(broker: Broker) -> None:
    made = reporter()
    made.reached(marks(a=1, b=2), wait_s=30)
    broker.calls.clear()
    broker.unknown = ["b"]
    until(seen(broker, ({"b": {0: (7, 2)}}, ("a",), False)), 30)
    made.stop()


def test_a_report_that_fails_is_said_once_and_sent_again_in_full(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    made = reporter()
    made.reached(marks(a=1, b=2), wait_s=30)
    broker.calls.clear()
    broker.failures = 3
    with caplog.at_level(logging.WARNING, "bascule.spark"):
        made.reached(marks(a=2, b=2), wait_s=30)
    whole: Call = ({"a": {0: (7, 2)}, "b": {0: (7, 2)}}, (), False)
    assert broker.calls[0] == ({"a": {0: (7, 2)}}, ("b",), False)
    assert broker.calls[1:4] == [whole] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "the position of query totals could not be reported: no broker answered; the query continues"
    ]
    made.stop()


def test_a_broker_that_does_not_answer_delays_nobody_and_gets_only_the_newest(broker: Broker) -> None:
    broker.answers.clear()
    made = reporter()
    for offset in range(100):
        made.reached(marks(a=offset))
    broker.answers.set()
    made.reached(marks(a=99), wait_s=30)
    assert broker.calls[-1][0] in ({"a": {0: (7, 99)}}, {})
    assert len([call for call in broker.calls if call[0]]) <= 2
    made.stop()


def test_a_query_that_never_moved_reports_nothing(broker: Broker) -> None:
    made = reporter()
    made.stop()
    assert broker.calls == []


def test_a_stream_that_is_refused_does_not_keep_the_others_from_being_renewed(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    made = reporter()
    broker.refused = {"b": ["stream default/b does not exist"]}
    with caplog.at_level(logging.WARNING, "bascule.spark"):
        made.reached(marks(a=1, b=2), wait_s=30)
        again: Call = ({"b": {0: (7, 2)}}, ("a",), False)
        until(lambda: broker.calls.count(again) > 1, 30)
    (record,) = caplog.records
    assert record.getMessage() == (
        "the broker does not take all that query totals reports: stream default/b does not exist; this is tried again; "
        "the query continues"
    )
    broker.refused = {}
    until(seen(broker, ({}, ("a", "b"), False)), 30)
    made.stop()


def test_a_report_of_many_streams_is_sent_in_parts_of_which_one_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "MAX_STREAMS", 3)
    monkeypatch.setattr(reporting, "MAX_POSITIONS", 4)
    parts: list[list[str]] = []

    def call(_address: str, _method: str, request: Any, **_more: Any) -> Any:
        parts.append([each.name for each in request.streams])
        if "b" in parts[-1]:
            raise StateError("incarnation_changed", "it was created again")
        refused = [{"stream": parts[-1][0], "partition": 1, "code": "not_open", "message": "it is paused"}]
        return message("ReportQueryResponse")(unknown=parts[-1][-1:], refused=refused)

    monkeypatch.setattr(reporting, "admin_call", call)
    query = ReportedQuery("grpc://127.0.0.1:1", "default", "totals")
    positions = {"a": {0: (7, 1), 1: (8, 1)}, "b": {0: (7, 1), 1: (8, 1)}, "c": {n: (n, 1) for n in range(5)}}
    with pytest.raises(StateError, match="created again"):
        reporting.report_positions(query, positions, renewed=("d", "e", "f", "g"))
    assert parts == [["a", "b"], ["c"], ["d", "e", "f"], ["g"]]
    answer = reporting.report_positions(query, {}, renewed=("d", "e", "f", "g"))
    assert answer == ReportAnswer(["f", "g"], [], {"d": ["it is paused"], "g": ["it is paused"]})


HOLDING = ReportedQuery("grpc://127.0.0.1:1", "default", "totals", hold=True)


def test_a_hold_begins_with_a_report_that_is_waited_for(broker: Broker) -> None:
    begin_hold(HOLDING, marks(a=1, b=2))
    assert broker.calls == [({"a": {0: (7, 1)}, "b": {0: (7, 2)}}, (), False)]


def test_a_hold_that_is_refused_ends_the_query_by_name(broker: Broker) -> None:
    broker.not_held = ["b"]
    with pytest.raises(
        StateError, match="query totals cannot hold records of b: set retention_hold_max_bytes"
    ) as found:
        begin_hold(HOLDING, marks(a=1, b=2))
    assert found.value.code == "hold_not_allowed"
    broker.failures, broker.failure = 1, AccessError("permission_denied", "you may not call HoldRetention")
    with pytest.raises(AccessError, match="HoldRetention"):
        begin_hold(HOLDING, marks(a=1))


def test_a_hold_begins_later_if_the_broker_does_not_answer(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bascule.spark"):
        for failure in (broker.failure, StateError("incarnation_changed", "it was created again")):
            broker.failures, broker.failure = 1, failure
            begin_hold(HOLDING, marks(a=1))
        broker.refused = {"a": ["stream default/a does not exist"]}
        begin_hold(HOLDING, marks(a=1))
    said = [record.getMessage().split(": ")[:2] for record in caplog.records]
    first = "query totals does not hold its records yet"
    assert said == [
        [first, "no broker answered; it is tried again"],
        [first, "it was created again; it is tried again"],
        ["query totals does not hold all of its records yet", "stream default/a does not exist; it is tried again"],
    ]


def test_a_stream_that_lets_a_running_query_hold_nothing_any_more_is_said(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    made = PositionReporter(HOLDING)
    broker.not_held = ["a"]
    with caplog.at_level(logging.WARNING, "bascule.spark"):
        made.reached(marks(a=1), wait_s=30)
        made.stop()
    (record,) = caplog.records
    assert "query totals cannot hold records of a" in record.getMessage()
