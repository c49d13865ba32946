"""URLs of brokers."""

import pytest
from bascule import Tls
from bascule.client import connect
from bascule.client.tooling import addresses, protection
from bascule.errors import UsageError


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("liftbridge://127.0.0.1:9292", ["127.0.0.1:9292"]),
        ("bascule://broker", ["broker:9292"]),
        ("liftbridge://a:1,b,c:3/", ["a:1", "b:9292", "c:3"]),
        ("liftbridge://[::1]:7", ["[::1]:7"]),
        ("liftbridge://[::1]", ["[::1]:9292"]),
    ],
)
def test_a_url_names_one_address_or_more(url: str, found: list[str]) -> None:
    assert addresses(url) == found


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("127.0.0.1:9292", "it begins with bascule:// or liftbridge://"),
        ("nats://127.0.0.1:4222", "it begins with bascule:// or liftbridge://"),
        ("liftbridge://", '"" is not host or host:port'),
        ("liftbridge://a:0", '"a:0" is not host or host:port'),
        ("liftbridge://a:65536", '"a:65536" is not host or host:port'),
        ("liftbridge://a:b", '"a:b" is not host or host:port'),
        ("liftbridge://a:1,,b:1", '"" is not host or host:port'),
        ("liftbridge://::1:7", "an IPv6 address is written in brackets"),
        ("liftbridge://a/stream", "nothing follows the addresses"),
        ("liftbridge://a?x=1", "nothing follows the addresses"),
        ("bascules://a/stream?ca=x", "nothing follows the addresses"),
        ("liftbridge://me:secret@a", "a URL must not contain credentials"),
        ("liftbridge://me:secret@a/stream", "nothing follows the addresses"),
        ("liftbridge://me:s@secret@a:x", "a URL must not contain credentials"),
        ("nats://secret@a", "it begins with bascule:// or liftbridge://"),
        ("me:secret@a", "it begins with bascule:// or liftbridge://"),
    ],
)
def test_an_invalid_broker_url_is_rejected_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(UsageError) as raised:
        addresses(url)
    assert raised.value.code == "invalid_argument"
    assert reason in str(raised.value)
    assert "secret" not in f"{raised.value} {raised.value.details}"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("liftbridge://a", None),
        ("bascules://a", Tls()),
        ("liftbridges://a,b:1?ca=/ca.pem", Tls(ca="/ca.pem")),
        (
            "bascules://a?ca=my%20ca.pem&cert=c&key=k&server_name=b",
            Tls(ca="my ca.pem", cert="c", key="k", server_name="b"),
        ),
    ],
)
def test_a_url_says_whether_and_how_a_connection_is_protected(url: str, found: Tls | None) -> None:
    assert protection(url) == found
    assert addresses(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("bascules://a?ca", "name=value"),
        ("bascules://a?ca=", "each once and with a value"),
        ("bascules://a?ca=x&ca=y", "each once and with a value"),
        ("bascules://a?password=x", "it may have ca, cert, key, server_name"),
        ("bascules://a?cert=c", "give cert and key"),
    ],
)
def test_invalid_tls_options_are_rejected_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        protection(url)
    with pytest.raises(UsageError, match=reason):
        connect(url)
