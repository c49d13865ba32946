"""The result of a rig: a row of the scoreboard (reliability §7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Scale(StrEnum):
    """How long a rig runs."""

    SHORT = "short"
    """A share of five minutes for all rigs, part of `make test`."""
    FULL = "full"
    """The scale of the scoreboard; `make torture`."""


class SkippedError(Exception):
    """The machine cannot run the rig; the message names the missing part and the remedy."""


@dataclass(frozen=True)
class Result:
    """One row of the scoreboard."""

    row: str
    """Id of the row, `S3`; two rigs of one row add a suffix, `S15-connections`."""
    title: str
    """Short description of the fault."""
    figure: str
    """The result as text: `lost 0, wrong 0, resurfaced 0 in 5,000 cuts`."""
    bar: str
    """The required result as text: `0, 0, 0 in 5,000 cuts`."""
    passed: bool
    """Whether the figure meets the bar of this scale."""
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    """The figures by name."""
    seconds: float = 0.0
    """Run time."""
