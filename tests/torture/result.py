"""What one rig found: a row of the scoreboard (reliability §7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Scale(StrEnum):
    """How much of a rig is run."""

    SHORT = "short"
    """A share of five minutes in all, part of `make test`."""
    FULL = "full"
    """What the scoreboard asks for; `make torture`."""


class SkippedError(Exception):
    """The machine cannot run the rig; the message says what is missing and the remedy."""


@dataclass(frozen=True)
class Result:
    """One row of the scoreboard."""

    row: str
    """Id of the row, `S3`; two rigs of one row add a suffix, `S15-connections`."""
    title: str
    """What was done, in a few words."""
    figure: str
    """What was counted, as a person reads it: `lost 0, wrong 0, resurfaced 0 in 5,000 cuts`."""
    bar: str
    """What it has to be: `0, 0, 0 in 5,000 cuts`."""
    passed: bool
    """Whether the figure meets the bar of this scale."""
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    """The same figures for machines, by name."""
    seconds: float = 0.0
    """Run time."""
