"""The access table in the control plane: errors for clients, and the rights of each method."""

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from bascule import _admin_pb
from bascule._liftbridge_pb import message
from bascule._methods import METHODS
from bascule.errors import AccessError
from bascule.protocols.admin.service import served
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.authorization import guarded
from bascule.protocols.router import AdminRequest
from bascule.security import ACTIONS, Access, Resources, Rule, compile_rules

from tests.unit.control.rig import running


class Plane:
    """Stores the published table."""

    def __init__(self) -> None:
        self.table: Mapping[str, Any] | None = None
        self.refuses = False

    def publish_access(self, table: Mapping[str, Any] | None) -> None:
        if self.refuses:
            raise ValueError("refused")
        self.table = table


def rule(client: str | None, action: str, *resources: str, allows: bool = True) -> Rule:
    clients = None if client is None else frozenset({client})
    return Rule(clients, frozenset({action}), Resources(frozenset(resources)), allows)


def access(*rules: Rule) -> Access:
    made = Access()
    made.publish(compile_rules(rules), Plane())
    return made


async def answer(_: AdminRequest) -> bytes:
    return b"done"


def test_without_a_table_everything_is_allowed() -> None:
    Access().check(None, "Publish", "s")


def test_the_texts_are_those_of_the_specification() -> None:
    made = access(rule("a", "Publish", "s"))
    made.check("a", "Publish", "s")
    with pytest.raises(AccessError) as denied:
        made.check("a", "Publish", "t")
    assert str(denied.value) == "The client is not authorized to call Publish on resource t"
    assert denied.value.code == "permission_denied"
    with pytest.raises(AccessError) as nameless:
        made.check(None, "Publish", "s")
    assert str(nameless.value) == "api: Failed to retrieve client ID"
    assert nameless.value.code == "unauthenticated"


def test_a_denial_for_one_client_overrides_a_grant_for_all() -> None:
    made = access(rule(None, "Publish", "s"), rule("a", "Publish", "s", allows=False))
    made.check("b", "Publish", "s")
    with pytest.raises(AccessError):
        made.check("a", "Publish", "s")


def test_a_table_rejected_by_the_data_plane_changes_nothing() -> None:
    plane, made = Plane(), Access()
    made.publish(compile_rules([rule("a", "Publish", "s")]), plane)
    plane.refuses = True
    with pytest.raises(ValueError, match="refused"):
        made.publish(compile_rules([]), plane)
    made.check("a", "Publish", "s")


def test_a_refusal_is_short_enough_for_a_header() -> None:
    with pytest.raises(AccessError) as denied:
        access().check("a", "Publish", "s" * 1_000_000)
    assert len(str(denied.value)) < 2048


async def test_every_method_of_the_control_plane_is_handled_and_no_other() -> None:
    async with running() as rig:
        names = {name.rpartition("/")[2] for name in rig.admin}
    assert names == {name for name, method in METHODS.items() if method.in_control} | {"ResumePartition"}


BODIES = {
    "CreateStream": {"name": "x", "subject": "x"},
    "DeleteStream": {"name": "x"},
    "PauseStream": {"name": "x"},
    "SetStreamReadonly": {"name": "x"},
    "FetchPartitionMetadata": {"stream": "x"},
    "FetchMetadata": {},
    "JoinConsumerGroup": {"groupId": "x", "consumerId": "c", "streams": ["s"]},
    "LeaveConsumerGroup": {"groupId": "x", "consumerId": "c"},
    "FetchConsumerGroupAssignments": {"groupId": "x", "consumerId": "c"},
    "ReportConsumerGroupCoordinator": {"groupId": "x", "consumerId": "c"},
    "EditStream": {"name": "x"},
    "TrimPartition": {"name": "x"},
    "PurgeStream": {"name": "x"},
    "ResumeStream": {"name": "x"},
    "FetchStreamDetails": {"name": "x"},
    "CheckCreateStream": {"create": {"name": "x", "subject": "x"}},
    "FetchGroupDetails": {},
    "FetchBrokerDetails": {},
    "FetchClusterStatus": {},
    "OpenSink": {"name": "s", "streams": ["x"]},
    "PublishSink": {"name": "s", "targets": [{"stream": "x"}]},
    "AbortSink": {"name": "s"},
    "RenewSink": {"name": "s"},
    "FetchSinkStreams": {"streams": ["x"]},
    "FetchSinks": {},
    "DeleteSink": {"name": "x"},
    "SkipSink": {"name": "x"},
    "SetSinkQuota": {"name": "x"},
    "SetSinkOwner": {"name": "x"},
    "ReportArchived": {"name": "x"},
    "ReportQuery": {"query": "q", "streams": [{"name": "x"}]},
    "FetchLags": {},
    "FetchStreams": {},
    "FetchUsers": {},
    "CreateUser": {"name": "x", "password": "secret"},
    "DeleteUser": {"name": "x"},
    "SetUserPassword": {"name": "x", "password": "secret"},
    "SetUserStatus": {"name": "x"},
    "SetUserRights": {"name": "x"},
    "CreateUserToken": {"user": "x", "name": "x"},
    "DeleteUserToken": {"user": "x", "name": "x"},
    "ReleaseHold": {"query": "q", "stream": "x"},
}
OURS = {name for name, method in METHODS.items() if method.service == "bascule.admin.v1.Admin"}


