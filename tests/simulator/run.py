"""Runs seeds."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field

from tests.simulator.model import ViolationError
from tests.simulator.world import World


@dataclass
class Outcome:
    """The result of one seed."""

    seed: int
    events: int
    operations: int
    simulated_ns: int
    """Simulated time."""
    digest: str
    violation: str = ""
    """Code and message, or empty."""
    reached: Counter[str] = field(default_factory=Counter[str])
    trace: list[str] = field(default_factory=list[str])


def run_seed(seed: int, *, traced: bool = False, follower: bool = False) -> Outcome:
    """Simulate one seed. An error of the simulator also counts as a violation.

    `follower`: its logs also do what a follower does.
    """
    world = World(seed, traced=traced, follower=follower)
    violation = ""
    try:
        world.run()
    except ViolationError as error:
        violation = str(error)
    except Exception as error:  # noqa: BLE001 -- the seed must be reported for every error
        violation = f"simulator: {error!r} at {traceback.extract_tb(error.__traceback__)[-1]}"
    world.note(f"violation {violation}")
    operations = dict(world.disk.counts())["operations"]
    return Outcome(
        seed,
        world.events,
        operations,
        world.elapsed,
        world.digest(),
        violation,
        world.reached.counts,
        world.trace or [],
    )
