"""Reports of epochs: lag and time left by the source's documents, one line for people, one object for programs."""

import io
import json
from typing import Any

import pytest
from bascule.pipeline.progress import EpochReport, Line, Written, as_ndjson, lag_of, report_of, text_of


def offsets(**ends: int) -> str:
    marks = {part: {"first": 0, "incarnation": 1, "next": end} for part, end in ends.items()}
    return json.dumps({"streams": {"s": marks}, "version": 2})


def progress(**more: Any) -> dict[str, Any]:
    return {
        "batchId": 7,
        "numInputRows": 500,
        "durationMs": {"triggerExecution": 250},
        "sources": [{"endOffset": offsets(a=10, b=5), "latestOffset": offsets(a=110, b=5, c=3)}],
        "observedMetrics": {"expectations": {"rows": 500, "positive": 2}},
        **more,
    }


def test_a_report_has_rate_lag_and_time_left() -> None:
    report = report_of("orders", progress(), Written(900, 2, 1), has_end=True)
    assert (report.epoch, report.rows, report.rows_per_second, report.lag) == (7, 500, 2000.0, 103)
    assert report.eta_s == pytest.approx(0.1)
    assert report.metrics == {"expectations": {"rows": 500, "positive": 2}}
    assert json.loads(as_ndjson(report))["total_rows"] == 900
    assert report_of("orders", progress(), Written(900, 2, 1), has_end=False).eta_s is None


def test_a_lag_that_is_not_known_is_not_zero() -> None:
    assert lag_of({"sources": [{"endOffset": offsets(a=1), "latestOffset": None}]}) is None
    assert lag_of({"sources": [{"endOffset": "{", "latestOffset": "{"}]}) is None
    report = report_of("orders", progress(sources=[{}]), Written(1, 0, 0), has_end=True)
    assert (report.lag, report.eta_s) == (None, None)
    assert "lag ?" in text_of(report)


def test_the_line_is_for_terminals_only() -> None:
    report = EpochReport("orders", 7, 500, 250, 2000.0, 1030, 3725.0, 12345, 2, 0)
    assert text_of(report) == "orders: epoch 7, 12,345 rows, 2,000 rows/s, lag 1,030, 2 dead letters, 1:02:05 left"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown, quiet = Terminal(), io.StringIO()
    for stream in (shown, quiet):
        line = Line(stream)
        line(report)
        line.close()
        line.close()
    assert quiet.getvalue() == ""
    assert shown.getvalue().startswith("\rorders: epoch 7")
    assert shown.getvalue().count("\n") == 1
