"""Brokers and one partition of three replicas, for tests of replication."""

from dataclasses import replace

from bascule.metadata import Broker, Partition
from bascule.metadata.replicas import Position, Reported, Run

ABC = ("a", "b", "c")


def brokers(**runs: Run) -> dict[str, Broker]:
    """Brokers a, b and c with boot epochs 1, 2 and 3, confirmed unless `runs` says otherwise."""
    return {
        name: Broker(name, "h", 1, number, 1, nonce=number, confirmed=number, run=runs.get(name, "confirmed"))
        for number, name in enumerate(ABC, 1)
    }


def led(leader: str = "a", **changes: object) -> Partition:
    """A partition of factor 3 and min-in-sync 2 of leader epoch 10, everybody in sync, with these changes."""
    partition = Partition(0, 10 << 16, leader, 10, 10, ABC, ABC, eligible=ABC, min_isr=2)
    return replace(partition, **changes)  # type: ignore[arg-type]  # names of fields, as the caller wrote them


def reports(**positions: tuple[int, int]) -> tuple[Reported, ...]:
    """Positions (epoch, end) reported by the present runs of `brokers`."""
    return tuple(
        Reported(name, ABC.index(name) + 1, Position(epoch, end, 0)) for name, (epoch, end) in positions.items()
    )
