"""Logs: one event in two formats."""

import json
import logging
import re

import pytest
from bascule import logs


@pytest.fixture(autouse=True)
def restored() -> object:
    logger = logging.getLogger("bascule")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def test_json_is_one_object_per_line_with_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logs.emit(20, "log.recovery", "recovered\nit", stream="orders", partition=3, duration_ms=1.5)
    logs.emit(10, "log.recovery", "too fine to be shown")
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", event.pop("time"))
    assert event == {
        "level": "info", "target": "bascule.log.recovery", "message": "recovered\nit", "stream": "orders",
        "partition": 3, "duration_ms": 1.5,
    }  # fmt: skip


def test_text_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", "text")
    logs.emit(40, "disk", "is full", free=0)
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} error   bascule\.disk: is full free=0\n", capsys.readouterr().err)


def test_text_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", "text")
    logs.emit(20, "groups", "joined\n00:00", group="a\n12:00:00.000 error   bascule.disk: is full\x1b[31m")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(r"joined\n00:00 group=a\n12:00:00.000 error   bascule.disk: is full\x1b[31m")


def test_the_style_is_json_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    logs.emit(20, "a", "b")
    assert json.loads(capsys.readouterr().err)["message"] == "b"


def test_wording_changes_the_message_and_not_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    for style in ("json", "text"):
        logs.configure("info", style, str.upper)
        logs.emit(20, "a", "said of b", stream="b")
    as_json, as_text = capsys.readouterr().err.splitlines()
    event = json.loads(as_json)
    assert (event["message"], event["stream"]) == ("SAID OF B", "b")
    assert as_text.endswith("SAID OF B stream=b")


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_message_that_cannot_be_formatted_does_not_raise(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", style, str.upper)
    logging.getLogger("bascule.x").warning("%d is not a number", "x")
    assert "--- Logging error ---" in capsys.readouterr().err


def test_configuring_twice_logs_everything_once(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logs.configure("warning", "json")
    logs.emit(20, "a", "not shown any more")
    logs.emit(30, "a", "shown")
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_exception_comes_with_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    for style in ("json", "text"):
        logs.configure("info", style)
        try:
            int("boom")
        except ValueError:
            logging.getLogger("bascule.x").exception("failed")
        assert "ValueError: invalid literal" in capsys.readouterr().err
