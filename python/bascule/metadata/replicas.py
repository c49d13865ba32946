"""What the state keeps about replicas beside the ISR. `docs/decisions/replication.md` explains it.

Immutable values, like `model`. Indexes, epochs and offsets lie in 0…2^63 − 1.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

MAX_LEVEL = 2
"""Highest feature level that this program speaks; the first one is 1."""

MAX_LOSSES = 8
"""Most recorded losses of one partition; then the oldest is forgotten."""

MAX_ANSWERS = 4096
"""Most answers to proposals that are kept; then the oldest is forgotten."""

Run: TypeAlias = Literal["registered", "confirmed", "fenced"]
"""What the last run of a broker may do: nothing yet; lead and join an ISR; nothing any more."""

LossReason: TypeAlias = Literal["cut", "unclean", "waited", "operator", "rescue", "accepted"]
"""Why records may be missing: recovery cut torn tails only; data was lost; not all were waited for; a person said so;
after a rescue; a damaged range that nobody has was given up.
"""


@dataclass(frozen=True, slots=True)
class Versions:
    """The feature levels that a broker speaks: `low` to `high`, both inclusive."""

    low: int = 1
    high: int = 1

    def speak(self, level: int) -> bool:
        """Whether the broker speaks `level`."""
        return self.low <= level <= self.high


@dataclass(frozen=True, slots=True)
class Ending:
    """An ended leader, which may not know it yet.

    Attributes:
        broker: its id.
        boot_epoch: of the run that led.
        index: of the entry that ended it.
    """

    broker: str
    boot_epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a log ends.

    Attributes:
        epoch: of its last batch; 0 = it is empty.
        end: its log end offset.
        hw: its high watermark, at most `end`.
    """

    epoch: int
    end: int
    hw: int

    @property
    def order(self) -> tuple[int, int]:
        """The greater, the more complete."""
        return self.epoch, self.end


@dataclass(frozen=True, slots=True)
class Reported:
    """The position that a run of a broker reported of its replica."""

    broker: str
    boot_epoch: int
    position: Position


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that were committed and may be missing.

    Attributes:
        leader_epoch: whose history lacks them.
        start: first offset that may be missing; −1 = its leader has not reported it yet.
        end: end of the range, exclusive; 0 = all that other histories have from `start` on.
        reason: why.
        by: who decided it; empty = the rules.
    """

    leader_epoch: int
    start: int
    end: int
    reason: LossReason
    by: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Names a proposal for ever: `nonce` of the run that made it and its `counter`, both 1…2^63 − 1."""

    nonce: int
    counter: int


@dataclass(frozen=True, slots=True)
class Answer:
    """How a proposal was answered: `code` is that of its rejection, empty = it took effect as entry `index`."""

    proposal: Proposal
    index: int
    code: str = ""
    message: str = ""
