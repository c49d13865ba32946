"""Connecting for the first time: with and without waiting for a broker that is not there yet."""

import pytest
from bascule.errors import AccessError, UnavailableError

from tests.unit.client.fakes import FakeNative, client_of, failure

REFUSED = failure("unavailable", "broker at there: Connection refused (os error 111)")
NO_HOST = failure("unavailable", "broker at there: dns error: failed to lookup address information")


def test_without_waiting_each_address_is_tried_once() -> None:
    native = FakeNative()
    native.connecting = [REFUSED, NO_HOST]
    with pytest.raises(UnavailableError, match=r"refused .*; .*dns error.*; check the address, and that a broker runs"):
        client_of(native, "a:1", "b:2", wait=False).open()
    assert native.addresses == ["a:1", "b:2"]


def test_without_waiting_one_that_is_there_is_enough() -> None:
    native = FakeNative()
    native.connecting = [REFUSED, None]
    client = client_of(native, "a:1", "b:2", wait=False)
    client.open()
    assert native.addresses == ["a:1", "b:2"]
    assert client.reconnects == 0


@pytest.mark.parametrize("other", [failure("unavailable", "Connection reset by peer"), failure("busy")])
def test_what_is_no_absence_is_tried_again(other: Exception) -> None:
    native = FakeNative()
    native.connecting = [other, other, other, None]
    client_of(native, "a:1", wait=False).open()
    assert native.addresses == ["a:1"] * 4


def test_what_waiting_does_not_mend_is_said_at_once() -> None:
    native = FakeNative()
    native.connecting = [failure("tls_failed"), failure("tls_failed")]
    with pytest.raises(AccessError):
        client_of(native, "a:1", wait=False).open()


def test_waiting_is_usual() -> None:
    native = FakeNative()
    native.connecting = [REFUSED, REFUSED, None]
    client_of(native, "a:1").open()
    assert native.addresses == ["a:1"] * 3


def test_coming_back_waits_anyway() -> None:
    native = FakeNative()
    client = client_of(native, "a:1", wait=False)
    client.open()
    native.connecting = [REFUSED, REFUSED, None]
    native.answers = [failure("unavailable"), b""]
    assert client.list_streams() == []
    assert native.addresses == ["a:1"] * 4
