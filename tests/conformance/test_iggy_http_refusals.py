"""What Iggy's HTTP interface refuses: tokens, bodies, paths, pages of other origins, and bytes that are not HTTP."""

import random
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from bascule.testing import TestBroker, broker

from tests.certificates import Authority
from tests.conformance.iggy_http import LIMIT_S, PASSWORD, V1, Http, b64, connected, payloads, refused, settings_of
from tests.names import fresh

ORIGIN = "https://app.example"


BOUND: Final[Mapping[str, object]] = {"iggy.http_max_request_bytes": 100_000}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with broker(settings=settings_of(tmp_path_factory.mktemp("iggy") / "password", more=BOUND)) as running:
        yield running


@pytest.fixture
def client(serving: TestBroker) -> Iterator[Http]:
    with connected(serving.iggy_http_address, PASSWORD) as http:
        yield http


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return fresh(request.node.name)


def test_a_token_is_needed_and_must_be_valid(serving: TestBroker, client: Http) -> None:
    head, claims, signature = client.token.split(".")
    other = f"{head}.{claims}.{signature[::-1]}"
    unsigned = b64(b'{"alg":"none"}').rstrip("=") + f".{claims}."
    with connected(serving.iggy_http_address) as stranger:
        for header in (None, "Bearer"):
            answer = stranger.ask("GET", "/streams", headers={"Authorization": header} if header else {})
            assert (answer.status, answer.body["id"], answer.body["code"]) == (401, 77, "access_token_missing")
        for token in (other, unsigned, "x", "a.b.c", "é", "t" * 5_000):
            answer = stranger.ask(
                "GET", "/streams", headers={"Authorization": f"Bearer {token}".encode().decode("latin-1")}
            )
            assert (answer.status, answer.body["id"]) == (401, 78), token
        assert stranger.ask("GET", "/streams", headers={"Authorization": "Basic YTpi"}).status == 401
        assert stranger.good("GET", "/ping") == "pong"
        assert stranger.good("GET", "/openapi.json")["openapi"] == "3.1.0"
        with refused(400, 42):
            stranger.login("wrong")
        with refused(400, 5):
            stranger.login(PASSWORD, version="0.12.0")


def test_tokens_end_with_a_logout_a_deletion_and_their_user(serving: TestBroker, client: Http, name: str) -> None:
    user = name[-40:]
    client.good("POST", "/users", {"username": user, "password": "secret"})
    with connected(serving.iggy_http_address) as other:
        other.login("secret", user)
        personal = other.good("POST", "/personal-access-tokens", {"name": "a-token"})["token"]
        signed, other.token = other.token, personal
        assert other.good("GET", "/personal-access-tokens") == [{"name": "a-token", "expiry_at": None}]
        other.good("DELETE", "/users/logout", status=204)
        other.good("DELETE", "/personal-access-tokens/a-token", status=204)
        with refused(401, 78):
            other.good("GET", "/personal-access-tokens")
        other.token = signed
        other.good("GET", "/personal-access-tokens")
        client.good("PUT", f"/users/{user}", {"status": "inactive"}, status=204)
        with refused(401, 78):
            other.good("GET", "/personal-access-tokens")
        with refused(401, 78):
            other.good("POST", "/users/refresh-token", {"token": signed})
        with refused(400, 47):
            other.login("secret", user)


def test_a_token_of_the_first_generation_is_refreshed_once(serving: TestBroker) -> None:
    with connected(serving.iggy_http_address, PASSWORD, version=V1) as client:
        client.good("GET", "/streams")
        old = client.token
        client.token = client.good("POST", "/users/refresh-token", {"token": old})["access_token"]["token"]
        client.good("GET", "/streams")
        with refused(401, 78):
            client.good("POST", "/users/refresh-token", {"token": old})
        client.token = old
        with refused(401, 78):
            client.good("GET", "/streams")


def test_bodies_and_queries_are_refused_by_name(client: Http, name: str) -> None:
    path = client.create(name)
    cases: list[tuple[str, str, object, int, int]] = [
        ("POST", "/streams", {}, 422, 422),
        ("POST", "/streams", {"name": 5}, 422, 422),
        ("POST", "/streams", {"name": ""}, 400, 1013),
        ("POST", "/streams", {"name": "s" * 256}, 400, 1013),
        ("POST", "/streams", {"name": name}, 400, 1012),
        ("POST", "/users", {"username": "ab", "password": "secret"}, 400, 43),
        ("POST", "/users", {"username": "abc", "password": "x" * 300}, 400, 44),
        ("POST", "/users", {"username": "abc", "password": "secret", "status": "x"}, 422, 422),
        ("POST", "/users", {"username": "abc", "password": "secret", "permissions": {"streams": {"x": {}}}}, 400, 400),
        ("POST", f"{path}/messages", {"partitioning": {"kind": "balanced"}, "messages": []}, 400, 4009),
        ("POST", f"{path}/messages", {"partitioning": {"kind": "x"}, "messages": []}, 422, 422),
        ("POST", f"{path}/messages", {"partitioning": {"kind": "partition_id", "value": ""}, "messages": []}, 400, 3),
        ("PUT", f"{path}/consumer-offsets", {"offset": -1}, 422, 422),
        ("PUT", f"{path}/consumer-offsets", {"offset": 5}, 400, 4100),
        ("GET", f"{path}/messages?count=x", None, 400, 400),
        ("GET", f"{path}/messages?count=0", None, 400, 4009),
        ("GET", f"{path}/messages?kind=x", None, 400, 400),
        ("GET", f"{path}/messages?partition_id=9", None, 404, 3007),
        ("GET", f"{path}/messages?auto_commit=maybe", None, 400, 400),
        ("DELETE", f"{path}/partitions", None, 400, 400),
        ("GET", "/streams/99999999999", None, 400, 400),
        ("GET", "/streams/absent/topics/t/messages", None, 400, 1010),
        ("GET", "/streams/77777/topics/t/messages", None, 404, 1009),
        ("GET", "/clients/0", None, 400, 101),
        ("GET", "/clients/x", None, 400, 400),
        ("DELETE", "/streams/absent", None, 400, 1010),
        ("GET", "/nowhere", None, 404, 404),
        ("GET", "/options/cluster", None, 404, 404),
        ("GET", "/streams/%ff", None, 400, 400),
    ]
    for method, wanted, body, status, number in cases:
        answer = client.ask(method, wanted, body)
        shown = answer.body
        assert (answer.status, shown["id"]) == (status, number), (method, wanted, body, shown)
        assert set(shown) == {"id", "code", "reason", "field"}
        assert shown["reason"]
    assert client.ask("POST", "/streams", raw=b"{").body["code"] == "bad_request"
    assert client.ask("POST", "/streams", {"name": name}).body["field"] == "name"
    assert client.ask("POST", "/users/login", raw=b"\xff\xfe").status == 400


