"""Users of Iggy's clients as administrators see them: grants by name, dry runs, and what is refused."""

from collections.abc import Sequence
from typing import Any

import pytest
from argon2 import PasswordHasher
from bascule._admin_pb import message
from bascule.metadata import CreateNamespace, CreateUser, Rights, SetUserRights, StreamRight, StreamRights, TopicRights
from bascule.protocols.admin.users import UserMethods
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.router import AdminRequest

from tests.unit.control.rig import Rig, running, stream_request

CHEAP_HASH = PasswordHasher(1, 8, 1).hash("root password")
EVERYWHERE = {"rights": ["read_streams", "poll_messages"]}
ON_STREAM = {"stream": "n", "rights": ["send_messages"]}
ON_TOPIC = {"stream": "default", "topic": "orders", "rights": ["poll_messages", "read_topic"]}


@pytest.fixture
async def rig(rig: Rig) -> Rig:
    """With root, the namespace `n`, and the stream `orders` in `default`."""
    await rig.controller.propose(CreateUser("iggy", CHEAP_HASH, 7), 5.0)
    await rig.controller.propose(CreateNamespace("n", 0), 5.0)
    await rig.controller.create_stream(stream_request(), 5.0)
    return rig


async def ask(rig: Rig, method: str, **fields: Any) -> Any:
    body = message(f"{method}Request")(**fields).SerializeToString()
    answer = await rig.admin[f"admin/{method}"](AdminRequest(f"admin/{method}", body, "p", 5.0, "ada"))
    return message(f"{method}Response").FromString(answer)


async def refused(rig: Rig, method: str, **fields: Any) -> Status:
    before = rig.controller.state.users
    with pytest.raises(StatusError) as caught:
        await ask(rig, method, **fields)
    assert rig.controller.state.users == before
    return caught.value.status


def grants(user: Any) -> Sequence[tuple[str, str, list[str]]]:
    return [(item.stream, item.topic, list(item.rights)) for item in user.grants]


async def test_a_user_is_shown_with_the_grants_that_it_was_created_with(rig: Rig) -> None:
    made = await ask(rig, "CreateUser", name="ada", password="secret", grants=[EVERYWHERE, ON_STREAM, ON_TOPIC])
    assert made.number == 2
    root, ada = (await ask(rig, "FetchUsers")).users
    assert (root.number, root.name, root.is_active, root.created_ns, len(root.grants[0].rights)) == (
        1,
        "iggy",
        True,
        7,
        10,
    )
    assert grants(ada) == [
        ("", "", ["read_streams", "poll_messages"]),
        ("default", "orders", ["read_topic", "poll_messages"]),
        ("n", "", ["send_messages"]),
    ]
    assert [user.name for user in (await ask(rig, "FetchUsers", name="ada")).users] == ["ada"]
    await ask(rig, "DeleteUser", name="ada")
    assert [user.name for user in (await ask(rig, "FetchUsers")).users] == ["iggy"]


async def test_grants_on_one_place_are_joined_and_may_be_left_out(rig: Rig) -> None:
    parts = [{"stream": "n", "rights": [right]} for right in ("send_messages", "read_stream")]
    await ask(rig, "CreateUser", name="ada", password="secret", grants=parts)
    rights = StreamRight.SEND_MESSAGES | StreamRight.READ_STREAM
    assert rig.controller.state.users["ada"].rights == Rights(0, (StreamRights(1, rights),))
    await ask(rig, "CreateUser", name="bob", password="secret")
    assert rig.controller.state.users["bob"].rights is None


async def test_a_place_that_does_not_exist_is_shown_by_its_number(rig: Rig) -> None:
    await ask(rig, "CreateUser", name="ada", password="secret")
    rights = Rights(0, (StreamRights(0, 0, (TopicRights(6, 1),)), StreamRights(9, 1, (TopicRights(0, 1),))))
    await rig.controller.propose(SetUserRights(1, rights), 5.0)
    (ada,) = (await ask(rig, "FetchUsers", name="ada")).users
    assert grants(ada) == [
        ("default", "#7", ["manage_topic"]),
        ("#9", "", ["manage_stream"]),
        ("#9", "#1", ["manage_topic"]),
    ]


