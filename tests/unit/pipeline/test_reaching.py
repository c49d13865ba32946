"""The brokers of a job are asked before it starts."""

from typing import Any

import pytest
from bascule.errors import AccessError, BrokerError, InternalError, UnavailableError
from bascule.pipeline import reaching
from bascule.pipeline.files import parse_job
from bascule.spark.reaching import ANSWER_MS, START_MS

STREAM = {"format": "bascule", "stream": "copies"}
TABLE = {"format": "delta", "path": "lake"}
ABSENT = UnavailableError("unavailable", "broker at a:1: Connection refused; check the address, and that a broker runs")
SILENT = UnavailableError("unavailable", "Deadline Exceeded")


class Brokers:
    """Stands for `Broker`: what is asked, and who fails."""

    def __init__(self, **failures: BrokerError) -> None:
        self.failures = {f"grpc://{name}:1": failure for name, failure in failures.items()}
        self.asked: list[tuple[str, int, int]] = []

    def __call__(self, address: str, _namespace: str, timeout_ms: int, retry_ms: int) -> "Brokers":
        self.asked.append((address, timeout_ms, retry_ms))
        return self

    def streams(self) -> list[str]:
        failure = self.failures.get(self.asked[-1][0])
        if failure is not None:
            raise failure
        return []


def check(monkeypatch: pytest.MonkeyPatch, brokers: Brokers, *targets: Any, **keys: Any) -> list[tuple[str, int, int]]:
    sink = {"sink": keys.pop("sink")} if "sink" in keys else {}
    source = {"stream": "orders", "address": "a:1", **keys}
    job = {"name": "j", "source": source, "targets": list(targets or (TABLE,)), "checkpoint": "c", **sink}
    monkeypatch.setattr(reaching, "Broker", brokers)
    reaching.check_reached(parse_job(job))
    return brokers.asked


def test_each_broker_is_asked_for_some_seconds_or_as_long_as_the_job_says(monkeypatch: pytest.MonkeyPatch) -> None:
    short = ("grpc://a:1", ANSWER_MS, START_MS)
    assert check(monkeypatch, Brokers()) == [short]
    assert check(monkeypatch, Brokers(), STREAM) == [short]
    assert check(monkeypatch, Brokers(), TABLE, STREAM, sink={"address": "b:1"}) == [short, ("grpc://b:1", *short[1:])]
    longer = ("grpc://a:1", 100, 90_000)
    assert check(monkeypatch, Brokers(), retryDeadlineMs=90_000, requestTimeoutMs=100) == [longer]


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (ABSENT, "was not reached: broker at a:1: Connection refused; check the address, and that a broker runs"),
        (SILENT, "was not reached: broker at a:1: Deadline Exceeded; check the address"),
        (InternalError("internal", "status: 404"), "was not reached: broker at a:1: status: 404; check the address"),
    ],
)
def test_one_that_is_not_reached_ends_the_job_with_its_address(
    failure: BrokerError, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(type(failure), match=rf"^job j has not started, .* of source\.address {sentence}") as raised:
        check(monkeypatch, Brokers(a=failure))
    assert str(raised.value).endswith("set source.retryDeadlineMs")
    assert raised.value.__suppress_context__
    other = Brokers(b=type(failure)(failure.code, str(failure).replace("a:1", "b:1")))
    with pytest.raises(type(failure), match=r"the broker of sink\.address was not reached: broker at b:1: "):
        check(monkeypatch, other, STREAM, sink={"address": "b:1"})


@pytest.mark.parametrize("code", ["permission_denied", "unauthenticated"])
def test_an_answer_is_enough(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(monkeypatch, Brokers(a=AccessError(code, "no")))
