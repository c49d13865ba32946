"""Rules, compiled into a table of client × action × resource.

An action that no rule allows is denied; a rule that denies overrides all that allow.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["NOTHING", "AccessTable", "Grant", "Resources", "Rule", "compile_rules"]


@dataclass(frozen=True, slots=True)
class Resources:
    """A set of resources, by full name or by prefix. An empty prefix matches all."""

    exact: frozenset[str] = frozenset()
    prefixes: frozenset[str] = frozenset()

    def __contains__(self, resource: str) -> bool:
        return resource in self.exact or any(resource.startswith(prefix) for prefix in self.prefixes)

    def __or__(self, other: "Resources") -> "Resources":
        return Resources(self.exact | other.exact, self.prefixes | other.prefixes)


@dataclass(frozen=True, slots=True)
class Grant:
    """One action of one client."""

    allow: Resources = Resources()
    deny: Resources = Resources()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a policy.

    Attributes:
        clients: names of clients; `None` = every client that has a name.
        actions: some of `ACTIONS`.
        resources: the resources of the actions.
        allows: whether the rule allows or denies.
    """

    clients: frozenset[str] | None
    actions: frozenset[str]
    resources: Resources
    allows: bool = True


NOTHING: Final = Grant()
_Grants = Mapping[str, Grant]


@dataclass(frozen=True, slots=True)
class AccessTable:
    """The compiled table. A client has its own grants and those of every client.

    Attributes:
        clients: grants by action, by client.
        everyone: grants of every client, by action.
    """

    clients: Mapping[str, _Grants] = field(default_factory=dict[str, _Grants])
    everyone: _Grants = field(default_factory=dict[str, Grant])

    def allows(self, client: str, action: str, resource: str) -> bool:
        """Whether `client` may do `action` on `resource`."""
        grants = (self.clients.get(client, {}).get(action, NOTHING), self.everyone.get(action, NOTHING))
        allowed = any(resource in grant.allow for grant in grants)
        return allowed and not any(resource in grant.deny for grant in grants)

    def names(self, client: str, action: str, resource: str) -> bool:
        """Whether a rule allows it by the full name of the resource."""
        return any(resource in grant.allow.exact for _, grant in self._grants(client, action))

    def denies(self, client: str, action: str, resource: str) -> bool:
        """Whether a rule denies it."""
        return any(resource in grant.deny for _, grant in self._grants(client, action))

    def denial(self, client: str, action: str, resource: str) -> str:
        """The text of the rule that denies `action` on `resource` to `client`, which is known to be denied."""
        for holder, grant in self._grants(client, action):
            if resource in grant.deny.exact:
                return f'deny {action} on "{resource}" for "{holder}"'
            for prefix in sorted(grant.deny.prefixes):
                if resource.startswith(prefix):
                    return f'deny {action} on "{prefix}*" for "{holder}"'
        return "no rule allows it"

    def _grants(self, client: str, action: str) -> list[tuple[str, Grant]]:
        """The grants that apply to a client, each with its holder: the client or `*`."""
        own, all_clients = self.clients.get(client, {}).get(action, NOTHING), self.everyone.get(action, NOTHING)
        return [(client, own), ("*", all_clients)]

    def document(self) -> dict[str, Any]:
        """The table as a document for the data plane (specs/formats/seam.md)."""
        return {
            "clients": {client: _grants(grants) for client, grants in self.clients.items()},
            "everyone": _grants(self.everyone),
        }


def compile_rules(rules: Iterable[Rule]) -> AccessTable:
    """Compile rules; their order does not matter."""
    clients: dict[str, dict[str, Grant]] = {}
    everyone: dict[str, Grant] = {}
    for rule in rules:
        holders = [everyone] if rule.clients is None else [clients.setdefault(name, {}) for name in rule.clients]
        for holder in holders:
            for action in rule.actions:
                holder[action] = _with(holder.get(action, NOTHING), rule)
    return AccessTable(clients, everyone)


def _with(grant: Grant, rule: Rule) -> Grant:
    if rule.allows:
        return Grant(grant.allow | rule.resources, grant.deny)
    return Grant(grant.allow, grant.deny | rule.resources)


def _grants(grants: _Grants) -> dict[str, Any]:
    return {
        action: {"allow": _resources(grant.allow), "deny": _resources(grant.deny)} for action, grant in grants.items()
    }


def _resources(resources: Resources) -> dict[str, Any]:
    return {"exact": sorted(resources.exact), "prefixes": sorted(resources.prefixes)}
