"""The compiled table decides, on both planes, like a direct evaluation of the rules, and like Casbin."""

import tempfile
from pathlib import Path
from typing import Any

import casbin
from bascule.engine import decide_access
from bascule.security import ACTIONS, Resources, Rule, compile_rules, read_policy
from hypothesis import given, settings
from hypothesis import strategies as st

CLIENTS = ("a", "b", "c", "role1", "role2")
RESOURCES = ("s", "st", "st-1", "t", "*", "")
SOME_ACTIONS = ("Publish", "Subscribe", "FetchMetadata")
PREFIXES = ("", "s", "st", "t-")

resources = st.builds(
    Resources,
    st.frozensets(st.sampled_from(RESOURCES), max_size=3),
    st.frozensets(st.sampled_from(PREFIXES), max_size=2),
)
rules = st.lists(
    st.builds(
        Rule,
        st.none() | st.frozensets(st.sampled_from(CLIENTS), min_size=1, max_size=3),
        st.frozensets(st.sampled_from(SOME_ACTIONS), min_size=1),
        resources,
        st.booleans(),
    ),
    max_size=8,
)
QUESTIONS = [(client, action, resource) for client in CLIENTS for action in SOME_ACTIONS for resource in RESOURCES]


def naive(given_rules: list[Rule], client: str, action: str, resource: str) -> bool:
    """The rules one by one."""

    def says(rule: Rule) -> bool:
        means = any(resource == name for name in rule.resources.exact) or any(
            resource[: len(prefix)] == prefix for prefix in rule.resources.prefixes
        )
        return means and action in rule.actions and (rule.clients is None or client in rule.clients)

    spoken = [rule.allows for rule in given_rules if says(rule)]
    return True in spoken and False not in spoken


@settings(deadline=None)
@given(rules)
def test_the_table_is_a_plain_reading_of_the_rules(given_rules: list[Rule]) -> None:
    table = compile_rules(given_rules)
    expected = [naive(given_rules, *question) for question in QUESTIONS]
    assert [table.allows(*question) for question in QUESTIONS] == expected
    assert decide_access(table.document(), QUESTIONS) == expected


def test_both_planes_know_the_same_actions() -> None:
    every = compile_rules([Rule(None, frozenset(ACTIONS), Resources(prefixes=frozenset({""})))])
    assert decide_access(every.document(), [("a", action, "x") for action in ACTIONS]) == [True] * len(ACTIONS)


lines = st.lists(
    st.one_of(
        st.tuples(
            st.just("p"),
            st.sampled_from(CLIENTS),
            st.sampled_from(("s", "st*", "*", "t", "s*x")),
            st.sampled_from((*SOME_ACTIONS, "Pub*", "*")),
            st.sampled_from(("allow", "deny")),
        ),
        st.tuples(st.just("g"), st.sampled_from(CLIENTS), st.sampled_from(CLIENTS)),
    ),
    min_size=1,
    max_size=8,
)
WIDE = """
[request_definition]
r = sub, obj, act
[policy_definition]
p = sub, obj, act, eft
[role_definition]
g = _, _
[policy_effect]
e = {effect}
[matchers]
m = {client} && {resource}(r.obj, p.obj) && keyMatch(r.act, p.act)
"""
ALLOW = "some(where (p.eft == allow))"
DENY_WINS = f"{ALLOW} && !some(where (p.eft == deny))"


@settings(max_examples=60, deadline=None)
@given(lines, st.sampled_from((ALLOW, DENY_WINS)))
def test_a_policy_means_what_casbin_says(given_lines: list[tuple[str, ...]], effect: str) -> None:
    text = WIDE.format(effect=effect, client="g(r.sub, p.sub)", resource="keyMatch")
    with tempfile.TemporaryDirectory() as directory:
        model, policy = Path(directory, "model.conf"), Path(directory, "policy.csv")
        model.write_text(text)
        policy.write_text("".join(f"{', '.join(line)}\n" for line in given_lines))
        table = read_policy(policy, model)
        reference: Any = casbin.Enforcer(str(model), str(policy))
        for client, action, resource in QUESTIONS:
            allowed = bool(reference.enforce(client, resource, action))
            assert table.allows(client, action, resource) == allowed, (client, action, resource)
