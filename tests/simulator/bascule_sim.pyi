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
    """A refusal; `args` are its kind (full, failed, io, exists, absent, foreign, stale_epoch, …) and its message."""

def plant(number: int) -> None:
    """Make planted bug `number` the one that is alive, 0 for none; only in the build that has them."""

def read_bomb(frames: int) -> str:
    """Read a batch that promises 1 MiB and unfolds to so many; why it was refused, or an empty text."""

class Disk:
    """Files and names, what of them is durable, and what goes wrong. Paths are absolute."""

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
        """Set every fault anew: probabilities per operation; `space` in bytes by which files may still grow."""
    def set_now(self, now_ns: int) -> None: ...
    def stop_after(self, operations: int) -> None:
        """The power goes after so many more operations: from then on each fails, until `crash` or `restart`."""
    def is_stopped(self) -> bool: ...
    def crash(self, keep: float, tear: float, noise: float, keep_names: float) -> None:
        """Lose power: each unsynced page is kept, torn (with noise in a sector) or lost; so are changes of names."""
    def restart(self) -> None:
        """Every process ends; memory stays."""
    def fork(self) -> Disk:
        """A copy that goes its own way."""
    def digest(self) -> int:
        """Of all operations and their outcomes so far."""
    def counts(self) -> list[tuple[str, int]]: ...
    def paths(self) -> list[str]: ...
    def read(self, path: str, *, durable: bool = False) -> bytes: ...
    def damage(self, path: str, position: int, bytes: bytes) -> None: ...  # noqa: A002
    def truncate(self, path: str, len: int) -> None: ...  # noqa: A002
    def make_directory(self, path: str) -> None:
        """Make a directory under the root, durably."""
    def misdirected(self) -> list[tuple[str, int, int]]:
        """Pages that a sync put in the wrong place: path, position meant, position hit."""

class Store:
    """One life of one process; everything it does happens in `step` and in the calls of its logs."""

    def __init__(self, disk: Disk, journal: tuple[int, int, int, int] | None = None) -> None:
        """`journal`: dirty segments from which on it is used, bytes of one of its files, files, rounds until segments
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
        """Path and position of what of the journal is missing or damaged, though it was acknowledged."""

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
        """Ask for a compaction, done in a later step; false when none is due."""
    def removed(self) -> list[int]:
        """Records removed by each compaction that ended since the last call."""
    def checkpoint(self) -> None: ...
    def set_options(self, *, memory: bool, segment_bytes: int, segment_age_ns: int, preallocate_bytes: int) -> None: ...
    def close(self) -> None: ...
    def delete(self) -> None: ...
    def abandon(self) -> None:
        """Drop it as a crash does."""
