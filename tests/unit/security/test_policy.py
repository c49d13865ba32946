"""Policies in YAML and in Casbin's CSV: what they allow, and errors of invalid ones."""

from pathlib import Path

import pytest
from bascule.errors import UsageError
from bascule.security import ACTIONS, AccessTable, read_policy

from tests.policies import EXACT_MODEL

ROLES = """
[request_definition]
r = sub, obj, act

[policy_definition]
p = sub, obj, act, eft

[role_definition]
g = _, _

[policy_effect]
e = some(where (p.eft == allow)) && !some(where (p.eft == deny))

[matchers]
m = g(r.sub, p.sub) && keyMatch(r.obj, p.obj) && keyMatch(r.act, p.act)
"""


def policy(directory: Path, text: str, model: str | None = None, suffix: str = ".csv") -> AccessTable:
    file = directory / f"policy{suffix}"
    file.write_text(text)
    if model is None:
        return read_policy(file)
    (directory / "model.conf").write_text(model)
    return read_policy(file, directory / "model.conf")


def refused(directory: Path, text: str, model: str | None = None, suffix: str = ".csv") -> str:
    with pytest.raises(UsageError) as caught:
        policy(directory, text, model, suffix)
    assert caught.value.code == "configuration_invalid"
    return str(caught.value)


def test_a_set_of_actions_can_be_allowed_but_not_denied(tmp_path: Path) -> None:
    text = "rules:\n- {clients: a, allow: [writer, PurgeStream], resources: [x, 'y-*']}\n"
    table = policy(tmp_path, text, suffix=".yaml")
    for action in ("Publish", "FetchPartitionMetadata", "PurgeStream"):
        assert table.allows("a", action, "x")
        assert table.allows("a", action, "y-1")
        assert not table.allows("a", action, "z")
    assert table.allows("a", "FetchMetadata", "*")
    assert not table.allows("a", "Subscribe", "x")
    assert not table.allows("b", "FetchMetadata", "*")
    said = refused(tmp_path, "rules:\n- {clients: a, deny: reader, resources: x}\n", suffix=".yaml")
    assert '"reader" can only be allowed: name the actions to deny' in said


def test_a_key_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    rule = "- {clients: a, allow: Publish, resources: x}\n"
    said = refused(tmp_path, f"rules:\n{rule}rules:\n{rule}", suffix=".yaml")
    assert said.endswith('key "rules" is given twice, first in line 1; again in line 3, column 1')
    said = refused(tmp_path, "rules:\n- {clients: a, allow: Publish, resources: x, clients: '*'}\n", suffix=".yaml")
    assert 'key "clients" is given twice' in said


@pytest.mark.parametrize("model", [None, EXACT_MODEL])
def test_a_liftbridge_policy_is_accepted(tmp_path: Path, model: str | None) -> None:
    table = policy(
        tmp_path,
        "# who may what\np, client1, foo, CreateStream\n\np, client1, *, FetchMetadata\n"
        "p,client2,foo.bar,PublishToSubject\n",
        model,
    )
    assert table.allows("client1", "CreateStream", "foo")
    assert table.allows("client1", "FetchMetadata", "*")
    assert table.allows("client2", "PublishToSubject", "foo.bar")
    assert not table.allows("client2", "CreateStream", "foo")
    assert not table.allows("client1", "CreateStream", "foo-")
    assert not table.allows("client1", "FetchMetadata", "foo"), "an asterisk is a name here, not a wildcard"
    assert not table.allows("nobody", "CreateStream", "foo")


def test_roles_patterns_and_denials_of_a_model(tmp_path: Path) -> None:
    table = policy(
        tmp_path,
        "p, reader, orders*, Subscribe, allow\np, admin, *, *, allow\np, reader, orders-secret, *, deny\n"
        "g, ann, reader\ng, reader, guest\ng, bob, admin\np, guest, news, Subscribe, allow\n",
        ROLES,
    )
    assert table.allows("ann", "Subscribe", "orders-1")
    assert not table.allows("ann", "Subscribe", "orders-secret")
    assert table.allows("ann", "Subscribe", "news"), "a role of a role"
    assert not table.allows("ann", "Publish", "orders-1")
    assert all(table.allows("bob", action, "anything") for action in ACTIONS)
    assert table.allows("reader", "Subscribe", "orders"), "a role is a name as well"


