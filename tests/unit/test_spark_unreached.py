"""A broker that cannot be reached: what the error says, and how often it is tried."""

from typing import Any

import pytest
from bascule.errors import UnavailableError, error
from bascule.spark import admin_calls
from bascule.spark.unreached import unreached

FAILED = "failed to connect to all addresses; last error: "
ABSENT = "check the address, and that a broker runs there"
OTHER = "check that this is the broker's gRPC port; if the broker has TLS, the address begins with bascules://"
PROTECTED = "check the certificates; if the broker has no TLS, the address is host:port alone"


@pytest.mark.parametrize(
    ("address", "text", "sentence"),
    [
        (
            "grpc://127.0.0.1:9999",
            f"{FAILED}UNKNOWN: ipv4:127.0.0.1:9999: Failed to connect to remote host: Connection refused",
            f"broker at 127.0.0.1:9999: Connection refused; {ABSENT}",
        ),
        (
            "grpc://nohost:9292",
            "errors resolving nohost:9292: [field:hostname lookup error]",
            f"broker at nohost:9292: errors resolving nohost:9292: [field:hostname lookup error]; {ABSENT}",
        ),
        (
            "grpc://127.0.0.1:4222",
            f"{FAILED}UNAVAILABLE: ipv4:127.0.0.1:4222: Failed parsing HTTP/2 (Expected SETTINGS frame)",
            f"broker at 127.0.0.1:4222: Failed parsing HTTP/2 (Expected SETTINGS frame); {OTHER}",
        ),
        (
            "grpc+tls://127.0.0.1:9292?ca=ca.pem",
            f"{FAILED}UNAVAILABLE: ipv4:127.0.0.1:9292: Handshake read failed (recvmsg:Connection reset by peer)",
            f"broker at 127.0.0.1:9292: Handshake read failed (recvmsg:Connection reset by peer); {PROTECTED}",
        ),
    ],
)
def test_the_error_names_the_address_the_reason_and_the_remedy(address: str, text: str, sentence: str) -> None:
    found = unreached(error("unavailable", text, {"attempt": 1}), address)
    assert (str(found), found.code, found.details) == (sentence, "unavailable", {"attempt": 1})


@pytest.mark.parametrize("failure", [error("unavailable", "the broker is stopping"), error("busy", f"{FAILED}U: a: b")])
def test_an_answer_of_the_broker_is_unchanged(failure: Any) -> None:
    assert unreached(failure, "grpc://a:1") is failure


class Absent:
    """A pool whose broker nobody reaches."""

    def __init__(self) -> None:
        self.tries = 0

    def reach(self, _deadline: object) -> None:
        self.tries += 1
        raise UnavailableError("unavailable", f"broker at a:1: Connection refused; {ABSENT}")


class Request:
    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        return b""


@pytest.mark.parametrize(("retry_ms", "tries"), [(0, 1), (60, 2)])
def test_a_call_tries_an_absent_broker_again_for_the_retry_deadline_alone(
    retry_ms: int, tries: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The deadline of a request, which is longer, counts once there is somebody to answer."""
    pool = Absent()
    monkeypatch.setattr(admin_calls, "_pool", lambda *_: pool)
    with pytest.raises(UnavailableError, match=r"^broker at a:1: Connection refused; check the address"):
        admin_calls.admin_call("grpc://a:1", "OpenSink", Request(), timeout_ms=30_000, retry_ms=retry_ms)
    assert pool.tries == tries
    warned = [f"broker at a:1: Connection refused; {ABSENT}; retrying for up to 0.06 s"]
    assert caplog.messages == (warned if retry_ms else [])
