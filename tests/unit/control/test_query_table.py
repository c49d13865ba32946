"""Where queries stand: what counts of their reports, for how long, and who may make them."""

from typing import Any

import pytest
from bascule.control import query_table
from bascule.control.query_table import EXPIRE_S, SILENT_S, Position, QueryTable, Report
from bascule.metadata import StreamKey
from bascule.metadata.rejection import Rejection, RejectionCode

KEY = StreamKey("default", "totals")


def report(*positions: tuple[int, int, int], key: StreamKey = KEY, stream: str = "orders", **more: Any) -> Report:
    return Report(key, more.pop("owner", "ada"), {stream: tuple(map(Position._make, positions)) or None}, **more)


def code(result: Rejection | list[str]) -> RejectionCode | None:
    return result.code if isinstance(result, Rejection) else None


def test_a_report_replaces_the_positions_in_its_streams_and_leaves_others() -> None:
    table = QueryTable(3, 2)
    assert table.take(report((0, 7, 100), (1, 8, 5)), 1.0) == []
    assert table.take(report((0, 9, 3), stream="payments"), 2.0) == []
    assert table.take(report((0, 7, 200)), 3.0) == []
    query = table.query(KEY)
    assert query is not None
    assert {name: each.positions for name, each in query.streams.items()} == {
        "orders": (Position(0, 7, 200),), "payments": (Position(0, 9, 3),),
    }  # fmt: skip
    assert query.positions == 2


def test_a_report_without_positions_renews_those_before_and_names_what_is_not_known() -> None:
    table = QueryTable(3, 2)
    assert table.take(report(), 1.0) == ["orders"]
    assert table.query(KEY) is None, "nothing is kept of a query that is not known"
    table.take(report((0, 7, 100)), 2.0)
    both = Report(KEY, "ada", {"orders": None, "payments": None})
    assert table.take(both, 50.0) == ["payments"]
    query = table.query(KEY)
    assert query is not None
    assert query.streams["orders"].positions == (Position(0, 7, 100),)
    assert query.streams["orders"].reported_s == 50.0
    assert "payments" not in query.streams


def test_a_query_is_silent_after_a_minute_said_once_and_forgotten_after_an_hour() -> None:
    table = QueryTable(3, 2)
    table.take(report((0, 7, 100)), 10.0)
    assert table.missed(10.0 + SILENT_S - 0.1) == []
    assert table.missed(10.0 + SILENT_S) == [(KEY, "orders")]
    assert table.missed(11.0 + SILENT_S) == []
    query = table.query(KEY)
    assert query is not None
    assert [query.streams["orders"].state(10.0 + age) for age in (SILENT_S - 0.1, SILENT_S)] == ["reporting", "silent"]
    assert table.expire(10.0 + EXPIRE_S - 0.1) == []
    assert table.expire(10.0 + EXPIRE_S) == [(KEY, "orders")]
    assert table.query(KEY) is None


def test_a_hold_that_outlasts_an_hour_keeps_the_query_known_until_it_ends() -> None:
    table, days_s = QueryTable(3, 2), 3 * 86_400.0
    table.take(report((0, 7, 100), hold_s={"orders": days_s}), 10.0)
    table.take(report((0, 9, 3), stream="payments"), 10.0)
    assert table.expire(10.0 + EXPIRE_S) == [(KEY, "payments")]
    assert table.expire(10.0 + days_s - 0.1) == []
    assert table.expire(10.0 + days_s) == [(KEY, "orders")]
    table.take(report((0, 7, 100), hold_s={"orders": days_s}), 0.0)
    table.take(report(), 1.0)
    assert table.expire(1.0 + EXPIRE_S) == [(KEY, "orders")], "the last report does not hold"


def test_a_query_that_has_ended_is_not_missed_until_it_reports_again() -> None:
    table = QueryTable(3, 2)
    table.take(report((0, 7, 100)), 0.0)
    table.take(report(is_ended=True), 1.0)
    query = table.query(KEY)
    assert query is not None
    assert query.streams["orders"].state(2 * SILENT_S) == "ended"
    assert table.missed(2 * SILENT_S) == []
    table.take(report((0, 7, 101)), 3 * SILENT_S)
    assert table.missed(4 * SILENT_S) == [(KEY, "orders")]


def test_another_client_may_not_report_under_the_name_until_it_is_forgotten() -> None:
    table = QueryTable(3, 2)
    table.take(report((0, 7, 100)), 0.0)
    refused = table.take(report((0, 7, 5), owner="eve"), 1.0)
    assert isinstance(refused, Rejection)
    assert refused.code is RejectionCode.QUERY_NOT_OWNED
    assert refused.message == "query totals is reported by client ada: give your query another name"
    query = table.query(KEY)
    assert query is not None
    assert query.streams["orders"].positions == (Position(0, 7, 100),)
    table.expire(EXPIRE_S)
    assert table.take(report((0, 7, 5), owner="eve"), EXPIRE_S) == []


def test_queries_of_one_client_and_of_all_are_bounded() -> None:
    table = QueryTable(3, 2)
    for name in ("a", "b"):
        assert table.take(report((0, 7, 1), key=StreamKey("default", name)), 0.0) == []
    refused = table.take(report((0, 7, 1), key=StreamKey("default", "c")), 0.0)
    assert code(refused) is RejectionCode.TOO_MANY_QUERIES
    assert isinstance(refused, Rejection)
    assert refused.message == ("client ada reports 2 queries, the most that one client may (limits.queries_per_client)")
    assert table.take(report((0, 7, 1), key=StreamKey("default", "c"), owner=""), 0.0) == []
    refused = table.take(report((0, 7, 1), key=StreamKey("default", "d"), owner=""), 0.0)
    assert isinstance(refused, Rejection)
    assert "3 queries report already, which is the most (limits.queries)" in refused.message
    assert table.take(report((0, 7, 2), key=StreamKey("default", "a")), 0.0) == [], "a known query is not counted again"


def test_positions_of_all_queries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_table, "MAX_POSITIONS", 3)
    table = QueryTable(3, 3)
    assert table.take(report((0, 7, 1), (1, 8, 1)), 0.0) == []
    assert table.take(report((0, 7, 1), (1, 8, 1), (2, 9, 1)), 0.0) == [], "the new ones replace the old ones"
    refused = table.take(report((0, 7, 1), stream="payments"), 0.0)
    assert code(refused) is RejectionCode.TOO_MANY_QUERIES
    assert isinstance(refused, Rejection)
    assert refused.message == "queries would have 4 positions, at most 3 are kept: report fewer streams"
