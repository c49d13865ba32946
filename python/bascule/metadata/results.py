"""The result of applying a command, for its proposer."""

from dataclasses import dataclass
from typing import TypeAlias

from bascule.metadata.rejection import Rejection


@dataclass(frozen=True, slots=True)
class Applied:
    """The command took effect as entry `index`."""

    index: int


Result: TypeAlias = Applied | Rejection
