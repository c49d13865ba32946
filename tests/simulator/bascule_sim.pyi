"""The module that `crates/sim` builds: the engine over a simulated disk."""

from typing import TypeAlias

Report: TypeAlias = tuple[int, int, int, list[tuple[int, int]], bool]
"""Bytes scanned, batches found, bytes cut, damaged ranges [start, end), whether the log had been closed."""
Content: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value."""
Record: TypeAlias = tuple[int, int, int, bytes | None, bytes | None]
"""Offset, leader epoch, timestamp in ns, key, value."""
ReadFailure: TypeAlias = tuple[str, int, int, str]
"""Kind (damaged, io, closed, out_of_range, served_damage), damaged range, message."""
Answer: TypeAlias = tuple[int, int | None, str]
"""Number of the commit, durable end (exclusive) or none, kind of the error."""

class SimError(Exception):
    """An error; `args` are its kind (full, failed, io, exists, absent, foreign, stale_epoch, …) and its message."""

def plant(number: int) -> None:
    """Activate planted bug `number`, 0 = none; only in the build with planted bugs."""

def read_bomb(frames: int) -> str:
    """Read a batch that declares 1 MiB and decompresses to more. Returns the error, or an empty text."""

class Disk:
    """A simulated disk: files and names, what is durable, and faults. Paths are absolute."""

    def __init__(self, seed: int) -> None: ...
    def set_faults(
        self,
        *,
        read: float = 0.0,
        write: float = 0.0,
        sync: float = 0.0,
        open: float = 0.0,  # noqa: A002
        misdirect: float = 0.0,
        write_back: float = 0.0,
        no_descriptors: bool = False,
        space: int | None = None,
    ) -> None:
        """Set all faults: probabilities per operation; `space`: bytes by which files may still grow."""
    def set_now(self, now_ns: int) -> None: ...
    def stop_after(self, operations: int) -> None:
        """Cut the power after so many more operations: then all operations fail until `crash` or `restart`."""
    def is_stopped(self) -> bool: ...
    def crash(self, keep: float, tear: float, noise: float, keep_names: float) -> None:
        """A power cut: each unsynced page, and each change of a name, is kept, torn (with noise) or lost."""
    def restart(self) -> None:
        """End all processes; the page cache stays."""
    def fork(self) -> Disk:
        """An independent copy."""
    def digest(self) -> int:
        """Digest of all operations and their outcomes so far."""
    def counts(self) -> list[tuple[str, int]]: ...
    def paths(self) -> list[str]: ...
    def read(self, path: str, *, durable: bool = False) -> bytes: ...
    def damage(self, path: str, position: int, bytes: bytes) -> None: ...  # noqa: A002
    def truncate(self, path: str, len: int) -> None: ...  # noqa: A002
    def make_directory(self, path: str) -> None:
        """Create a directory under the root, durably."""
    def misdirected(self) -> list[tuple[str, int, int]]:
        """Pages that a sync wrote to a wrong position: path, intended position, actual position."""

class Store:
    """One run of one process; all work happens in `step` and in the calls of its logs."""

    def __init__(self, disk: Disk, journal: tuple[int, int, int, int] | None = None) -> None:
        """`journal`: dirty segments above which it is used, bytes of one of its files, files, rounds until segments
        are synced."""
    def create(
        self,
        path: str,
        incarnation: int,
        partition: int,
        *,
        memory: bool,
        segment_bytes: int,
        segment_age_ns: int,
        preallocate_bytes: int,
    ) -> Log: ...
    def open(
        self,
        path: str,
        incarnation: int,
        partition: int,
        *,
        memory: bool,
        segment_bytes: int,
        segment_age_ns: int,
        preallocate_bytes: int,
    ) -> tuple[Log, Report]: ...
    def step(self) -> bool: ...
    def journal_losses(self) -> list[tuple[str, int]]:
        """Path and position of acknowledged data of the journal that is missing or damaged."""

    def failure(self) -> str | None: ...
    def end(self) -> None: ...

class Log:
    """One partition."""

    def append(
        self,
        epoch: int,
        now_ns: int,
        records: list[Content],
        *,
        codec: int = 0,
        producer: tuple[int, int, int] | None = None,
    ) -> tuple[int, int, int]:
        """Append one batch; offset of the first record, offset after the last, timestamp of the first."""
    def commit(self) -> int: ...
    def answers(self) -> list[Answer]: ...
    def find_duplicate(self, producer: tuple[int, int, int], count: int, now_ns: int) -> tuple[str, int]: ...
    def set_high_watermark(self, offset: int) -> None: ...
    def ends(self) -> tuple[int, int, int, int]:
        """Log start, log end, durable end, high watermark."""
    def segment_count(self) -> int: ...
    def epochs(self) -> list[tuple[int, int]]: ...
    def offsets_at(self, timestamp: int) -> tuple[int, int]:
        """First offset at or after, last at or before; -1 none, -2 the read failed."""
    def read(self, start: int, until: int, max_bytes: int) -> tuple[list[Record], int, ReadFailure | None]: ...
    def maintain(self, age_ns: int, bytes: int, messages: int, now_ns: int, min_age_ns: int) -> int: ...  # noqa: A002
    def trim(self, before: int, now_ns: int) -> int: ...
    def compact(self, tombstone_grace_ns: int, map_bytes: int, now_ns: int) -> bool:
        """Request a compaction, which a later step runs; false = none is due."""
    def removed(self) -> list[int]:
        """Records removed by each compaction that ended since the last call."""
    def checkpoint(self) -> None: ...
    def set_options(self, *, memory: bool, segment_bytes: int, segment_age_ns: int, preallocate_bytes: int) -> None: ...
    def link_at(self, offset: int) -> int | None:
        """The link at an offset; none: no batch begins or ends there, or it is not stored."""
    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The last leader epoch at or below `epoch` (0: none), and the offset where its records end (exclusive)."""
    def batches(self, offset: int) -> bytes:
        """The stored batches from a boundary up to the log end, committed or not."""
    def append_verbatim(self, batches: bytes, now_ns: int) -> tuple[int, int]:
        """Append stored batches as they are; offset of the first record, offset after the last."""
    def truncate(self, to: int, epoch: int) -> None:
        """End the log at `to`. After an error other than a refusal (no_boundary, committed) it is closed."""
    def reset_at(self, leader: Log, offset: int) -> None:
        """Empty the log and begin at a boundary of `leader` with the state of that one. After an error it is closed."""
    def close(self) -> None: ...
    def delete(self) -> None: ...
    def abandon(self) -> None:
        """Drop the store like a crash."""