async def call(method: str, made: Access, **differences: Any) -> bytes:
    """Call a method that answers `done`, as client `a`."""
    given = {**BODIES[method], **differences}
    if method not in OURS:
        body = message(f"{method}Request")(**given).SerializeToString()
        return await guarded(method, answer, made)(AdminRequest(f"liftbridge/{method}", body, "p", 5.0, "a"))
    body = _admin_pb.message(f"{method}Request")(**given).SerializeToString()
    return await served(method, answer_message, made)(AdminRequest(f"admin/{method}", body, "p", 5.0, "a"))


async def answer_message(_: Any, __: AdminRequest) -> Any:
    return SimpleNamespace(SerializeToString=lambda: b"done")


def test_the_bodies_are_of_all_methods() -> None:
    assert BODIES.keys() == {name for name, method in METHODS.items() if method.in_control}


SIMILAR = {
    "ResumeStream": "PauseStream",
    "FetchStreamDetails": "FetchPartitionMetadata",
    "FetchGroupDetails": "FetchMetadata",
    "FetchBrokerDetails": "FetchMetadata",
    "FetchClusterStatus": "FetchMetadata",
    "CheckCreateStream": "CreateStream",
    "OpenSink": "Publish",
    "PublishSink": "Publish",
    "FetchSinkStreams": "Publish",
    "FetchSinks": "ManageSinks",
    "DeleteSink": "ManageSinks",
    "SkipSink": "ManageSinks",
    "SetSinkQuota": "ManageSinks",
    "SetSinkOwner": "ManageSinks",
    "ReportArchived": "EditStream",
    "ReportQuery": "Subscribe",
    "FetchLags": "FetchMetadata",
    "FetchStreams": "FetchMetadata",
    "FetchUsers": "ManageUsers",
    "CreateUser": "ManageUsers",
    "DeleteUser": "ManageUsers",
    "SetUserPassword": "ManageUsers",
    "SetUserStatus": "ManageUsers",
    "SetUserRights": "ManageUsers",
    "CreateUserToken": "ManageUsers",
    "DeleteUserToken": "ManageUsers",
    "ReleaseHold": "EditStream",
}
OWNED = ["AbortSink", "RenewSink"]
"""They need no right but to be the owner of the sink, which their handlers check."""


@pytest.mark.parametrize("method", [method for method in BODIES if method not in OWNED])
async def test_a_method_needs_the_right_of_its_name_or_of_the_similar_method_of_liftbridge(method: str) -> None:
    action = SIMILAR.get(method, method)
    resource = "*" if METHODS[method].resource == "*" else "x"
    reading = rule("a", "Subscribe", "s")
    assert await call(method, access(rule("a", action, resource), reading)) == b"done"
    others = [rule("a", other, resource) for other in ACTIONS if other != action]
    with pytest.raises(AccessError, match=rf"authorized to call {action} on resource {re.escape(resource)}$"):
        await call(method, access(*others, reading, rule("b", action, resource)))


@pytest.mark.parametrize("method", ["CreateStream", "CheckCreateStream"])
@pytest.mark.parametrize("subject", ["payments", "payments.*", ">", "x.1"])
async def test_a_subject_that_is_not_the_streams_name_needs_the_rights_on_it(method: str, subject: str) -> None:
    asked = {"name": "x", "subject": subject}
    given = {"create": asked} if method in OURS else asked
    rules = {action: rule("a", action, subject) for action in ("Subscribe", "PublishToSubject")}
    rules["CreateStream"] = rule("a", "CreateStream", "x")
    assert await call(method, access(*rules.values()), **given) == b"done"
    for missing in rules:
        rest = [given for action, given in rules.items() if action != missing]
        with pytest.raises(AccessError, match=f"authorized to call {missing} on resource"):
            await call(method, access(*rest, rule("a", missing, "y")), **given)


async def test_joining_a_group_needs_the_right_to_read_its_streams() -> None:
    with pytest.raises(AccessError, match="call Subscribe on resource s"):
        await call("JoinConsumerGroup", access(rule("a", "JoinConsumerGroup", "x")))


async def test_an_unknown_method_is_denied() -> None:
    denied = guarded("Invented", answer, access(*(rule("a", action, "*") for action in ACTIONS)))
    request = AdminRequest("liftbridge/Invented", b"", "p", 5.0, "a")
    with pytest.raises(AccessError, match="Invented"):
        await denied(request)
    assert await guarded("Invented", answer, Access())(request) == b"done"


async def test_malformed_requests_are_passed_to_the_handler() -> None:
    nobody = access()
    assert await call("CreateStream", nobody, name="") == b"done"
    assert await call("CheckCreateStream", nobody, create={"subject": "x"}) == b"done"
    assert await call("JoinConsumerGroup", nobody, consumerId="") == b"done"
    for body in (b"\xff", b"\x80\x7d\x01"):
        with pytest.raises(StatusError) as refused:
            await served("TrimPartition", answer_message, nobody)(AdminRequest("", body, "p", 5.0, "a"))
        assert refused.value.status is Status.INVALID_ARGUMENT


async def test_a_right_on_all_is_checked_before_a_large_request_is_read() -> None:
    request = AdminRequest("admin/FetchGroupDetails", b"\xff", "p", 5.0, "a")
    with pytest.raises(AccessError):
        await served("FetchGroupDetails", answer_message, access())(request)
