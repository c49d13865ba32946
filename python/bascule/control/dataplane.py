"""The data plane as the controller sees it: the part of `bascule.engine` that it drives.

Tests put a plane of their own in its place. What each method promises is written in `_native.pyi`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from bascule._seam import Event, Reply

Position: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, bool]
"""(incarnation, log start, high watermark, log end, bytes, first received ns, last received ns, subscribers, messages
from NATS that were not stored, what of sinks needs it open, whether clients may read it here); ends exclusive.
"""


class PartitionStatus(NamedTuple):
    """Where an open partition stands; ends are exclusive, times ns since 1970, 0 = never received in this life;
    `subscribers` are readers that wait for new records, `nats_dropped` messages from NATS that were not stored, `held`
    what of sinks needs it open: staged pieces, calls that stage, epochs to be linked. `may_read`: this broker leads
    it under its lease, or follows it in the ISR, so that clients may read it here.
    """

    log_start: int
    high_watermark: int
    log_end: int
    size_bytes: int
    first_received_ns: int
    last_received_ns: int
    subscribers: int
    nats_dropped: int = 0
    held: int = 0
    may_read: bool = True


class DataPlane(Protocol):
    """One broker's data plane."""

    def fileno(self) -> int:
        """A descriptor that becomes readable when events wait."""
        ...

    def poll(self, max_events: int) -> list[Event]:
        """Take up to `max_events` waiting events; never blocks."""
        ...

    def is_awaited(self, request_id: int) -> bool:
        """Whether the caller of a request still waits for its answer."""
        ...

    def respond(self, replies: Sequence[Reply]) -> None:
        """Answer requests."""
        ...

    def metadata_open(self) -> tuple[int, bytes, int]:
        """Index and bytes of the newest snapshot, or 0 and b"", and the index of the last entry. Blocks."""
        ...

    def propose(self, entries: Sequence[tuple[int, bytes]], timeout_ms: int) -> None:
        """Append entries, each (proposal id, bytes)."""
        ...

    def read_barrier(self, barrier_id: int) -> None:
        """Ask for a `barrier` event."""
        ...

    def save_snapshot(self, index: int, snapshot: bytes) -> None:
        """Store a snapshot of entries 1…index, durably. Blocks."""
        ...

    def new_data_key(self, number: int) -> tuple[str, str]:
        """A new data key, wrapped: (id of the master key, base64)."""
        ...

    def open(self, partitions: bytes) -> list[tuple[int, str, str]]:
        """Open or create partitions; (incarnation, code, sentence) of those that failed. Blocks."""
        ...

    def lead(self, partitions: Sequence[tuple[int, int]]) -> None:
        """Accept appends: (incarnation, leader epoch)."""
        ...

    def close_partitions(self, incarnations: Sequence[int]) -> None:
        """Stop and close; files stay."""
        ...

    def delete_partitions(self, incarnations: Sequence[int], *, at_once: bool = False) -> None:
        """Stop, close, delete; with `at_once` without the grace period."""
        ...

    def keep_partitions(self, incarnations: Sequence[int]) -> None:
        """Stop, close, rename the files: nothing removes them but a person."""
        ...

    def is_full(self) -> bool:
        """Whether writes are refused for want of space."""
        ...

    def publish_view(self, version: int, changes: bytes) -> None:
        """Swap the view."""
        ...

    def set_group_versions(self, versions: Sequence[tuple[str, int]]) -> None:
        """Wake members that wait for another version of these groups; 0 = the group is gone."""
        ...

    def append(self, incarnation: int, values: Sequence[bytes], timeout_ms: int) -> int:
        """Append records; the offset of the first. Blocks until they are committed."""
        ...

    def tail(self, incarnation: int, count: int) -> list[bytes]:
        """The values of the last `count` committed records, the newest first. Blocks."""
        ...

    def status(self, incarnations: Sequence[int]) -> list[Position]:
        """Positions of those that are open."""
        ...

    def damage(self, incarnations: Sequence[int]) -> list[dict[str, Any]]:
        """Of those that are open: `incarnation`, `scrubbed_ns`, `sealed_segments`, `damaged` ranges."""
        ...

    def segment_starts(self, incarnation: int) -> list[int]:
        """First offset of each segment of a partition, ascending, the active one last; empty: it is not open here."""
        ...

    def checks(self) -> list[dict[str, str]]:
        """What the broker needs: `name`, `outcome`, `reason`. Blocks."""
        ...

    def nats_partitions(self, incarnations: Sequence[int]) -> list[dict[str, Any]]:
        """How partitions listen on NATS: `incarnation`, `subscription`, `text` and `not_stored`."""
        ...

    def statistics(self) -> dict[str, int]:
        """Counters and gauges by name (`specs/metrics.toml`)."""
        ...
