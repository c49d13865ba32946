"""The plan of a seed: partitions, settings, faults. The ranges are those of reliability §5.3."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypedDict

from tests.simulator.streams import Stream

SECOND = 1_000_000_000


class Arguments(TypedDict):
    """Keyword arguments of `Store.create` and `Store.open`."""

    memory: bool
    segment_bytes: int
    segment_age_ns: int
    preallocate_bytes: int


@dataclass(frozen=True)
class Settings:
    """Options of the log of one partition."""

    memory: bool
    segment_bytes: int
    segment_age_ns: int
    preallocate_bytes: int

    def arguments(self) -> Arguments:
        """Arguments of `Store.create` and `Store.open`."""
        return {
            "memory": self.memory,
            "segment_bytes": self.segment_bytes,
            "segment_age_ns": self.segment_age_ns,
            "preallocate_bytes": self.preallocate_bytes,
        }


@dataclass(frozen=True)
class Plan:
    """The plan of one seed."""

    partitions: list[Settings]
    journal: tuple[int, int, int, int] | None
    """Dirty segments above which the journal is used, bytes of a file, files, rounds until segments are synced."""
    lives: int
    steps: int
    """Maximum number of operations of one run."""
    read: float
    write: float
    sync: float
    open: float
    misdirect: float
    write_back: float
    stops: float
    """Probability of a power cut during a run, at some operation."""
    rot: float
    """Probability of damage between two runs."""
    full: bool
    """Whether space and descriptors are exhausted at times."""
    maintenance: bool
    """Whether retention is on."""
    compaction: float
    """Probability of a compaction or a trim after an operation."""
    strays: float
    """Probability that a page is overwritten by another one between two runs."""
    follow: float = 0.0
    """Probability of a follower's work after an operation."""
    faults: bool = field(default=False)
    """Whether there are faults other than power cuts."""


def draw(stream: Stream) -> Plan:
    """The plan of a seed. One in four has only crashes as faults."""
    partitions = [
        Settings(
            memory=stream.maybe(0.15),
            segment_bytes=stream.choice([1, 600, 2_000, 6_000, 30_000, 1 << 20]),
            segment_age_ns=stream.choice([0, 0, 0, 5 * SECOND]),
            preallocate_bytes=stream.choice([0, 512, 4_096, 16_384]),
        )
        for _ in range(stream.choice([1, 1, 2, 3]))
    ]
    faults = stream.maybe(0.75)
    rare = 1.0 if faults else 0.0

    rot = stream.maybe(0.3) and faults

    journal = (stream.choice([1, 1, 2]), stream.choice([1_024, 8_192, 65_536]), stream.choice([2, 3, 4]))
    journaled = stream.maybe(0.4)

    def sometimes(probability: float, most: float) -> float:
        return rare * stream.uniform(0, most) if stream.maybe(probability) else 0.0

    plan = Plan(
        partitions=partitions,
        journal=None,
        lives=stream.randint(2, 6),
        steps=stream.randint(5, 60),
        # An unreadable slot of the checkpoint counts as absent; together with damage that may cost the tail.
        read=0.0 if rot else sometimes(0.4, 0.1),
        write=sometimes(0.2, 0.03),
        sync=sometimes(0.3, 0.1),
        open=sometimes(0.2, 0.05),
        misdirect=sometimes(0.1, 0.1),
        write_back=stream.choice([0.0, 0.1, 0.5]),
        stops=stream.choice([0.0, 0.5, 0.9]),
        rot=stream.uniform(0, 1) if rot else 0.0,
        full=faults and stream.maybe(0.3),
        maintenance=stream.maybe(0.5),
        compaction=0.0,
        strays=0.0,
        faults=faults,
    )
    # Drawn last, so that added options do not change the rest of existing plans.
    lazy_rounds = stream.choice([1, 3, 16, 1_000])
    return replace(
        plan,
        journal=(*journal, lazy_rounds) if journaled else None,
        compaction=stream.uniform(0, 0.3) if stream.maybe(0.4) else 0.0,
        strays=stream.uniform(0, 0.5) if rot and stream.maybe(0.5) else 0.0,
    )