def test_methods_that_a_path_has_not_are_refused_with_those_that_it_has(client: Http) -> None:
    answer = client.ask("PUT", "/streams", {"name": "x"})
    assert (answer.status, answer.headers["allow"]) == (405, "GET, POST")
    assert client.ask("DELETE", "/clients").headers["allow"] == "GET"
    for method in ("PATCH", "TRACE", "OPTIONS", "BREW"):
        answer = client.ask(method, "/streams")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, POST, PUT, DELETE"), method
    assert client.good("GET", "/ping") == "pong"


def test_a_body_has_a_bound(serving: TestBroker, client: Http, name: str) -> None:
    path = client.create(name)
    client.send(path, bytes(70_000))
    with connected(serving.iggy_http_address) as other:
        other.token = client.token
        with refused(413):
            other.send(path, bytes(80_000))
        assert other.good("GET", "/ping") == "pong"
    with connected(serving.iggy_http_address) as stranger, refused(413):
        stranger.login("x" * 20_000)
    assert len(payloads(client.poll(path))) == 1


def test_pages_of_other_origins_may_call_where_the_settings_say_so(serving: TestBroker, tmp_path: Path) -> None:
    preflight = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
    with connected(serving.iggy_http_address) as client:
        answer = client.ask("OPTIONS", "/streams", headers=preflight)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")
        assert answer.headers["access-control-allow-methods"] == "GET, POST, PUT, DELETE"
        assert "authorization" in answer.headers["access-control-allow-headers"]
        answer = client.ask("GET", "/streams", headers={"Origin": ORIGIN})
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (401, "*")
        assert "access-control-allow-credentials" not in answer.headers
    settings = settings_of(tmp_path / "password", more={**BOUND, "iggy.http_cors_origins": [ORIGIN]})
    with broker(settings=settings) as running, connected(running.iggy_http_address) as client:
        for origin, allowed in ((ORIGIN, ORIGIN), ("https://evil.example", None)):
            answer = client.ask("OPTIONS", "/streams", headers=preflight | {"Origin": origin})
            assert answer.headers.get("access-control-allow-origin") == allowed
            assert answer.headers["vary"] == "origin"


def test_a_client_over_tls_is_served_and_plain_text_is_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("broker.test")
    tls = {"tls.certificate_file": str(pair.cert), "tls.key_file": str(pair.key)}
    with broker(settings=settings_of(tmp_path / "password", more={**BOUND, **tls})) as running:
        context = ssl.create_default_context(cafile=str(authority.ca))
        with connected(running.iggy_http_address, PASSWORD, context=context) as client:
            path = client.create("s")
            client.send(path, b"x")
            assert payloads(client.poll(path)) == [b"x"]
        host, _, port = running.iggy_http_address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=LIMIT_S) as plain:
            plain.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"pong" not in plain.recv(100)


def said(address: str, data: bytes) -> bytes:
    """What a broker answers to bytes, after which the client sends no more."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as stream:
        try:
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
            answer = b""
            while more := stream.recv(65_536):
                answer += more
        except OSError:
            return b""
    return answer


def test_garbage_ends_its_connection_and_no_other(serving: TestBroker, client: Http, name: str) -> None:
    path = client.create(name)
    address, token = serving.iggy_http_address, client.token
    head = f"Host: x\r\nAuthorization: Bearer {token}\r\n"
    whole = f"POST {path}/messages HTTP/1.1\r\n{head}Content-Length: 20\r\n\r\n".encode() + b"x" * 20
    assert said(address, whole).startswith(b"HTTP/1.1 400 ")
    chosen = random.Random(7)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chosen.randrange(1, 9)):
            data[chosen.randrange(len(data))] = chosen.randrange(256)
        answer = said(address, bytes(data[: chosen.randrange(1, len(data) + 1)]))
        assert not answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 5")), bytes(data)
    for data in (
        b"\0" * 300,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /ping HTTP/1.1\r\n" + b"A: b\r\n" * 100 + b"\r\n",
        b"GET /ping HTTP/1.1\r\nA: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        f"POST /streams HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode(),
        f"POST /streams HTTP/1.1\r\n{head}Content-Length: -1\r\n\r\n".encode(),
        f"POST /streams HTTP/1.1\r\n{head}Content-Length: 99999999999\r\n\r\n".encode(),
    ):
        assert not said(address, data).startswith(b"HTTP/1.1 2"), data[:60]
    client.send(path, b"x")
    assert payloads(client.poll(path)) == [b"x"]
