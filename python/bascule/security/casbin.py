"""A Casbin model with its policy in CSV, as far as it can be compiled into a table.

Without a model, client, resource and action match exactly, and everything else is denied, as with the model that
Liftbridge ships. A model may also have roles (`g`), match resources and actions with `keyMatch`, and deny. Other
features of Casbin are rejected, so that no line is misinterpreted.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from bascule._methods import ACTIONS
from bascule.logs import emit
from bascule.security.files import nearest_action, read_text, refusal
from bascule.security.table import Resources, Rule

__all__ = ["read_casbin"]

_ALLOW: Final = "some(where(p.eft==allow))"
_DENY_WINS: Final = "some(where(p.eft==allow))&&!some(where(p.eft==deny))"
_SECTIONS: Final = ("request_definition", "policy_definition", "role_definition", "policy_effect", "matchers")
_EQUAL: Final = re.compile(r"^([rp])\.(\w+)==([rp])\.(\w+)$")
_CALL: Final = re.compile(r"^(\w+)\(r\.(\w+),p\.(\w+)\)$")
_FIELDS: Final = 3
_DEEPEST_ROLE: Final = 10
"""Maximum number of links from a client to a role, as in Casbin."""
_TAKEN: Final = (
    "terms are r.x == p.x, keyMatch(r.x, p.x) of resource or action, and g(r.x, p.x) of the client, joined by &&"
)

_How = Literal["equal", "keyMatch", "g"]


@dataclass(frozen=True, slots=True)
class _Model:
    """The columns of a policy line and how they are compared.

    Attributes:
        columns: indexes of client, resource and action, from 0.
        how: how client, resource and action are compared.
        effect: index of the column with allow or deny; `None` = none, all lines allow.
        width: number of columns of a line.
        deny_counts: whether a denying line overrides allowing ones; otherwise it is ignored.
    """

    columns: tuple[int, int, int]
    how: tuple[_How, _How, _How]
    effect: int | None
    width: int
    deny_counts: bool


_EXACT: Final = _Model((0, 1, 2), ("equal", "equal", "equal"), None, _FIELDS, deny_counts=False)


def read_casbin(policy: Path, model: Path | None) -> list[Rule]:
    """The rules of a policy; see the module.

    Raises:
        UsageError: code `configuration_invalid`, naming the file and the line.
    """
    shape = _EXACT if model is None else _read_model(model)
    lines: list[tuple[int, list[str]]] = []
    links: dict[str, set[str]] = {}
    for number, kind, values in _lines(policy):
        if kind == "p":
            lines.append((number, values))
        elif kind == "g" and shape.how[0] == "g":
            if len(values) != 2 or not all(values):  # a client or role, and its role
                raise refusal(policy, "a line of kind g has a client and a role", number)
            links.setdefault(values[0], set()).add(values[1])
        else:
            raise refusal(policy, f'the model has no lines of kind "{kind}"', number)
    members = _members(links)
    rules = (_rule(policy, number, shape, values, members) for number, values in lines)
    return [rule for rule in rules if rule is not None]


def _lines(policy: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Line number, kind and values of the lines that are not empty and not comments."""
    for number, line in enumerate(read_text(policy).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            kind, *values = (part.strip() for part in next(csv.reader([line], skipinitialspace=True, strict=True)))
        except csv.Error as failure:
            raise refusal(policy, f"the line is not valid CSV: {failure}", number) from None
        yield number, kind, values


def _rule(policy: Path, number: int, shape: _Model, values: list[str], members: Mapping[str, set[str]]) -> Rule | None:
    """The rule of a line; `None` = the line has no effect."""
    if len(values) != shape.width:
        raise refusal(policy, f"the line has {len(values)} values, the model has {shape.width}", number)
    allows = _allows(policy, number, shape, values)
    if allows is None:
        return None
    client, resource, action = (values[column] for column in shape.columns)
    if not client:
        raise refusal(policy, "the line names no client", number)
    actions = frozenset(known for known in ACTIONS if _matches(shape.how[2], known, action))
    if not actions:
        emit(30, "access", f'{policy}:{number} allows nothing: "{action}" is not an action{nearest_action(action)}')
        return None
    clients = frozenset({client}) | members.get(client, set()) if shape.how[0] == "g" else frozenset({client})
    return Rule(clients, actions, _resources(shape.how[1], resource), allows)


def _allows(policy: Path, number: int, shape: _Model, values: list[str]) -> bool | None:
    effect = "allow" if shape.effect is None else values[shape.effect]
    if effect not in {"allow", "deny"}:
        raise refusal(policy, f'the effect is allow or deny, not "{effect}"', number)
    if effect == "deny" and not shape.deny_counts:
        return None
    return effect == "allow"


def _matches(how: _How, value: str, pattern: str) -> bool:
    if how == "keyMatch" and "*" in pattern:
        return value.startswith(pattern.partition("*")[0])
    return value == pattern


def _resources(how: _How, pattern: str) -> Resources:
    if how == "keyMatch" and "*" in pattern:
        return Resources(prefixes=frozenset({pattern.partition("*")[0]}))
    return Resources(exact=frozenset({pattern}))


def _members(links: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The members of each role, direct ones and those through other roles."""
    members: dict[str, set[str]] = {}
    for client in links:
        reached, front = {client}, {client}
        for _ in range(_DEEPEST_ROLE):
            front = {role for name in front for role in links.get(name, ())} - reached
            reached |= front
        for role in reached:
            members.setdefault(role, set()).add(client)
    return members


def _read_model(file: Path) -> _Model:
    found = _definitions(file)
    if missing := [name for name in _SECTIONS if name != "role_definition" and name not in found]:
        raise refusal(file, f"the model has no section [{missing[0]}]")
    request, policy = found["request_definition"].split(","), found["policy_definition"].split(",")
    if len(request) != _FIELDS:
        raise refusal(file, f"requests have a client, a resource and an action, not {len(request)} fields")
    if "role_definition" in found and found["role_definition"] != "_,_":
        raise refusal(file, "roles are defined as g = _, _: others are not supported; a policy in YAML may do it")
    effect = found["policy_effect"]
    if effect not in {_ALLOW, _DENY_WINS}:
        known = "some(where (p.eft == allow)), and the same && !some(where (p.eft == deny))"
        raise refusal(file, f"the effect is not one of: {known}")
    terms = _terms(file, found["matchers"])
    if set(terms) != set(request):
        raise refusal(file, f"the matcher compares each of {', '.join(request)} exactly once: {_TAKEN}")
    who, what, act = (terms[name] for name in request)
    how: tuple[_How, _How, _How] = (who[0], what[0], act[0])
    if how[0] == "keyMatch" or "g" in how[1:] or ("g" in how and "role_definition" not in found):
        raise refusal(file, f"the matcher is not supported: {_TAKEN}; g needs a [role_definition]")
    fields = [terms[name][1] for name in request]
    if not set(fields) <= set(policy) or len(set(fields)) != _FIELDS:
        raise refusal(file, f"the matcher compares fields that a policy line does not have: {', '.join(fields)}")
    return _Model(
        columns=(policy.index(fields[0]), policy.index(fields[1]), policy.index(fields[2])),
        how=how,
        effect=policy.index("eft") if "eft" in policy else None,
        width=len(policy),
        deny_counts=effect == _DENY_WINS,
    )


def _definitions(file: Path) -> dict[str, str]:
    """The definition of each section, without white space. A backslash at the end continues a line."""
    found: dict[str, str] = {}
    section = ""
    for number, line in enumerate(re.sub(r"\\\s*\n", " ", read_text(file)).splitlines(), 1):
        text = re.sub(r"\s+", "", line.partition("#")[0])
        if not text:
            continue
        if text.startswith("[") and text.endswith("]"):
            section = text[1:-1]
            if section not in _SECTIONS:
                raise refusal(file, f"the section [{section}] is not supported", number)
            continue
        name, equals, definition = text.partition("=")
        if not equals or len(name) != 1 or section in found:
            raise refusal(
                file, f"[{section}] has one definition, whose name is one letter, not {line.strip()!r}", number
            )
        found[section] = definition
    return found


def _terms(file: Path, matcher: str) -> dict[str, tuple[_How, str]]:
    """For each field of the request: how it is compared, and with which field of a policy line."""
    terms: dict[str, tuple[_How, str]] = {}
    for term in matcher.split("&&"):
        how: _How
        if found := _EQUAL.match(term):
            one, name, other, second = found.groups()
            if one == other:
                raise refusal(file, f"{term} compares a field with itself: {_TAKEN}")
            how, field, against = "equal", *((name, second) if one == "r" else (second, name))
        elif (found := _CALL.match(term)) and found[1] in {"keyMatch", "g"}:
            how, field, against = ("g" if found[1] == "g" else "keyMatch"), found[2], found[3]
        else:
            raise refusal(file, f"{term} in the matcher is not supported: {_TAKEN}; a policy in YAML may do it")
        if field in terms:
            raise refusal(file, f"the matcher compares {field} twice")
        terms[field] = (how, against)
    return terms
