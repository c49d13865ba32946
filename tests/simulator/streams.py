"""Random streams, one for each part of a simulation, so that a change in one part does not affect the others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

Choice = TypeVar("Choice")


class Stream(random.Random):
    """One stream of a seed, by name."""

    def __init__(self, seed: int, name: str) -> None:
        super().__init__(f"{seed}/{name}")

    def maybe(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability

    def pick(self, weighted: Sequence[tuple[Choice, float]]) -> Choice:
        """One of the choices by weight."""
        names = [name for name, _ in weighted]
        return self.choices(names, [weight for _, weight in weighted])[0]


class Streams:
    """The streams of a seed."""

    def __init__(self, seed: int) -> None:
        self.plan = Stream(seed, "plan")
        self.schedule = Stream(seed, "schedule")
        self.content = Stream(seed, "content")
        self.crash = Stream(seed, "crash")
        self.damage = Stream(seed, "damage")
        self.checks = Stream(seed, "checks")
        self.keys = Stream(seed, "keys")
        self.strays = Stream(seed, "strays")
        self.follow = Stream(seed, "follow")
