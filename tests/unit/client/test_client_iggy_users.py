"""Users of Iggy's clients over a fake native core: what is sent, and what answers become."""

from typing import Any

import pytest
from bascule import IggyGrant, IggyToken, IggyUser
from bascule._admin_pb import message
from bascule.errors import UsageError

from tests.unit.client.fakes import FakeNative, client_of


def sent(native: FakeNative, method: str) -> Any:
    ((found, body),) = native.requests
    native.requests.clear()
    assert found == method
    return message(f"{method}Request").FromString(body)


def answer(method: str, **fields: Any) -> bytes:
    return message(f"{method}Response")(**fields).SerializeToString()


def test_a_user_has_every_field_of_the_answer() -> None:
    native = FakeNative()
    grants: list[dict[str, Any]] = [
        {"rights": ["read_users"]},
        {"stream": "n", "topic": "t", "rights": ["send_messages", "read_topic"]},
    ]
    tokens = [{"name": "dev", "expires_ns": 9}]
    fields: dict[str, Any] = {"name": "ada", "number": 2, "is_active": True, "created_ns": 7}
    native.answers = [answer("FetchUsers", users=[{**fields, "grants": grants, "tokens": tokens}])]
    assert client_of(native).iggy_user("ada") == IggyUser(
        **fields,
        grants=(IggyGrant(("read_users",)), IggyGrant(("send_messages", "read_topic"), "n", "t")),
        tokens=(IggyToken("dev", 9),),
    )
    assert sent(native, "FetchUsers").name == "ada"
    native.answers = [answer("FetchUsers")]
    assert client_of(native).iggy_users() == []
    assert sent(native, "FetchUsers").name == ""


def test_what_changes_users_is_sent_as_it_was_given() -> None:
    native = FakeNative()
    client = client_of(native)
    native.answers = [answer("CreateUser", number=3)]
    assert client.create_iggy_user("ada", "secret", [IggyGrant(("read_topic",), "n", "t")], dry_run=True) == 3
    request = sent(native, "CreateUser")
    assert (request.name, request.password, request.dry_run) == ("ada", "secret", True)
    assert [(item.stream, item.topic, list(item.rights)) for item in request.grants] == [("n", "t", ["read_topic"])]
    native.answers = [answer("SetUserPassword"), answer("DeleteUser"), answer("DeleteUserToken")]
    client.set_iggy_password("ada", "another")
    assert sent(native, "SetUserPassword").password == "another"
    native.answers[:0] = [answer("SetUserStatus"), answer("SetUserRights")]
    client.set_iggy_status("ada", False)
    request = sent(native, "SetUserStatus")
    assert (request.name, request.is_active, request.dry_run) == ("ada", False, False)
    client.set_iggy_grants("ada", [IggyGrant(("send_messages",), "n")], dry_run=True)
    request = sent(native, "SetUserRights")
    assert [(item.stream, list(item.rights)) for item in request.grants] == [("n", ["send_messages"])]
    assert request.dry_run
    client.delete_iggy_user("ada")
    assert sent(native, "DeleteUser").name == "ada"
    client.delete_iggy_token("ada", "dev")
    assert sent(native, "DeleteUserToken").name == "dev"


def test_a_token_is_returned_and_its_expiry_is_bounded() -> None:
    native = FakeNative()
    native.answers = [answer("CreateUserToken", token="text")]
    assert client_of(native).create_iggy_token("ada", "dev", expires_in_ms=5) == "text"
    assert sent(native, "CreateUserToken").expires_in_ms == 5
    for wrong in (-1, 1 << 63):
        with pytest.raises(UsageError, match="expires_in_ms"):
            client_of(native).create_iggy_token("ada", "dev", expires_in_ms=wrong)
