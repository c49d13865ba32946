"""Reads a policy file: YAML, or Casbin's CSV. No part of it is ignored silently.

rules:
  - clients: [billing, audit]      # common names of certificates; "*" = every client
    allow: [Publish, Subscribe]    # or deny; "*" = every action; reader, writer = the actions of such a client
    resources: [orders, "payments-*"]  # streams, groups, subjects; a final * matches any suffix
"""

from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from bascule._methods import ACTIONS
from bascule._yaml import FAILURES, load_yaml, yaml_problem
from bascule.errors import UsageError
from bascule.security.action_sets import ACTION_SETS
from bascule.security.casbin import read_casbin
from bascule.security.files import nearest_action, nearest_of, read_text, refusal
from bascule.security.table import AccessTable, Resources, Rule, compile_rules

__all__ = ["read_policy"]

_YAML: Final = frozenset({".yaml", ".yml"})
ALL: Final = "*"


def read_policy(policy: Path, model: Path | None = None) -> AccessTable:
    """The table of a policy.

    Args:
        policy: file, YAML (`.yaml`, `.yml`), otherwise a Casbin policy in CSV.
        model: Casbin model of the CSV; `None` = client, resource and action match exactly.

    Raises:
        UsageError: code `configuration_invalid`, naming the file, the position, the error and the remedy.
    """
    if policy.suffix.lower() not in _YAML:
        return compile_rules(read_casbin(policy, model))
    if model is not None:
        raise refusal(model, f"a model belongs to a CSV policy, and {policy} is YAML: leave out the model")
    return compile_rules(_rules(policy))


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    clients: tuple[str, ...] = Field(min_length=1)
    allow: tuple[str, ...] | None = Field(default=None, min_length=1)
    deny: tuple[str, ...] | None = Field(default=None, min_length=1)
    resources: tuple[str, ...] = Field(min_length=1)

    @field_validator("clients", "allow", "deny", "resources", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    @field_validator("clients", "resources")
    @classmethod
    def _no_empty_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(value):
            raise ValueError('a name is empty: "*" matches all')
        return value

    @field_validator("clients")
    @classmethod
    def _whole_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name != ALL and name.endswith(ALL):
                raise ValueError(f'"{name}": names of clients have no wildcards; only "*" alone matches every client')
        return value

    @field_validator("allow")
    @classmethod
    def _known_actions(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for action in value or ():
            if action not in ACTIONS and action not in ACTION_SETS and action != ALL:
                raise ValueError(f'"{action}" is not an action{nearest_action(action)}')
        return value

    @field_validator("deny")
    @classmethod
    def _single_actions(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for action in value or ():
            if action in ACTION_SETS:
                raise ValueError(f'"{action}" can only be allowed: name the actions to deny')
            if action not in ACTIONS and action != ALL:
                raise ValueError(f'"{action}" is not an action{nearest_action(action)}')
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.allow is None) == (self.deny is None):
            raise ValueError("a rule has either allow or deny")
        return self

    def rules(self) -> list[Rule]:
        """The compiled rules: one rule, and those of the named sets of actions."""
        named = self.allow if self.allow is not None else self.deny or ()
        clients = None if ALL in self.clients else frozenset(self.clients)
        sets = [ACTION_SETS[name] for name in named if name in ACTION_SETS]
        actions = frozenset(ACTIONS if ALL in named else named) - ACTION_SETS.keys()
        main = Rule(
            clients=clients,
            actions=actions.union(*(item.actions for item in sets)),
            resources=Resources(
                frozenset(name for name in self.resources if not name.endswith(ALL)),
                frozenset(name[:-1] for name in self.resources if name.endswith(ALL)),
            ),
            allows=self.allow is not None,
        )
        elsewhere = [pair for item in sets for pair in item.elsewhere]
        return [
            main,
            *(Rule(clients, frozenset({action}), Resources(frozenset({resource}))) for action, resource in elsewhere),
        ]


class _Policy(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: tuple[_Rule, ...]


def _rules(file: Path) -> list[Rule]:
    try:
        document: Any = load_yaml(read_text(file))
    except FAILURES as failure:
        if isinstance(failure, UsageError):
            raise
        raise refusal(file, f"it is not valid YAML: {yaml_problem(failure)}") from None
    try:
        return [rule for item in _Policy.model_validate(document).rules for rule in item.rules()]
    except ValidationError as invalid:
        found = invalid.errors(include_url=False)
        first = next((item for item in found if item["type"] == "extra_forbidden"), found[0])
        place = [str(part) for part in first["loc"]]
        reason = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = list((_Rule if len(place) > 1 else _Policy).model_fields)
            reason = f'unknown key "{place.pop()}"{nearest_of(known, str(first["loc"][-1]))}'
        path = ".".join(place)
        raise refusal(file, f"{path}: {reason[:1].lower()}{reason[1:]}" if path else reason) from None
