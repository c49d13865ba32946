"""Tokens of Iggy's HTTP interface, its paths, and its description."""

import json
import time

import jwt
import pytest
from bascule.protocols.iggy.http import access, openapi
from bascule.protocols.iggy.http.access import LEEWAY_S, LIFETIME_S, Tokens, generation_of
from bascule.protocols.iggy.http.exchange import HttpReply, HttpRequest
from bascule.protocols.iggy.http.routes import ROUTES, find
from bascule.protocols.iggy.statuses import IggyError, IggyStatus


def refused(status: IggyStatus) -> "pytest.RaisesExc[IggyError]":
    return pytest.raises(IggyError, check=lambda error: error.iggy_status == status)


def test_a_token_says_who_and_which_generation_until_it_is_revoked() -> None:
    tokens = Tokens()
    issued = tokens.issue(7, "sdk9")
    claims = tokens.check(issued.token)
    assert (claims.user, claims.generation, claims.expiry) == (7, "sdk9", issued.expiry)
    assert LIFETIME_S - 5 <= claims.rest_s - LEEWAY_S <= LIFETIME_S
    shown = jwt.decode(issued.token, options={"verify_signature": False})
    assert (shown["iss"], shown["aud"], shown["sub"]) == ("iggy.apache.org", "iggy.apache.org", "7")
    assert jwt.decode(tokens.issue(7, "v1").token, options={"verify_signature": False})["iss"] == "iggy.rs"
    tokens.revoke(claims)
    with refused(IggyStatus.INVALID_ACCESS_TOKEN):
        tokens.check(issued.token)


def test_a_token_of_another_key_or_algorithm_or_time_is_not_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, others = Tokens(), Tokens()
    issued = tokens.issue(0, "v2").token
    claims = jwt.decode(issued, options={"verify_signature": False})
    forged = [
        others.issue(0, "v2").token,
        jwt.encode(claims, "", algorithm="none"),
        jwt.encode(claims, "x" * 32, algorithm="HS256"),
        issued[:-2],
        "a.b.c",
        "..",
    ]
    for token in forged:
        with refused(IggyStatus.INVALID_ACCESS_TOKEN):
            tokens.check(token)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - LIFETIME_S - 2 * LEEWAY_S)
    expired = tokens.issue(0, "v2").token
    monkeypatch.undo()
    with refused(IggyStatus.INVALID_ACCESS_TOKEN):
        tokens.check(expired)


def test_so_many_are_revoked_that_all_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_REVOKED", 2)
    tokens = Tokens()
    issued = [tokens.issue(user, "v2").token for user in range(4)]
    for token in issued[:3]:
        tokens.revoke(tokens.check(token))
    for token in issued:
        with refused(IggyStatus.INVALID_ACCESS_TOKEN):
            tokens.check(token)
    assert tokens.check(tokens.issue(1, "v2").token).user == 1


@pytest.mark.parametrize(
    ("version", "generation"),
    [
        *((version, "v2") for version in (None, "", "0.11.0", "0.11.1-edge.8")),
        *((version, "v1") for version in ("0.6.202", "0.1")),
        ("0.7.0", "sdk7"),
        ("0.8.1", "sdk8"),
        *((version, "sdk9") for version in ("0.9.0", "0.10.0")),
    ],
)
def test_the_version_of_a_login_decides_the_generation(version: str | None, generation: str) -> None:
    assert generation_of(version) == generation


@pytest.mark.parametrize(
    "version", ["0.12.0", "1.0", "x", "0", "0.", ".", "0.1\N{DIGIT ONE}\N{ARABIC-INDIC DIGIT ONE}"]
)
def test_a_version_that_is_not_spoken_is_refused(version: str) -> None:
    with refused(IggyStatus.FEATURE_UNAVAILABLE):
        generation_of(version)


def test_a_path_has_its_methods_and_parts() -> None:
    assert find(("streams", "a b", "topics", "t", "purge"))["DELETE"][1] == ("a b", "t")
    assert find(("users", "login")).keys() == {"POST", "GET", "PUT", "DELETE"}, "a user may have this name"
    assert find(("users", "login"))["POST"][0].path == ("users", "login")
    assert find(("users", "logout"))["DELETE"][0].path == ("users", "logout")
    assert find(("nowhere",)) == find(()) == {}


def test_the_description_has_every_path_with_its_body() -> None:
    document = json.loads(json.dumps(openapi.document()))
    shown = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert shown == {(route.method, "/" + "/".join(route.path)) for route in ROUTES}
    body = document["paths"]["/streams"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["$ref"].rpartition("/")[2] in document["components"]["schemas"]
    assert document["paths"]["/ping"]["get"]["security"] == []
    assert document["paths"]["/stats"]["get"]["security"] == [{"token": []}]


def test_a_request_and_a_reply_cross_the_seam() -> None:
    head = {"method": "GET", "path": ["a", "b/c"], "query": "x=1&x=2&y=", "generation": "", "token": ""}
    text = json.dumps({**head, "clients": 3, "requests": 4}).encode()
    request = HttpRequest.read(len(text).to_bytes(4, "little") + text + b"body", None, "peer", 1.0)
    assert (request.path, request.query, request.generation) == (("a", "b/c"), {"x": "2", "y": ""}, "v2")
    assert (request.clients, request.requests, request.body) == (3, 4, b"body")
    data = HttpReply(200, {"k": "ü\ud800"}, revoked={"t": 5}).encode()
    end = 4 + int.from_bytes(data[:4], "little")
    assert json.loads(data[4:end]) == {"status": 200, "kind": "json", "allow": "", "revoked": {"t": 5}}
    assert data[end:].startswith('{"k": "ü'.encode())
    assert HttpReply(204).encode().endswith(b"}")
