"""The expectations of a job: conditions on the decoded columns, by name and by what a record that fails them does."""

from typing import Literal, Self

from pydantic import Field, model_validator

from bascule.pipeline.model.base import Name, Part

__all__ = ["ACTIONS", "Action", "Expectations"]

Action = Literal["expect", "expect_or_drop", "expect_or_fail", "expect_or_dlq"]
ACTIONS: tuple[Action, ...] = ("expect", "expect_or_drop", "expect_or_fail", "expect_or_dlq")


class Expectations(Part):
    """Conditions by name, in Spark SQL, on the columns of `source`. A condition that is null counts as failed."""

    expect: dict[Name, str] = Field(default={}, alias="expect", description="only counted; the record is kept")
    expect_or_drop: dict[Name, str] = Field(
        default={}, alias="expect_or_drop", description="a record that fails one is left out, and counted"
    )
    expect_or_fail: dict[Name, str] = Field(
        default={},
        alias="expect_or_fail",
        description="a record that fails one ends the job before its epoch is written",
    )
    expect_or_dlq: dict[Name, str] = Field(
        default={},
        alias="expect_or_dlq",
        description="a record that fails one goes to deadLetters with the error class `ExpectationFailed`, and is "
        "counted",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        seen: dict[str, Action] = {}
        for action in ACTIONS:
            conditions: dict[str, str] = getattr(self, action)
            for name, condition in conditions.items():
                if name in seen:
                    raise ValueError(f'the name "{name}" is in {seen[name]} and in {action}: use each name once')
                if not condition.strip():
                    raise ValueError(f'{action}: the condition "{name}" is empty')
                seen[name] = action
        return self

    def listed(self) -> list[tuple[Action, str, str]]:
        """(action, name, condition) of each, in the order of the file within an action."""
        found: list[tuple[Action, str, str]] = []
        for action in ACTIONS:
            conditions: dict[str, str] = getattr(self, action)
            for name, condition in conditions.items():
                found.append((action, name, condition))
        return found
