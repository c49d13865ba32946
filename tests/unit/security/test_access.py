"""The access table in the control plane: errors for clients, and the rights of each method."""

from collections.abc import Mapping
from typing import Any

import pytest
from bascule._liftbridge_pb import message
from bascule.errors import AccessError
from bascule.protocols.liftbridge import LiftbridgeAdmin
from bascule.protocols.liftbridge.authorization import RIGHTS, guarded
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


async def test_every_method_has_its_rights() -> None:
    async with running() as rig:
        names = {name.removeprefix("liftbridge/") for name in rig.admin}
        assert names == set(RIGHTS)
        assert LiftbridgeAdmin.__init__.__annotations__["access"]


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
}


@pytest.mark.parametrize("method", [*BODIES, "EditStream", "TrimPartition", "PurgeStream"])
async def test_a_method_needs_the_right_of_its_name(method: str) -> None:
    body = b'{"name": "x"}'
    if method in BODIES:
        body = message(f"{method}Request")(**BODIES[method]).SerializeToString()
    resource = "*" if method == "FetchMetadata" else "x"
    reading = rule("a", "Subscribe", "s")
    request = AdminRequest(f"liftbridge/{method}", body, "p", 5.0, "a")
    may = guarded(method, answer, access(rule("a", method, resource), reading))
    assert await may(request) == b"done"
    others = [rule("a", action, resource) for action in ACTIONS if action != method]
    may_not = guarded(method, answer, access(*others, reading, rule("b", method, resource)))
    with pytest.raises(
        AccessError, match=f"authorized to call {method} on resource {'[*]' if resource == '*' else 'x'}$"
    ):
        await may_not(request)


@pytest.mark.parametrize(
    ("method", "action", "resource"),
    [
        ("ResumeStream", "PauseStream", "x"),
        ("FetchStreamDetails", "FetchPartitionMetadata", "x"),
        ("FetchGroupDetails", "FetchMetadata", "*"),
        ("FetchBrokerDetails", "FetchMetadata", "*"),
    ],
)
async def test_an_admin_method_needs_the_right_of_the_similar_liftbridge_method(
    method: str, action: str, resource: str
) -> None:
    request = AdminRequest(f"liftbridge/{method}", b'{"name": "x"}', "p", 5.0, "a")
    assert await guarded(method, answer, access(rule("a", action, resource)))(request) == b"done"
    others = [rule("a", other, resource) for other in ACTIONS if other != action]
    with pytest.raises(AccessError, match=f"authorized to call {action} on resource"):
        await guarded(method, answer, access(*others))(request)


async def test_a_dry_run_needs_the_right_of_the_method() -> None:
    body = message("CreateStreamRequest")(**BODIES["CreateStream"]).SerializeToString()
    request = AdminRequest("liftbridge/CheckCreateStream", body, "p", 5.0, "a")
    assert await guarded("CheckCreateStream", answer, access(rule("a", "CreateStream", "x")))(request) == b"done"
    with pytest.raises(AccessError, match="authorized to call CreateStream on resource x"):
        await guarded("CheckCreateStream", answer, access(rule("a", "PauseStream", "x")))(request)


@pytest.mark.parametrize("method", ["CreateStream", "CheckCreateStream"])
@pytest.mark.parametrize("subject", ["payments", "payments.*", ">", "x.1"])
async def test_a_subject_that_is_not_the_streams_name_needs_the_rights_on_it(method: str, subject: str) -> None:
    body = message("CreateStreamRequest")(name="x", subject=subject).SerializeToString()
    request = AdminRequest(f"liftbridge/{method}", body, "p", 5.0, "a")
    rules = {action: rule("a", action, subject) for action in ("Subscribe", "PublishToSubject")}
    rules["CreateStream"] = rule("a", "CreateStream", "x")
    assert await guarded(method, answer, access(*rules.values()))(request) == b"done"
    for missing in rules:
        rest = [given for action, given in rules.items() if action != missing]
        with pytest.raises(AccessError, match=f"authorized to call {missing} on resource"):
            await guarded(method, answer, access(*rest, rule("a", missing, "y")))(request)


async def test_joining_a_group_needs_the_right_to_read_its_streams() -> None:
    body = message("JoinConsumerGroupRequest")(**BODIES["JoinConsumerGroup"]).SerializeToString()
    may_not = guarded("JoinConsumerGroup", answer, access(rule("a", "JoinConsumerGroup", "x")))
    with pytest.raises(AccessError, match="call Subscribe on resource s"):
        await may_not(AdminRequest("liftbridge/JoinConsumerGroup", body, "p", 5.0, "a"))


async def test_an_unknown_method_is_denied() -> None:
    denied = guarded("Invented", answer, access(*(rule("a", action, "*") for action in ACTIONS)))
    request = AdminRequest("liftbridge/Invented", b"", "p", 5.0, "a")
    with pytest.raises(AccessError, match="Invented"):
        await denied(request)
    assert await guarded("Invented", answer, Access())(request) == b"done"


async def test_malformed_requests_are_passed_to_the_handler() -> None:
    nobody = access()
    for method, body in [
        ("CreateStream", message("CreateStreamRequest")(subject="x").SerializeToString()),
        ("JoinConsumerGroup", message("JoinConsumerGroupRequest")(groupId="x").SerializeToString()),
        ("TrimPartition", b"["),
        ("PurgeStream", b'{"name": 7}'),
    ]:
        assert await guarded(method, answer, nobody)(AdminRequest(method, body, "p", 5.0, "a")) == b"done"
