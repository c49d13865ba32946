"""Plans and stores new positions of a group."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bascule.client import Client, PartitionDetails, Start, group_cursor
from bascule.client.tooling import no_partition
from bascule.errors import StateError, UsageError

__all__ = ["Move", "move", "planned"]


@dataclass(frozen=True, slots=True)
class Move:
    """One position change, made or (with `--dry-run`) proposed. Both values are the next offset to be read."""

    group: str
    stream: str
    partition: int
    before: int | None
    """`None` = there was no position."""
    after: int | None
    """`None` = the position is removed: one before offset 0 cannot be stored."""
    dry_run: bool = False


def planned(client: Client, group: str, streams: Sequence[str], partitions: Sequence[int], target: Start) -> list[Move]:
    """The changes, ordered by stream and partition; nothing is stored yet.

    Args:
        client: connected.
        group: id of the group.
        streams: names.
        partitions: numbers; none = all.
        target: `earliest`, `latest`, an offset, or a time: the first record at or after it.

    Raises:
        StateError: `stream_not_found`, `partition_not_found`; `failed_precondition`: a partition is not open.
        UsageError: `invalid_argument`: the offset is not in a partition.
    """
    moves: list[Move] = []
    for name in streams:
        known = {item.number: item for item in client.describe_stream(name).partitions}
        for number in sorted(set(partitions)) or sorted(known):
            if number not in known:
                raise no_partition(name, number, len(known))
            after = _offset(client, name, known[number], target)
            stored = client.fetch_cursor(group_cursor(group), name, partition=number)
            moves.append(Move(group, name, number, None if stored is None else stored + 1, after or None))
    return moves


def move(client: Client, step: Move) -> None:
    """Store or remove the position."""
    offset = None if step.after is None else step.after - 1
    client.set_cursor(group_cursor(step.group), step.stream, offset, partition=step.partition)


def _offset(client: Client, stream: str, partition: PartitionDetails, target: Start) -> int:
    start, end = partition.log_start, partition.high_watermark
    if start is None or end is None:
        text = f'partition {partition.number} of stream "{stream}" is not open: resume it with bascule stream resume'
        raise StateError("failed_precondition", text, {"stream": stream, "partition": partition.number})
    if target == "earliest":
        return start
    if isinstance(target, datetime):
        return _first_since(client, stream, partition.number, target, end)
    if isinstance(target, int):
        if not start <= target <= end:
            place = f'partition {partition.number} of stream "{stream}"'
            text = f"offset {target} is not in {place}: {start} to {end} are; earliest and latest always fit"
            raise UsageError("invalid_argument", text, {"offset": target, "start": start, "end": end})
        return target
    return end


def _first_since(client: Client, stream: str, partition: int, time: datetime, end: int) -> int:
    """Offset of the first record at or after `time`; the end if there is none."""
    with client.subscribe(stream, partition=partition, start=time, stop="latest", batch_records=1) as subscription:
        for batch in subscription:
            return batch.offsets[0]
    return end
