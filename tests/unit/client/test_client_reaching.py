"""The first connection, with and without waiting for a broker to start."""

import traceback
from types import SimpleNamespace

import pytest
from bascule.errors import AccessError, CapacityError, UnavailableError

from tests.unit.client.fakes import FakeNative, client_of, failure

REFUSED = failure("unavailable", "broker at there: Connection refused (os error 111)")
NO_HOST = failure("unavailable", "broker at there: dns error: failed to lookup address information")
RESET = failure("unavailable", "broker at there: Connection reset by peer (os error 104)")


class SlowNative(FakeNative):
    """Takes a second to connect, by its own clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 100.0
        monkeypatch.setattr("bascule.client._core.deadline.time", SimpleNamespace(monotonic=lambda: self.now))

    def connect(self, address: str, options: bytes) -> FakeNative:
        self.now += 1
        return super().connect(address, options)


def test_without_waiting_each_address_is_tried_once() -> None:
    native = FakeNative()
    native.connecting = [REFUSED, NO_HOST]
    with pytest.raises(UnavailableError, match=r"refused .*; .*dns error.*; check the address, and that a broker runs"):
        client_of(native, "a:1", "b:2", wait=False).open()
    assert native.addresses == ["a:1", "b:2"]


def test_an_absent_broker_is_one_error_without_a_chain() -> None:
    native = FakeNative()
    native.connecting = [REFUSED]
    with pytest.raises(UnavailableError) as raised:
        client_of(native, "a:1", wait=False).open()
    printed = "".join(traceback.format_exception(raised.value))
    assert printed.count("Traceback (most recent call last)") == 1
    assert printed.rstrip().splitlines()[-1].startswith("bascule.errors.UnavailableError: broker at there: Connection")


def test_without_waiting_one_that_is_there_is_enough() -> None:
    native = FakeNative()
    native.connecting = [REFUSED, None]
    client = client_of(native, "a:1", "b:2", wait=False)
    client.open()
    assert native.addresses == ["a:1", "b:2"]
    assert client.reconnects == 0


@pytest.mark.parametrize("other", [failure("unavailable", "Connection reset by peer"), failure("busy")])
def test_other_connection_errors_are_retried(other: Exception) -> None:
    native = FakeNative()
    native.connecting = [other, other, other, None]
    client_of(native, "a:1", wait=False).open()
    assert native.addresses == ["a:1"] * 4


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("before", [[], [REFUSED]])
def test_errors_that_waiting_cannot_fix_are_raised_at_once(wait: bool, before: list[Exception]) -> None:
    native = FakeNative()
    native.connecting = [*before, failure("tls_failed"), None]
    with pytest.raises(AccessError):
        client_of(native, "a:1", "b:2", "c:3", wait=wait).open()
    assert native.addresses == ["a:1", "b:2"][: len(before) + 1]


@pytest.mark.parametrize("wait", [True, False])
def test_at_the_deadline_the_last_error_of_each_address_is_reported(
    wait: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = SlowNative(monkeypatch)
    native.connecting = [REFUSED, RESET, RESET, NO_HOST, RESET]
    with pytest.raises(
        UnavailableError, match=r"^broker at there: Connection reset .*; broker at there: dns .*; check the address"
    ):
        client_of(native, "a:1", "b:2", wait=wait, timeout=5).open()
    assert native.addresses == ["a:1", "b:2", "a:1", "b:2", "a:1"]


def test_the_code_is_that_of_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    native = SlowNative(monkeypatch)
    native.connecting = [failure("busy", "full"), failure("busy", "full")]
    with pytest.raises(CapacityError, match=r"^full$"):
        client_of(native, "a:1", "b:2", timeout=2).open()
    native.connecting = [failure("busy", "full"), REFUSED]
    with pytest.raises(UnavailableError, match=r"^full; broker at there: Connection refused"):
        client_of(native, "a:1", "b:2", timeout=2).open()


def test_an_address_that_is_named_twice_is_one() -> None:
    native = FakeNative()
    native.connecting = [REFUSED, REFUSED, None]
    with pytest.raises(UnavailableError, match=r"^broker at there: Connection refused \(os error 111\); check the"):
        client_of(native, "a:1", "a:1", wait=False).open()


def test_connecting_waits_by_default() -> None:
    native = FakeNative()
    native.connecting = [REFUSED, REFUSED, None]
    client_of(native, "a:1").open()
    assert native.addresses == ["a:1"] * 3


def test_reconnecting_always_waits() -> None:
    native = FakeNative()
    client = client_of(native, "a:1", wait=False)
    client.open()
    native.connecting = [REFUSED, REFUSED, None]
    native.answers = [failure("unavailable"), b""]
    assert client.list_streams() == []
    assert native.addresses == ["a:1"] * 4
