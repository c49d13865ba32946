"""Errors when no broker answers."""

import pytest
from bascule.client._core.connect_errors import explained, is_absent
from bascule.errors import error

REFUSED = "tcp connect error: Connection refused (os error 111)"
NO_FRAME = "http2 error: connection error detected: frame with invalid size"
CLOSED = "connection error: stream closed because of a broken pipe"
OTHER_PORT = "check that this is the broker's gRPC port; if the broker has TLS, the URL begins with bascules://"
RESET = "Connection reset by peer (os error 104)"


@pytest.mark.parametrize(
    ("protected", "text", "reason", "remedy"),
    [
        (
            False,
            f"broker at a:1: transport error: tcp connect error: {REFUSED}",
            f"broker at a:1: {REFUSED}",
            "; check the address, and that a broker runs there",
        ),
        (False, NO_FRAME, NO_FRAME, f"; {OTHER_PORT}"),
        (False, f"broker at a:1: transport error: {CLOSED}", f"broker at a:1: {CLOSED}", f"; {OTHER_PORT}"),
        (True, f"transport error: {RESET}", RESET, "; if the broker has no TLS, the URL begins with liftbridge://"),
        (False, RESET, RESET, ""),
    ],
)
def test_the_error_has_a_remedy_and_no_repetition(protected: bool, text: str, reason: str, remedy: str) -> None:
    found = explained(error("unavailable", text, {"address": "a"}), protected=protected)
    assert (str(found), found.code, found.details) == (reason + remedy, "unavailable", {"address": "a"})


@pytest.mark.parametrize(
    ("reason", "absent"),
    [
        ("Connection refused (os error 111)", True),
        ("No route to host (os error 113)", True),
        ("Network is unreachable (os error 101)", True),
        ("dns error: failed to lookup address information: Name or service not known", True),
        ("dns error: failed to lookup address information: No address associated with hostname", True),
        ("dns error: failed to lookup address information: Temporary failure in name resolution", False),
        ("dns error: failed to lookup address information: Try again", False),
        ("Connection reset by peer (os error 104)", False),
        ("no connection within 5s", False),
    ],
)
def test_absence_is_recognized_by_the_error(reason: str, absent: bool) -> None:
    assert is_absent(error("unavailable", f"broker at a:1: {reason}")) is absent
    assert not is_absent(error("busy", reason))


def test_other_errors_are_unchanged() -> None:
    failure = error("stream_not_found", "Connection refused")
    assert explained(failure, protected=False) is failure