def test_a_policy_in_yaml(tmp_path: Path) -> None:
    table = policy(
        tmp_path,
        """
        rules:
          - {clients: [billing, audit], allow: [Subscribe, FetchCursor], resources: [orders, "payments-*"]}
          - clients: "*"
            allow: FetchMetadata
            resources: "*"
          - {clients: audit, deny: "*", resources: payments-private}
          - {clients: root, allow: "*", resources: "*"}
        """,
        suffix=".yaml",
    )
    assert table.allows("billing", "Subscribe", "payments-1")
    assert table.allows("billing", "Subscribe", "payments-private")
    assert not table.allows("audit", "Subscribe", "payments-private")
    assert table.allows("somebody", "FetchMetadata", "*")
    assert not table.allows("somebody", "Subscribe", "orders")
    assert table.allows("root", "DeleteStream", "orders")
    assert not table.allows("billing", "Subscribe", "orders-2"), "without an asterisk the full name must match"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "valid dictionary"),
        ("rules: {", "not valid YAML"),
        ("rulez: []", 'unknown key "rulez"; did you mean "rules"?'),
        ("rules: [{clients: a, resources: s}]", "either allow or deny"),
        ("rules: [{clients: a, allow: Publish, deny: Publish, resources: s}]", "either allow or deny"),
        ("rules: [{clients: a, allow: Publsh, resources: s}]", 'did you mean "Publish"?'),
        ("rules: [{clients: a, allow: Publish}]", "rules.0.resources"),
        ("rules: [{clients: [], allow: Publish, resources: s}]", "rules.0.clients"),
        ("rules: [{clients: a, allow: Publish, resources: ['']}]", "a name is empty"),
        ("rules: [{clients: 'a*', allow: Publish, resources: s}]", "have no wildcards"),
        ("rules: [{clients: 7, allow: Publish, resources: s}]", "rules.0.clients"),
    ],
)
def test_an_invalid_policy_in_yaml_is_rejected(tmp_path: Path, text: str, reason: str) -> None:
    message = refused(tmp_path, text, suffix=".yml")
    assert reason in message
    assert str(tmp_path / "policy.yml") in message


@pytest.mark.parametrize(
    ("text", "model", "reason"),
    [
        ("p, a, s", None, "policy.csv:1 cannot be used: the line has 2 values, the model has 3"),
        ("# x\np, a, s, Publish, allow", None, "policy.csv:2 cannot be used: the line has 4 values"),
        ("g, a, admin", None, 'no lines of kind "g"'),
        ("p2, a, s, Publish", None, 'no lines of kind "p2"'),
        ("p, , s, Publish", None, "names no client"),
        ('p, a, "s, Publish', None, "not valid CSV"),
        ("p, a, s, Publish, maybe", ROLES, 'not "maybe"'),
        ("g, a", ROLES, "a client and a role"),
        ("", EXACT_MODEL.replace("[matchers]", "[matcher]"), "[matcher] is not supported"),
        ("", EXACT_MODEL.partition("[matchers]")[0], "no section [matchers]"),
        ("", EXACT_MODEL.replace("r = sub, obj, act", "r = sub, dom, obj, act"), "not 4 fields"),
        ("", EXACT_MODEL.replace("some(", "any("), "the effect is not one of"),
        ("", EXACT_MODEL.replace("r.sub == p.sub", "r.sub == 'root'"), "is not supported"),
        ("", EXACT_MODEL.replace("r.sub == p.sub", "g(r.sub, p.sub)"), "needs a [role_definition]"),
        ("", EXACT_MODEL.replace("r.sub == p.sub &&", ""), "exactly once"),
        ("", EXACT_MODEL.replace("r.obj == p.obj", "r.obj == p.act"), "a policy line does not have"),
        ("", EXACT_MODEL.replace("r.obj == p.obj", "r.sub == p.obj"), "twice"),
        ("", EXACT_MODEL.replace("r.obj == p.obj", "regexMatch(r.obj, p.obj)"), "regexMatch"),
        ("", EXACT_MODEL.replace("p.act", "p.act || r.sub == p.obj"), "is not supported"),
        ("", ROLES.replace("g = _, _", "g = _, _, _"), "g = _, _"),
    ],
)
def test_an_unsupported_casbin_policy_is_rejected(tmp_path: Path, text: str, model: str | None, reason: str) -> None:
    assert reason in refused(tmp_path, text, model)


def test_a_line_with_an_unknown_action_allows_nothing_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = policy(tmp_path, "p, a, s, Publsh\np, a, s, Publish\n")
    assert table.allows("a", "Publish", "s")
    logged = "\n".join(caplog.messages)
    assert 'did you mean "Publish"?' in logged
    assert "policy.csv:1" in logged


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for file in (tmp_path / "absent.csv", tmp_path / "absent.yaml"):
        with pytest.raises(UsageError, match=r"absent\.\w+ cannot be used: it cannot be read: No such file"):
            read_policy(file)
    (tmp_path / "binary.csv").write_bytes(b"p, \xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_policy(tmp_path / "binary.csv")
    (tmp_path / "policy.yaml").write_text("rules: []")
    with pytest.raises(UsageError, match="leave out the model"):
        read_policy(tmp_path / "policy.yaml", tmp_path / "model.conf")
