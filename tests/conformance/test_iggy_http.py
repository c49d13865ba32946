"""Iggy's HTTP interface by JSON: every path with its status, in each generation of clients."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bascule.protocols.iggy.http.routes import ROUTES
from bascule.testing import TestBroker, broker

from tests.conformance import iggy_raw
from tests.conformance.iggy_http import (
    FIRST,
    PASSWORD,
    SDK7,
    SDK9,
    V1,
    V2,
    Http,
    b64,
    connected,
    payloads,
    refused,
    settings_of,
)
from tests.conformance.test_iggy_apache import client_directory
from tests.names import fresh

NEVER = (1 << 64) - 1


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with broker(settings=settings_of(tmp_path_factory.mktemp("iggy") / "password")) as running:
        yield running


@pytest.fixture
def client(serving: TestBroker) -> Iterator[Http]:
    with connected(serving.iggy_http_address, PASSWORD) as http:
        yield http


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return fresh(request.node.name)


def streams_and_topics(client: Http, name: str) -> str:
    made = client.good("POST", "/streams", {"name": name})
    assert (made["name"], made["topics"], made["options"], made["messages_count"]) == (name, [], {}, 0)
    assert made in [item | {"topics": []} for item in client.good("GET", "/streams")]
    client.good("PUT", f"/streams/{name}", {"name": f"{name}-2"}, status=204)
    client.good("PUT", f"/streams/{made['id']}", {"name": name}, status=204)
    options = {"segment_size": "16 MiB"}
    body = {"name": "t", "partitions_count": 2, "compression_algorithm": "gzip", "message_expiry": NEVER}
    topic = client.good("POST", f"/streams/{name}/topics", body | {"max_topic_size": 0, "options": options})
    assert (topic["id"], topic["compression_algorithm"], topic["message_expiry"]) == (0, "gzip", NEVER)
    assert [item["id"] for item in topic["partitions"]] == [0, 1]
    assert topic["options"]["segment_size"] == {"value": "16777216", "explicit": True}
    assert topic["options"]["enforce_fsync"] == {"value": "false", "explicit": False}
    listed = client.good("GET", f"/streams/{name}/topics")
    assert [{**item, "partitions": topic["partitions"]} for item in listed] == [topic]
    assert client.good("GET", f"/streams/{name}")["topics"] == listed
    path = f"/streams/{name}/topics/t"
    changed = {"name": "t", "compression_algorithm": "none", "message_expiry": 3_600_000_000, "max_topic_size": 2 << 30}
    client.good("PUT", path, changed, status=204)
    shown = client.good("GET", path)
    assert {key: shown[key] for key in changed} == changed
    client.good("POST", f"{path}/partitions", {"partitions_count": 2})
    client.good("DELETE", f"{path}/partitions?partitions_count=1", status=204)
    assert client.good("GET", path)["partitions_count"] == 3
    return path


def messages_and_offsets(client: Http, path: str) -> None:
    sent = client.send(path, b"one", b"two", partition=1)
    ids = {"stream_id": client.good("GET", path.partition("/topics")[0])["id"], "topic_id": 0}
    assert sent == {"confirmations": [ids | {"partition_id": 1, "base_offset": 0}]}
    polled = client.poll(path, partition_id=1, kind="first", count=10)
    assert (polled["partition_id"], polled["current_offset"], polled["count"]) == (1, 1, 2)
    assert payloads(polled) == [b"one", b"two"]
    assert [item["header"]["offset"] for item in polled["messages"]] == [0, 1]
    place = f"{path}/consumer-offsets"
    with refused(404):
        client.good("GET", f"{place}?consumer_id=me&partition_id=1")
    client.good("PUT", place, {"consumer_id": "me", "partition_id": 1, "offset": 0}, status=204)
    found = client.good("GET", f"{place}?consumer_id=me&partition_id=1")
    assert found == {"partition_id": 1, "current_offset": 1, "stored_offset": 0}
    after = client.poll(path, consumer_id="me", partition_id=1, kind="next", auto_commit="true")
    assert payloads(after) == [b"two"]
    assert client.good("GET", f"{place}?consumer_id=me&partition_id=1")["stored_offset"] == 1
    client.good("DELETE", f"{place}/me?partition_id=1", status=204)
    with refused(404, 3021):
        client.good("DELETE", f"{place}/me?partition_id=1", status=204)


def groups(client: Http, path: str) -> None:
    place = f"{path}/consumer-groups"
    made = client.good("POST", place, {"name": "g"})
    assert made == {"id": made["id"], "name": "g", "partitions_count": 3, "members_count": 0, "members": []}
    assert client.good("GET", f"{place}/g") == client.good("GET", f"{place}/{made['id']}") == made
    assert [item | {"members": []} for item in client.good("GET", place)] == [made]
    client.good("DELETE", f"{place}/g", status=204)
    with refused(404):
        client.good("GET", f"{place}/g")


def users(client: Http, name: str) -> None:
    on_topic = {"manage_topic": False, "read_topic": True, "poll_messages": True, "send_messages": False}
    body = {"global": {"read_streams": True}, "streams": {"7": {"read_stream": True, "topics": {"3": on_topic}}}}
    account = {"username": name, "password": "secret", "status": "active", "permissions": body}
    made = client.good("POST", "/users", account)
    assert (made["username"], made["status"]) == (name, "active")
    assert made["permissions"]["global"]["read_streams"]
    assert made["permissions"]["streams"]["7"]["topics"] == {"3": on_topic}
    assert client.good("GET", f"/users/{name}") == client.good("GET", f"/users/{made['id']}") == made
    client.good("PUT", f"/users/{name}/permissions", {"permissions": None}, status=204)
    assert client.good("GET", f"/users/{name}")["permissions"] is None
    client.good("PUT", f"/users/{name}/password", {"current_password": "secret", "new_password": "another"}, status=204)
    client.good("PUT", f"/users/{name}", {"status": "inactive"}, status=204)
    shown = {item["username"]: item["status"] for item in client.good("GET", "/users")}
    assert shown == {"iggy": "active", name: "inactive"}
    client.good("DELETE", f"/users/{name}", status=204)
    with refused(404):
        client.good("GET", f"/users/{name}")


def tokens(client: Http) -> None:
    made = client.good("POST", "/personal-access-tokens", {"name": "nightly", "expiry": 0})
    (listed,) = client.good("GET", "/personal-access-tokens")
    assert listed == {"name": "nightly", "expiry_at": None}
    identity = client.good("POST", "/personal-access-tokens/login", {"token": made["token"]})
    assert identity["user_id"] == 0
    client.good("DELETE", "/personal-access-tokens/nightly", status=204)
    renewed = client.good("POST", "/users/refresh-token", {"token": client.token})
    assert renewed["access_token"]["token"] != client.token
    client.good("DELETE", "/users/logout", status=204)
    with refused(401, 78):
        client.good("GET", "/streams")
    client.token = renewed["access_token"]["token"]


def system(client: Http, serving: TestBroker) -> None:
    assert client.good("GET", "/") == "Iggy API"
    assert client.good("GET", "/ping") == "pong"
    stats = client.good("GET", "/stats")
    assert (stats["topics_count"], stats["cache_metrics"], stats["iggy_server_semver"]) == (1, {}, None)
    text = client.good("GET", "/metrics")
    assert "\ntopics 1\n" in text
    assert text.endswith("# EOF\n")
    assert int(re.findall(r"^http_requests_total (\d+)$", text, re.MULTILINE)[0]) > 30
    (node,) = client.good("GET", "/cluster/metadata")["nodes"]
    assert f"{node['ip']}:{node['endpoints']['tcp']}" == serving.iggy_address
    assert [item["key"] for item in client.good("GET", "/options/topic")][:2] == [
        "compression_algorithm",
        "consumer_offset_durability",
    ]
    assert client.good("GET", "/options/user") == []
    with iggy_raw.connected(serving.iggy_address, PASSWORD):
        (listed,) = client.good("GET", "/clients")
        assert (listed["user_id"], listed["transport"]) == (0, "TCP")
        one = client.good("GET", f"/clients/{listed['client_id']}")
        assert one == listed | {"consumer_groups": []}


def test_every_path_is_answered_with_its_status(client: Http, serving: TestBroker, name: str) -> None:
    path = streams_and_topics(client, name)
    messages_and_offsets(client, path)
    groups(client, path)
    users(client, name[-40:])
    tokens(client)
    system(client, serving)
    for method, wanted, body in (
        ("POST", "/snapshot", {"compression": "Deflated", "snapshot_types": ["All"]}),
        ("GET", f"{path}/messages/flush/0/true", None),
    ):
        with refused(400, 5):
            client.good(method, wanted, body)
        client.seen.add((method, wanted))
    client.good("DELETE", f"{path}/partitions/0?segments_count=1", status=204)
    for partition, status in (("9", 404), ("4294967296", 400), ("x", 400)):
        answer = client.ask("DELETE", f"{path}/partitions/{partition}?segments_count=1")
        assert answer.status == status, (partition, answer)
    client.good("DELETE", f"{path}/purge", status=204)
    client.good("DELETE", f"/streams/{name}/purge", status=204)
    assert client.good("GET", path)["messages_count"] == 0
    client.good("DELETE", path, status=204)
    client.good("DELETE", f"/streams/{name}", status=204)
    with refused(404):
        client.good("GET", f"/streams/{name}")
    assert [route.path for route in ROUTES if not any(matches(route, *one) for one in client.seen)] == []


def matches(route: Any, method: str, path: str) -> bool:
    pattern = "/".join("[^/]+" if part.startswith("{") else re.escape(part) for part in route.path)
    return route.method == method and re.fullmatch(f"/{pattern}", path.partition("?")[0]) is not None


@pytest.mark.parametrize("version", [V1, SDK7, SDK9, V2])
def test_each_generation_has_its_numbers_and_shapes(serving: TestBroker, name: str, version: str) -> None:
    first, later = FIRST[version], version != V1
    with connected(serving.iggy_http_address) as client:
        assert client.login(PASSWORD, version=version) == first
        path = client.create(name, partitions=2)
        topic = client.good("GET", path)
        assert (topic["id"], [item["id"] for item in topic["partitions"]]) == (first, [first, first + 1])
        assert ("replication_factor" in topic) != ("options" in topic) == (version == V2)
        header = {"kind": "int32", "value": b64(b"\7\0\0\0")}
        given: dict[str, Any] = {"headers": {"k": header}}
        if version in {SDK9, V2}:
            given = {"user_headers": [{"key": {"kind": "string", "value": b64(b"k")}, "value": header}]}
        big = (1 << 128) - 1
        body = {"id": big, "payload": b64(b"x"), **given}
        partitioning = {"kind": "messages_key", "value": b64(b"key")}
        client.good("POST", f"{path}/messages", {"partitioning": partitioning, "messages": [body]}, status=201)
        polls = [client.poll(path, partition_id=number, count=5) for number in (first, first + 1)]
        (polled,) = [item for item in polls if item["messages"]]
        (message,) = polled["messages"]
        assert ("count" in polled, "header" in message) == (later, later)
        head = message["header"] if later else message
        assert (head["id"], head["offset"]) == (big, 0)
        assert message["user_headers" if later else "headers"] == given.get("user_headers", {"k": header})
        assert payloads(polled) == [b"x"]
        place = f"{path}/consumer-offsets"
        client.good(
            "PUT",
            place,
            {"id" if not later else "consumer_id": "1", "offset": 0},
            status=204 if _has_first(polls) else 400,
        )
        made = client.good("POST", f"{path}/consumer-groups", {"name": "g"}, status=200 if version == V2 else 201)
        assert made["id"] == first
        with refused(400, 2015):
            client.good("POST", f"{path}/partitions", {"partitions_count": 1001})
        if version == V1:
            client.good("GET", f"{path}/messages/flush/1/fsync=true")
            assert client.good("POST", "/streams", {"stream_id": 4_000, "name": f"{name}-n"})["id"] == 4_000


def _has_first(polls: list[Any]) -> bool:
    """Whether the first partition has the message: offsets are stored up to the newest."""
    return bool(polls[0]["messages"]) or polls[0]["current_offset"] == 0


def test_messages_of_http_and_of_frames_are_the_same(client: Http, serving: TestBroker, name: str) -> None:
    path = client.create(name)
    header = {"kind": "uint8", "value": b64(b"\5")}
    client.send(path, b"over http", user_headers=[{"key": {"kind": "string", "value": b64(b"h")}, "value": header}])
    with iggy_raw.connected(serving.iggy_address, PASSWORD) as raw:
        (shown,) = raw.poll((name, "t")).messages
        assert (shown.payload, shown.headers) == (b"over http", {"h": (9, b"\5")})
        raw.send((name, "t"), iggy_raw.BALANCED, [b"in frames"], ids=[5])
        raw.store((name, "t"), 0, consumer=9)
    assert payloads(client.poll(path)) == [b"over http", b"in frames"]
    assert client.poll(path, kind="last", count=1)["messages"][0]["header"]["id"] == 5
    assert client.good("GET", f"{path}/consumer-offsets?consumer_id=9")["stored_offset"] == 0


def test_every_strategy_has_its_start(client: Http, name: str) -> None:
    path = client.create(name)
    client.send(path, *(b"%d" % number for number in range(20)))
    assert len(payloads(client.poll(path))) == 10
    assert payloads(client.poll(path, kind="offset", value=18)) == [b"18", b"19"]
    assert payloads(client.poll(path, kind="first", count=1)) == [b"0"]
    assert payloads(client.poll(path, kind="last", count=2)) == [b"18", b"19"]
    assert payloads(client.poll(path, kind="next", count=1, auto_commit="true")) == [b"0"]
    assert payloads(client.poll(path, kind="next", count=1)) == [b"1"]
    time = client.poll(path, count=1)["messages"][0]["header"]["timestamp"]
    assert len(payloads(client.poll(path, kind="timestamp", value=time, count=50))) == 20
    assert payloads(client.poll(path, kind="timestamp", value=time + 10**9)) == []
    answer = client.ask("POST", f"{path}/messages?ack=none", {"partitioning": {"kind": "balanced"}, "messages": [
        {"payload": b64(b"x")}]})  # fmt: skip
    assert (answer.status, answer.headers["iggy-durability"]) == (202, "replicated")


def test_an_answer_that_is_larger_than_a_frame_comes_whole(client: Http, name: str) -> None:
    path = client.create(name)
    for number in range(8):
        client.send(path, bytes([number]) * 1_000_000)
    found = payloads(client.poll(path, count=100))
    assert found == [bytes([number]) * 1_000_000 for number in range(8)]


def test_the_published_client_does_over_http_what_it_offers(serving: TestBroker, name: str) -> None:
    suite = Path(__file__).with_name("apache_http_suite.py")
    arguments = [str(client_directory("0.9.0")), serving.iggy_http_address, PASSWORD, name]
    ended = subprocess.run(
        [sys.executable, str(suite), *arguments], capture_output=True, text=True, timeout=180, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
