"""Every path of Iggy's HTTP interface × every role: the rights are those of the commands of the binary protocol."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import pytest
from bascule.protocols.iggy.permissions import Permissions
from bascule.testing import TestBroker, broker

from tests.conformance import test_iggy_rights as of_commands
from tests.conformance.iggy_http import V1, Http, b64, connected, settings_of
from tests.conformance.test_iggy_rights import GROUP, OTHER_STREAM, OWN, PASSWORD, ROLES, STREAM, TOPIC

TOPIC_PATH = f"/streams/{STREAM}/topics/{TOPIC}"
SETTINGS = {"name": "t", "compression_algorithm": "none", "message_expiry": 0, "max_topic_size": 0}
SENT = {"partitioning": {"kind": "balanced", "value": ""}, "messages": [{"id": 0, "payload": b64(b"x")}]}
NEW_PASSWORD = {"current_password": "secret", "new_password": "another"}

CASES: Mapping[str, tuple[str, str, object]] = {
    "GET_STATS": ("GET", "/stats", None),
    "GET_CLIENT": ("GET", "/clients/1", None),
    "GET_CLIENTS": ("GET", "/clients", None),
    "GET_USER": ("GET", "/users/iggy", None),
    "GET_USERS": ("GET", "/users", None),
    "CREATE_USER": ("POST", "/users", {"username": "iggy", "password": "secret"}),
    "DELETE_USER": ("DELETE", "/users/absent", None),
    "UPDATE_USER": ("PUT", "/users/absent", {}),
    "UPDATE_PERMISSIONS": ("PUT", "/users/absent/permissions", {}),
    "CHANGE_PASSWORD": ("PUT", "/users/absent/password", NEW_PASSWORD),
    "GET_PERSONAL_ACCESS_TOKENS": ("GET", "/personal-access-tokens", None),
    "CREATE_PERSONAL_ACCESS_TOKEN": ("POST", "/personal-access-tokens", {"name": "a"}),
    "DELETE_PERSONAL_ACCESS_TOKEN": ("DELETE", "/personal-access-tokens/absent", None),
    "POLL_MESSAGES": ("GET", f"{TOPIC_PATH}/messages?auto_commit=true", None),
    "SEND_MESSAGES": ("POST", f"{TOPIC_PATH}/messages", SENT),
    "FLUSH_UNSAVED_BUFFER": ("GET", f"{TOPIC_PATH}/messages/flush/1/true", None),
    "GET_CONSUMER_OFFSET": ("GET", f"{TOPIC_PATH}/consumer-offsets", None),
    "STORE_CONSUMER_OFFSET": ("PUT", f"{TOPIC_PATH}/consumer-offsets", {"offset": 0}),
    "DELETE_CONSUMER_OFFSET": ("DELETE", f"{TOPIC_PATH}/consumer-offsets/1", None),
    "GET_STREAM": ("GET", f"/streams/{STREAM}", None),
    "GET_STREAMS": ("GET", "/streams", None),
    "CREATE_STREAM": ("POST", "/streams", {"name": "s"}),
    "DELETE_STREAM": ("DELETE", f"/streams/{STREAM}", None),
    "UPDATE_STREAM": ("PUT", f"/streams/{STREAM}", {"name": "s"}),
    "PURGE_STREAM": ("DELETE", f"/streams/{STREAM}/purge", None),
    "GET_TOPIC": ("GET", TOPIC_PATH, None),
    "GET_TOPICS": ("GET", f"/streams/{STREAM}/topics", None),
    "CREATE_TOPIC": ("POST", f"/streams/{STREAM}/topics", {**SETTINGS, "partitions_count": 1}),
    "DELETE_TOPIC": ("DELETE", TOPIC_PATH, None),
    "UPDATE_TOPIC": ("PUT", TOPIC_PATH, SETTINGS),
    "PURGE_TOPIC": ("DELETE", f"{TOPIC_PATH}/purge", None),
    "CREATE_PARTITIONS": ("POST", f"{TOPIC_PATH}/partitions", {"partitions_count": 1001}),
    "DELETE_PARTITIONS": ("DELETE", f"{TOPIC_PATH}/partitions?partitions_count=1001", None),
    "DELETE_SEGMENTS": ("DELETE", f"{TOPIC_PATH}/partitions/1?segments_count=0", None),
    "GET_CONSUMER_GROUP": ("GET", f"{TOPIC_PATH}/consumer-groups/{GROUP}", None),
    "GET_CONSUMER_GROUPS": ("GET", f"{TOPIC_PATH}/consumer-groups", None),
    "CREATE_CONSUMER_GROUP": ("POST", f"{TOPIC_PATH}/consumer-groups", {"name": GROUP}),
    "DELETE_CONSUMER_GROUP": ("DELETE", f"{TOPIC_PATH}/consumer-groups/absent", None),
}
"""By the command that has the same effect. What is allowed works, or breaks a rule of its own: neither is 403."""

COMMANDS: Final = {**of_commands.CASES, **of_commands.SINCE_V1B}
NOT_OVER_HTTP = {"PING", "GET_ME", "GET_SNAPSHOT", "JOIN_CONSUMER_GROUP", "LEAVE_CONSUMER_GROUP"}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with broker(settings=settings_of(tmp_path_factory.mktemp("iggy") / "password", PASSWORD)) as running:
        yield running


@pytest.fixture
def root(serving: TestBroker) -> Iterator[Http]:
    with connected(serving.iggy_http_address, PASSWORD, version=V1) as client:
        yield client


def shape(permissions: Permissions | None) -> Any:
    """JSON of rights."""
    if permissions is None:
        return None
    streams = {
        str(number): {
            **asdict(flags),
            "topics": {str(topic): asdict(each) for (of, topic), each in permissions.topics.items() if of == number},
        }
        for number, flags in permissions.streams.items()
    }
    return {"global": asdict(permissions.everywhere), "streams": streams or None}


def make_place(root: Http) -> None:
    """The stream, the topic and the group that the paths name, if they are not there."""
    root.ask("POST", "/streams", {"stream_id": STREAM, "name": "s"})
    root.ask("POST", f"/streams/{STREAM}/topics", {**SETTINGS, "topic_id": TOPIC, "partitions_count": 1})
    root.ask("POST", f"{TOPIC_PATH}/consumer-groups", {"name": GROUP})
    root.good("GET", f"{TOPIC_PATH}/consumer-groups/{GROUP}")


def test_the_cases_are_all_commands_that_http_has() -> None:
    assert CASES.keys() | NOT_OVER_HTTP == COMMANDS.keys()


def test_every_path_by_every_role(serving: TestBroker, root: Http) -> None:
    root.good("POST", "/streams", {"stream_id": OTHER_STREAM, "name": "other"})
    wrong = list[str]()
    for number, (role, permissions) in enumerate(ROLES.items()):
        name = f"user-{number}"
        make_place(root)
        root.good("POST", "/users", {"username": name, "password": OWN, "permissions": shape(permissions)})
        with connected(serving.iggy_http_address) as client:
            client.login(OWN, name, version=V1)
            for command, (method, path, body) in CASES.items():
                status = client.ask(method, path, body).status
                flags = COMMANDS[command].flags
                is_allowed = flags is None or role in flags.split(", ")
                if status in {401, 405, 422, 500} or (status != 403) is not is_allowed:
                    wrong.append(f"{command} by {role}: status {status}, {is_allowed=}")
                if is_allowed and command in of_commands.REMOVES:
                    make_place(root)
                    root.good("PUT", f"/users/{name}/permissions", {"permissions": shape(permissions)}, status=204)
    assert wrong == []


def test_the_first_user_may_call_every_path_and_nobody_without_a_token(serving: TestBroker, root: Http) -> None:
    make_place(root)
    with connected(serving.iggy_http_address) as stranger:
        for command, (method, path, body) in CASES.items():
            assert stranger.ask(method, path, body).status == 401, command
    for command, (method, path, body) in CASES.items():
        make_place(root)
        assert root.ask(method, path, body).status not in {401, 403, 405, 422, 500}, command
