"""A data plane in memory: records its calls, orders entries, and answers like the real one."""

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from bascule._seam import Answer, Barrier, Committed, Event, Failed, Rejected, Reply, Request
from bascule.control.dataplane import Position
from bascule.errors import error


class Disk:
    """What survives the plane: the metadata log and the partitions' files."""

    def __init__(self) -> None:
        self.entries: dict[int, bytes] = {}
        self.snapshot: tuple[int, bytes] = (0, b"")
        self.last = 0
        self.files: set[int] = set()
        self.records: dict[int, list[bytes]] = {}


class FakePlane:
    """Safe to call from several threads, like the real one. `broken`: codes that opening an incarnation gives;
    `unreadable`: incarnations whose spec cannot be read; `exploding`: raised by every step of a pass;
    `full`: no snapshot can be stored."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.events: list[Event] = []
        self.calls: list[tuple[str, Any]] = []
        self.replies: dict[int, tuple[int, str, bytes]] = {}
        self.errors: dict[int, tuple[str | None, dict[str, Any]]] = {}
        self.iggy_statuses: dict[int, int | None] = {}
        self.opened: dict[int, dict[str, Any]] = {}
        self.led: dict[int, int] = {}
        self.view: dict[tuple[str, str], dict[str, Any]] = {}
        self.version = 0
        self.broken: dict[int, str] = {}
        self.unreadable: set[int] = set()
        self.exploding: Exception | None = None
        self.full = False
        self.group_versions: dict[str, int] = {}
        self.silent = False
        self.full = False
        self.master: str | None = "a"
        self.refusing = ""
        self.positions: dict[int, tuple[int, int, int, int, int, int, int, int]] = {}
        self.segments: dict[int, list[int]] = {}
        self.damaged: dict[int, list[dict[str, Any]]] = {}
        self.denied: dict[int, str] = {}
        self.gone: set[int] = set()
        self.holds: dict[tuple[str, str, str], int] = {}
        self.queries: dict[tuple[str, str, str], list[tuple[int, ...]]] = {}
        self.lock = threading.RLock()

    def push(self, event: Event) -> None:
        with self.lock:
            self.events.append(event)
        os.eventfd_write(self.fd, 1)

    def request(self, request_id: int, method: str, body: bytes, timeout_ms: int = -1) -> None:
        self.push(Request(request_id, method, body, "127.0.0.1:5", None, None if timeout_ms < 0 else timeout_ms))

    def _explode(self) -> None:
        if self.exploding is not None:
            raise self.exploding

    def named(self, name: str) -> list[Any]:
        return [argument for call, argument in self.calls if call == name]

    # -- the data plane ---------------------------------------------------------------------------------------------
    def fileno(self) -> int:
        return self.fd

    def poll(self, max_events: int) -> list[Event]:
        with self.lock:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.fd)
            taken, self.events = self.events[:max_events], self.events[max_events:]
            return taken

    def is_awaited(self, request_id: int) -> bool:
        return request_id not in self.gone

    def respond(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, Rejected):
                reply.message.encode()  # as the native side does, for all before any
        for reply in replies:
            if isinstance(reply, Answer):
                self.replies[reply.request_id] = (0, "", reply.body)
            else:
                self.replies[reply.request_id] = (reply.status, reply.message, b"")
                self.errors[reply.request_id] = (reply.code, dict(reply.details))
                self.iggy_statuses[reply.request_id] = reply.iggy_status

    def metadata_open(self) -> tuple[int, bytes, int]:
        index, snapshot = self.disk.snapshot
        for number in sorted(self.disk.entries):
            if number > index:
                self.push(Committed(number, self.disk.entries[number], None))
        return index, snapshot, self.disk.last

    def propose(self, entries: Sequence[tuple[int, bytes]], timeout_ms: int) -> None:
        self.calls.append(("propose", (len(entries), timeout_ms)))
        if self.silent:
            return
        for proposal_id, entry in entries:
            if self.refusing:
                self.push(Failed(proposal_id, self.refusing, "refused"))
                continue
            with self.lock:
                self.disk.last += 1
                self.disk.entries[self.disk.last] = entry
                self.push(Committed(self.disk.last, entry, proposal_id))

    def set_sinks(self, version: int, changes: dict[str, Any]) -> None:
        self.calls.append(("set_sinks", (version, changes)))

    def confirm_stage(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"missing": [], "from_offsets": {str(item["incarnation"]): 0 for item in request["targets"]}}

    def staged(self) -> list[dict[str, Any]]:
        return []

    def set_query(
        self, query: str, stream: tuple[str, str], positions: Sequence[tuple[int, int, int]], hold_ms: int
    ) -> None:
        self.calls.append(("set_query", (query, *stream, [tuple(item) for item in positions], hold_ms)))
        self.holds[query, *stream] = hold_ms
        if positions:
            self.queries[query, *stream] = [tuple(item) for item in positions]
        else:
            self.queries.pop((query, *stream), None)

    def lags(self) -> list[dict[str, Any]]:
        size = {"records": 5, "bytes": 500, "nanos": 2_500_000_000}
        return [
            {
                "kind": "query", "reader": query, "namespace": namespace, "stream": stream, "partition": number,
                "incarnation": incarnation, "next": following, "age_ns": 7_000_000, "lag": size,
                "hold_left_ns": self.holds[query, namespace, stream] * 1_000_000 or None,
            }
            for (query, namespace, stream), positions in self.queries.items()
            for number, incarnation, following in positions
        ]  # fmt: skip

    def read_barrier(self, barrier_id: int) -> None:
        self.calls.append(("barrier", barrier_id))
        if not self.silent:
            self.push(Barrier(barrier_id, self.disk.last))

    def save_snapshot(self, index: int, snapshot: bytes) -> None:
        if self.full:
            raise error("disk_full", "no room")
        self.disk.snapshot = (index, snapshot)
        self.disk.entries = {number: entry for number, entry in self.disk.entries.items() if number > index}

    def new_data_key(self, number: int) -> tuple[str, str]:
        if self.master is None:
            raise error("encryption_unavailable", "invalid AES key size 5")
        return self.master, f"wrapped-{number}"

    def open(self, partitions: bytes) -> list[tuple[int, str, str]]:
        specs = json.loads(partitions)
        self.calls.append(("open", [item["incarnation"] for item in specs]))
        self._explode()
        failures: list[tuple[int, str, str]] = []
        if self.unreadable & {spec["incarnation"] for spec in specs}:
            raise error("invalid_argument", "partition specs: invalid value")
        for spec in specs:
            if spec["incarnation"] in self.broken:
                failures.append((spec["incarnation"], self.broken[spec["incarnation"]], "no room"))
            else:
                self.opened[spec["incarnation"]] = spec
                self.disk.files.add(spec["incarnation"])
        return failures

    def lead(self, partitions: Sequence[tuple[int, int]]) -> None:
        self.calls.append(("lead", list(partitions)))
        for incarnation, epoch in partitions:
            assert incarnation in self.opened
            self.led[incarnation] = epoch

    def close_partitions(self, incarnations: Sequence[int]) -> None:
        self.calls.append(("close", list(incarnations)))
        for item in incarnations:
            self.opened.pop(item, None)
            self.led.pop(item, None)

    def delete_partitions(self, incarnations: Sequence[int], *, at_once: bool = False) -> None:
        self.calls.append(("delete at once" if at_once else "delete", list(incarnations)))
        for item in incarnations:
            self.opened.pop(item, None)
            self.led.pop(item, None)
            self.disk.files.discard(item)

    def keep_partitions(self, incarnations: Sequence[int]) -> None:
        self.calls.append(("keep", list(incarnations)))
        for item in incarnations:
            self.opened.pop(item, None)
            self.led.pop(item, None)

    def is_full(self) -> bool:
        return self.full

    def publish_view(self, version: int, changes: bytes) -> None:
        if self.exploding is not None:
            self.calls.append(("publish_view_failed", version))
        self._explode()
        assert version > self.version
        self.version = version
        document = json.loads(changes)
        for spec in document["streams"]:
            self.view[spec["namespace"], spec["name"]] = spec
        for namespace, name in document["removed"]:
            self.view.pop((namespace, name), None)

    def set_group_versions(self, versions: Sequence[tuple[str, int]]) -> None:
        self.group_versions.update(versions)

    def append(self, incarnation: int, values: Sequence[bytes], timeout_ms: int) -> int:
        assert timeout_ms > 0
        if incarnation not in self.led:
            raise error("unavailable", "not led here")
        records = self.disk.records.setdefault(incarnation, [])
        records.extend(values)
        return len(records) - len(values)

    def tail(self, incarnation: int, count: int) -> list[bytes]:
        return self.disk.records.get(incarnation, [])[::-1][:count]

    def status(self, incarnations: Sequence[int]) -> list[Position]:
        nothing = (0, 0, 0, 0, 0, 0, 0, 0)
        return [(item, *self.positions.get(item, nothing), 0, True) for item in incarnations if item in self.opened]

    def damage(self, incarnations: Sequence[int]) -> list[dict[str, Any]]:
        found = [item for item in incarnations if item in self.opened]
        return [
            {"incarnation": item, "scrubbed_ns": 5, "sealed_segments": 1, "damaged": self.damaged.get(item, [])}
            for item in found
        ]

    def segment_starts(self, incarnation: int) -> list[int]:
        return self.segments.get(incarnation, [0]) if incarnation in self.opened else []

    def checks(self) -> list[dict[str, str]]:
        return [{"name": "nats", "outcome": "warning", "reason": "ingest waits for NATS"}]

    def nats_partitions(self, incarnations: Sequence[int]) -> list[dict[str, Any]]:
        return [
            {
                "incarnation": item,
                "subscription": "denied" if item in self.denied else "subscribed",
                "text": self.denied.get(item, ""),
                "not_stored": {"overload": 0, "paused": 2, "readonly": 1},
            }
            for item in incarnations
        ]

    def statistics(self) -> dict[str, int]:
        return {"nats_gaps": 3}


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Wait until `condition()` holds."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - the condition has no event to wait for
            await asyncio.sleep(0.001)