@pytest.mark.parametrize(
    ("method", "fields", "status"),
    [
        ("CreateUser", {"name": "ab", "password": "secret"}, Status.INVALID_ARGUMENT),
        ("CreateUser", {"name": "ada", "password": "ab"}, Status.INVALID_ARGUMENT),
        ("CreateUser", {"name": "iggy", "password": "secret"}, Status.ALREADY_EXISTS),
        ("CreateUser", {"grants": [{"rights": ["read_topic"]}]}, Status.INVALID_ARGUMENT),
        ("CreateUser", {"grants": [{"stream": "n", "rights": ["manage_users"]}]}, Status.INVALID_ARGUMENT),
        ("CreateUser", {"grants": [{"topic": "orders", "rights": ["read_topic"]}]}, Status.INVALID_ARGUMENT),
        ("CreateUser", {"grants": [{"stream": "absent"}]}, Status.NOT_FOUND),
        ("CreateUser", {"grants": [{"stream": "n", "topic": "absent"}]}, Status.NOT_FOUND),
        ("DeleteUser", {"name": "iggy"}, Status.FAILED_PRECONDITION),
        ("DeleteUser", {"name": "absent"}, Status.NOT_FOUND),
        ("SetUserPassword", {"name": "absent", "password": "secret"}, Status.NOT_FOUND),
        ("SetUserPassword", {"name": "iggy", "password": "x" * 101}, Status.INVALID_ARGUMENT),
        ("SetUserStatus", {"name": "absent"}, Status.NOT_FOUND),
        ("SetUserStatus", {"name": "iggy"}, Status.FAILED_PRECONDITION),
        ("SetUserRights", {"name": "absent"}, Status.NOT_FOUND),
        ("SetUserRights", {"name": "iggy"}, Status.FAILED_PRECONDITION),
        ("SetUserRights", {"name": "iggy", "grants": [{"rights": ["fly"]}]}, Status.INVALID_ARGUMENT),
        ("SetUserRights", {"name": "iggy", "grants": [{"stream": "absent"}]}, Status.NOT_FOUND),
        ("CreateUserToken", {"user": "absent", "name": "dev"}, Status.NOT_FOUND),
        ("CreateUserToken", {"user": "iggy", "name": "ab"}, Status.INVALID_ARGUMENT),
        ("CreateUserToken", {"user": "iggy", "name": "dev", "expires_in_ms": -1}, Status.INVALID_ARGUMENT),
        ("DeleteUserToken", {"user": "iggy", "name": "dev"}, Status.NOT_FOUND),
        ("FetchUsers", {"name": "absent"}, Status.NOT_FOUND),
    ],
)
async def test_what_is_refused_is_refused_by_a_dry_run_too(
    rig: Rig, method: str, fields: dict[str, Any], status: Status
) -> None:
    assert await refused(rig, method, **fields) is status
    if method != "FetchUsers":
        assert await refused(rig, method, **fields, dry_run=True) is status


async def test_a_dry_run_changes_nothing(rig: Rig) -> None:
    await ask(rig, "CreateUserToken", user="iggy", name="kept")
    before = rig.controller.state.users
    assert (await ask(rig, "CreateUser", name="ada", password="secret", dry_run=True)).number == 0
    await ask(rig, "SetUserPassword", name="iggy", password="secret", dry_run=True)
    assert (await ask(rig, "CreateUserToken", user="iggy", name="dev", dry_run=True)).token == ""
    await ask(rig, "DeleteUserToken", user="iggy", name="kept", dry_run=True)
    assert rig.controller.state.users == before
    assert await refused(rig, "CreateUserToken", user="iggy", name="kept", dry_run=True) is Status.ALREADY_EXISTS


async def test_status_and_rights_of_a_user_are_replaced(rig: Rig) -> None:
    await ask(rig, "CreateUser", name="ada", password="secret", grants=[EVERYWHERE, ON_STREAM])
    before = rig.controller.state.users
    await ask(rig, "SetUserStatus", name="ada", dry_run=True)
    await ask(rig, "SetUserRights", name="ada", dry_run=True)
    assert rig.controller.state.users == before
    await ask(rig, "SetUserStatus", name="ada")
    await ask(rig, "SetUserRights", name="ada", grants=[ON_TOPIC])
    (ada,) = (await ask(rig, "FetchUsers", name="ada")).users
    assert (ada.is_active, grants(ada)) == (False, [("default", "orders", ["read_topic", "poll_messages"])])
    await ask(rig, "SetUserStatus", name="ada", is_active=True)
    await ask(rig, "SetUserRights", name="ada")
    (ada,) = (await ask(rig, "FetchUsers", name="ada")).users
    assert (ada.is_active, grants(ada)) == (True, [])
    await ask(rig, "SetUserStatus", name="iggy", is_active=True)


async def test_a_password_is_set_without_the_current_one_and_a_token_is_shown_once(rig: Rig) -> None:
    await ask(rig, "SetUserPassword", name="iggy", password="another")
    assert PasswordHasher().verify(rig.controller.state.users["iggy"].password, "another")
    token = (await ask(rig, "CreateUserToken", user="iggy", name="dev", expires_in_ms=5)).token
    assert len(token) == 68
    (root,) = (await ask(rig, "FetchUsers")).users
    assert [(item.name, item.expires_ns) for item in root.tokens] == [("dev", 1_000 + 5_000_000)]
    await ask(rig, "DeleteUserToken", user="iggy", name="dev")
    (root,) = (await ask(rig, "FetchUsers")).users
    assert list(root.tokens) == []


async def test_a_broker_that_does_not_serve_iggys_clients_has_no_users(rig: Rig) -> None:
    for name, handler in UserMethods(rig.controller, None).handlers().items():
        with pytest.raises(StatusError, match=r"iggy\.listen is off") as caught:
            await handler(message(f"{name}Request")(), AdminRequest("", b"", "p", 5.0))
        assert caught.value.status is Status.FAILED_PRECONDITION


async def test_the_first_user_is_not_made_by_an_administrator() -> None:
    async with running() as rig:
        assert await refused(rig, "CreateUser", name="ada", password="secret") is Status.UNAVAILABLE
