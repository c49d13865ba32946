"""The broker is asked before a replay or a query begins."""

from typing import Any

import pytest
from bascule.errors import AccessError, BrokerError, InternalError, UnavailableError
from bascule.spark import reaching
from bascule.spark.connection import Broker
from bascule.spark.reaching import ANSWER_MS, START_MS, check_reached
from bascule.spark.replaying import api, copies, redriving

ABSENT = UnavailableError("unavailable", "broker at a:1: Connection refused; check the address, and that a broker runs")
SILENT = UnavailableError("unavailable", "Deadline Exceeded")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int, int]]:
    found: list[tuple[str, str, int, int]] = []

    class Brokers:
        def __init__(self, *place: Any) -> None:
            found.append(place)

        def streams(self) -> list[str]:
            return []

    monkeypatch.setattr(reaching, "Broker", Brokers)
    return found


def fails(monkeypatch: pytest.MonkeyPatch, failure: BrokerError) -> None:
    def streams(_: Any) -> list[str]:
        raise failure

    monkeypatch.setattr(Broker, "streams", streams)


def test_the_broker_is_asked_for_some_seconds_or_as_long_as_the_option_says(
    asked: list[tuple[str, str, int, int]],
) -> None:
    check_reached("copy c", {"address": "a:1", "fromOffset": "7"})
    check_reached("copy c", {"ADDRESS": "a:1", "namespace": "n", "retrydeadlinems": "90000", "requestTimeoutMs": "9"})
    assert asked == [("grpc://a:1", "default", ANSWER_MS, START_MS), ("grpc://a:1", "n", 9, 90_000)]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (ABSENT, "broker at a:1: Connection refused; check the address, and that a broker runs"),
        (SILENT, "broker at a:1: Deadline Exceeded; check the address, and that a broker runs there"),
        (InternalError("internal", "status: 404"), "broker at a:1: status: 404; check the address"),
    ],
)
def test_one_that_is_not_reached_ends_it_with_its_address(
    monkeypatch: pytest.MonkeyPatch, failure: BrokerError, reason: str
) -> None:
    fails(monkeypatch, failure)
    sentence = f"^copy c has not started, because its broker was not reached: {reason}"
    with pytest.raises(type(failure), match=sentence) as raised:
        check_reached("copy c", {"address": "a:1"})
    assert str(raised.value).endswith("To wait for a broker that starts later, set retryDeadlineMs")


def test_an_answer_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, AccessError("permission_denied", "no"))
    check_reached("copy c", {"address": "a:1"})


def test_replays_copies_and_redrives_ask_before_they_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    fails(monkeypatch, ABSENT)
    spark: Any = None
    place: dict[str, Any] = {"id": "c", "checkpoint": str(tmp_path / "c"), "address": "a:1"}
    calls: list[tuple[str, Any]] = [
        ("replay c", lambda: api.replay(spark, archive=str(tmp_path), to="t", **place)),
        ("the preview", lambda: api.replay_preview(spark, archive=str(tmp_path), to="t", address="a:1")),
        ("copy c", lambda: copies.copy(spark, stream="s", to="t", **place)),
        ("the preview", lambda: copies.copy_preview(stream="s", to="t", address="a:1")),
        ("copy c", lambda: copies.copy_continuously(spark, stream="s", to="t", **place)),
        ("re-drive c", lambda: redriving.redrive(spark, letters="s", **place)),
        ("the preview", lambda: redriving.redrive_preview(spark, letters="s", address="a:1")),
    ]
    for what, call in calls:
        with pytest.raises(UnavailableError, match=f"^{what} has not started, because its broker was not reached"):
            call()
    assert not (tmp_path / "c").exists()
