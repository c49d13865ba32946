"""The seam, from Python's side: the only importer of `bascule._native`. Decides nothing.

`Engine` forwards to the data plane and turns its failures into the exceptions of `bascule.errors`; what each method
promises is written once, in `_native.pyi`. `Client`, `Outgoing`, `Spread`, `Partitioner`, `Subscription`,
`Bell` and `RecordBatch` are the SDK's native core.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from bascule._native import (
    BUILD_PROFILE,
    Bell,
    Client,
    NativeError,
    Outgoing,
    Partitioner,
    RecordBatch,
    Spread,
    Subscription,
    __version__,
    access_allows,
    check_rows,
    id_flaw,
    log_inspect,
    log_metadata,
    log_repair,
    log_verify,
    name_flaw,
)
from bascule._native import Engine as _NativeEngine
from bascule._seam import EVENTS, Answer, Event, Reply
from bascule.errors import from_native

__all__ = [
    "BUILD_PROFILE",
    "Bell",
    "Client",
    "Engine",
    "Outgoing",
    "Partitioner",
    "RecordBatch",
    "Spread",
    "Subscription",
    "__version__",
    "check_rows",
    "decide_access",
    "id_flaw",
    "inspect_log",
    "name_flaw",
    "native_errors",
    "read_metadata",
    "repair_log",
    "verify_log",
]

Position = tuple[int, int, int, int, int, int, int, int, int, int, bool]
"""(incarnation, log start, high watermark, log end, bytes, first received ns, last received ns, subscribers, messages
from NATS that were not stored, what of sinks needs it open)."""


@contextmanager
def native_errors() -> Generator[None]:
    """Turn a typed failure of the data plane into the exception of its code, which says all that the failure does."""
    try:
        yield
    except NativeError as failure:
        raise from_native(failure) from None


def decide_access(table: Mapping[str, Any], questions: Sequence[tuple[str, str, str]]) -> list[bool]:
    """What the data plane decides by a table of rights: questions are (client, action, resource)."""
    with native_errors():
        return access_allows(json.dumps(table).encode(), questions)


def verify_log(path: str) -> dict[str, Any]:
    """Read and check a data directory, or one log of it, that no broker uses; the document of `seam.md`. Blocks.

    Raises:
        StateError: `data_directory_locked` while a broker uses it; `not_found` when nothing is there.
    """
    with native_errors():
        return json.loads(log_verify(path))


def inspect_log(path: str, start: int, most: int) -> dict[str, Any]:
    """What lies in it; of a single log at most `most` batches, those that end behind offset `start`. Blocks.

    Raises:
        StateError: as `verify_log`.
    """
    with native_errors():
        return json.loads(log_inspect(path, start, most))


def read_metadata(path: str) -> tuple[int, bytes, list[bytes], str]:
    """Metadata of the data directory that it is or lies in. Changes nothing. Blocks.

    Returns:
        (index and state of the newest snapshot, 0 and empty = none; the entries after it, in order; why later ones
        cannot be read, empty = all were).

    Raises:
        StateError: as `verify_log`.
    """
    with native_errors():
        return log_metadata(path)


def repair_log(path: str, request: Mapping[str, Any], now_ns: int) -> dict[str, Any]:
    """Repair what can be repaired: `dry_run`, `from` (a backup), `cut_at` (an offset). Blocks.

    Raises:
        StateError: as `verify_log`.
        UsageError: `invalid_argument`.
    """
    with native_errors():
        return json.loads(log_repair(path, json.dumps(request).encode(), now_ns))


class Engine:
    """The data plane of one broker: one per process and data directory. Safe to use from several threads."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Lock the data directory and start the runtime; serves nothing yet.

        Args:
            settings: the document of `specs/formats/seam.md`: data_dir, cluster_id, broker_id, runtime_threads,
                namespace, limits, encryption.

        Raises:
            StateError: `data_directory_locked`, `data_directory_foreign`, `data_directory_newer` or
                `data_directory_unusable`.
            UsageError: `configuration_invalid`: a file of a master key cannot be used.
        """
        with native_errors():
            self._native: Final = _NativeEngine(json.dumps(settings).encode())

    # -- life

    def bind(self, host: str, port: int) -> int:
        """Reserve the port; returns it. Connections are refused until `listen`. Raises `address_in_use` or
        `address_unusable`.
        """
        with native_errors():
            return self._native.bind(host, port)

    def listen(self) -> None:
        """Serve gRPC on the bound port. Raises `address_in_use`: somebody else began to listen there first."""
        with native_errors():
            self._native.listen()

    def serve_http(self, host: str, port: int, settings: Mapping[str, Any]) -> int:
        """Bind and answer probes and metrics; returns the bound port. Raises `address_in_use` or `address_unusable`."""
        with native_errors():
            return self._native.serve_http(host, port, json.dumps(settings).encode())

    def serve_iggy(self, host: str, port: int) -> int:
        """Bind and serve Iggy's clients; returns the bound port. Raises `address_in_use` or `address_unusable`."""
        with native_errors():
            return self._native.serve_iggy(host, port)

    def serve_iggy_quic(self, host: str, port: int) -> int:
        """Bind and serve Iggy's clients over QUIC; returns the bound port. Raises `address_in_use` or
        `address_unusable`.
        """
        with native_errors():
            return self._native.serve_iggy_quic(host, port)

    def serve_iggy_http(self, host: str, port: int, settings: Mapping[str, Any]) -> int:
        """Bind and serve Iggy's clients over HTTP; returns the bound port. Raises `address_in_use` or
        `address_unusable`.
        """
        with native_errors():
            return self._native.serve_iggy_http(host, port, json.dumps(settings).encode())

    def set_stage(self, stage: str) -> None:
        """What the start is doing, for probes."""
        self._native.set_stage(stage)

    def require_nats(self) -> None:
        """From now on the broker is ready only while NATS is connected."""
        self._native.require_nats()

    def load_tls(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Use these certificates from now on; `subject`, `expires_s` and `notes` of what was loaded.

        Raises:
            UsageError: `configuration_invalid`: names the file; what was in use stays in use.
        """
        with native_errors():
            return json.loads(self._native.load_tls(json.dumps(settings).encode()))

    def publish_access(self, table: Mapping[str, Any] | None) -> None:
        """Decide by this table of rights from now on; `None` = all is allowed."""
        with native_errors():
            self._native.publish_access(b"" if table is None else json.dumps(table).encode())

    def set_serving(self, serving: bool) -> None:
        """What health answers; False also refuses new calls."""
        self._native.set_serving(serving)

    def watch(self, settings: Mapping[str, Any]) -> tuple[int, int]:
        """Start the watch over the event loop (`specs/formats/seam.md`); the descriptors that take the number of each
        signal and the interpreter's stack. They are the engine's own: duplicate them.
        """
        with native_errors():
            return self._native.watch(json.dumps(settings).encode())

    def beat(self) -> None:
        """The event loop runs: called about once a second."""
        self._native.beat()

    def set_group_versions(self, versions: Sequence[tuple[str, int]]) -> None:
        """Wake members that wait for another version of these groups; version 0 = the group is gone."""
        self._native.set_group_versions(versions)

    def connect_nats(self, settings: Mapping[str, Any]) -> None:
        """Start connecting to NATS, or reconnect with other settings; progress comes as events."""
        with native_errors():
            self._native.connect_nats(json.dumps(settings).encode())

    def nats_connected(self) -> bool:
        """Whether the connections to NATS are up."""
        return self._native.nats_connected()

    def nats_partitions(self, incarnations: Sequence[int]) -> list[dict[str, Any]]:
        """How partitions listen on NATS: `incarnation`, `subscription`, `text`, `not_stored` (seam.md)."""
        return json.loads(self._native.nats_partitions(incarnations))

    def nats_state(self) -> dict[str, Any]:
        """State of the connections to NATS: `state`, `reason`, `text`, `since_ms`, `connections` (seam.md)."""
        return cast("dict[str, Any]", json.loads(self._native.nats_state()))

    def close(self, drain_ms: int) -> None:
        """Stop, letting calls end for at most `drain_ms`; closes every partition cleanly. Blocks; idempotent."""
        self._native.close(drain_ms)

    # -- events

    def fileno(self) -> int:
        """A descriptor that is readable while events wait."""
        return self._native.fileno()

    def poll(self, max_events: int) -> list[Event]:
        """Take up to `max_events` waiting events; never blocks."""
        return [EVENTS[kind]._make(fields) for kind, fields in self._native.poll(max_events)]

    def is_awaited(self, request_id: int) -> bool:
        """Whether the caller of a request still waits for its answer."""
        return self._native.is_awaited(request_id)

    def respond(self, replies: Sequence[Reply]) -> None:
        """Answer requests."""
        self._native.respond(
            [
                reply
                if isinstance(reply, Answer)
                else (*reply[:4], json.dumps(reply.details).encode(), reply.iggy_status)
                for reply in replies
            ]
        )

    # -- the metadata log

    def metadata_open(self) -> tuple[int, bytes, int]:
        """Index and bytes of the newest snapshot, or 0 and b"", and the index of the last entry; entries after the
        snapshot come as events. Blocks.
        """
        with native_errors():
            return self._native.metadata_open()

    def propose(self, entries: Sequence[tuple[int, bytes]], timeout_ms: int) -> None:
        """Append entries, each (proposal id, bytes); outcomes come as events."""
        with native_errors():
            self._native.propose(entries, timeout_ms)

    def read_barrier(self, barrier_id: int) -> None:
        """Ask for a `barrier` event behind everything committed."""
        with native_errors():
            self._native.read_barrier(barrier_id)

    def save_snapshot(self, index: int, snapshot: bytes) -> None:
        """Store a snapshot of entries 1…index, durably. Blocks."""
        with native_errors():
            self._native.save_snapshot(index, snapshot)

    # -- the cluster

    def cluster_run(self) -> dict[str, Any]:
        """What the registration of this run has to say: `nonce`, `stored`, `directory_id`, `cluster_id`, `raft_id`,
        `kernel_boot_id`, `mount_id` (seam.md).
        """
        with native_errors():
            return json.loads(self._native.cluster_run())

    def store_boot_epoch(self, boot_epoch: int) -> None:
        """Store the boot epoch of this run's registration, durably. Blocks."""
        with native_errors():
            self._native.store_boot_epoch(boot_epoch)

    def begin_run(self) -> None:
        """Begin another run of this broker, which has yet to register: the present one is fenced. Blocks."""
        with native_errors():
            self._native.begin_run()

    def stop_leading(self) -> None:
        """Take no more records as the leader of streams with several replicas, for ever; waits at most 250 ms until
        followers have what is there. Blocks.
        """
        with native_errors():
            self._native.stop_leading()

    def watch_brokers(self, term: int, ended: Sequence[tuple[int, int]]) -> None:
        """Watch the brokers as the controller of this term, until it ends: `expired` events report who is silent,
        `stopped` events who has stopped ended roles. `ended`: those of the state, (index of the entry, number of the
        broker).
        """
        with native_errors():
            self._native.watch_brokers(term, ended)

    def know_brokers(self, runs: Sequence[tuple[int, int, int, bool]]) -> None:
        """Registrations of brokers, (number in the group of voters, boot epoch, nonce, whether that run is fenced), for
        handshakes and for the controller.
        """
        with native_errors():
            self._native.know_brokers(runs)

    def set_roles(self, index: int, changes: Mapping[str, Any]) -> None:
        """Take over roles of replicas as of entry `index`: `broker`, `roles`, `removed`, `applied`, `changed`
        (seam.md). Never waits.
        """
        with native_errors():
            self._native.set_roles(index, json.dumps(changes).encode())

    def cluster_status(self) -> dict[str, Any]:
        """`controller`, `office`, `term`, `connected` and `missing` brokers, `live`, `lease_ms` (seam.md)."""
        with native_errors():
            return json.loads(self._native.cluster_status())

    # -- partitions

    def new_data_key(self, number: int) -> tuple[str, str]:
        """A new data key for a stream, wrapped: (id of the master key, base64). Raises `encryption_unavailable`."""
        with native_errors():
            return self._native.new_data_key(number)

    def open(self, partitions: bytes) -> list[tuple[int, str, str]]:
        """Open or create partitions; (incarnation, code, sentence) of those that failed. Blocks."""
        with native_errors():
            return self._native.open(partitions)

    def lead(self, partitions: Sequence[tuple[int, int]]) -> None:
        """Accept appends: (incarnation, leader epoch). Blocks until NATS confirmed."""
        with native_errors():
            self._native.lead(partitions)

    def close_partitions(self, incarnations: Sequence[int]) -> None:
        """Stop and close; files stay. Blocks."""
        with native_errors():
            self._native.close_partitions(incarnations)

    def delete_partitions(self, incarnations: Sequence[int], *, at_once: bool = False) -> None:
        """Stop, close, delete after the grace period, or at once. Blocks."""
        with native_errors():
            self._native.delete_partitions(incarnations, at_once=at_once)

    def keep_partitions(self, incarnations: Sequence[int]) -> None:
        """Stop, close, and rename the files: they are kept until a person removes them. Blocks."""
        with native_errors():
            self._native.keep_partitions(incarnations)

    def is_full(self) -> bool:
        """Whether writes to the data directory are refused for want of space."""
        with native_errors():
            return self._native.is_full()

    def publish_view(self, version: int, changes: bytes) -> None:
        """Apply changes to the view and swap it whole; versions ascend."""
        with native_errors():
            self._native.publish_view(version, changes)

    def set_sinks(self, version: int, changes: Mapping[str, Any]) -> None:
        """Apply changes to the sink table (`specs/formats/seam.md`): `sinks`, `removed`, in the first call `complete`.

        Raises:
            UsageError: `invalid_argument`: the version does not ascend, or the changes are not such a document.
        """
        with native_errors():
            self._native.set_sinks(version, json.dumps(changes).encode())

    def confirm_stage(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Check what is claimed to be staged here: `missing` (`incarnation`, `reason`) and `from_offsets`. Blocks."""
        with native_errors():
            return json.loads(self._native.confirm_stage(json.dumps(request).encode()))

    def staged(self) -> list[dict[str, Any]]:
        """What is staged here, by attempt: `sink`, `generation`, `epoch`, `token`, `idle_ms`, `bytes`, `pieces`,
        `incarnations`.
        """
        with native_errors():
            return json.loads(self._native.staged())

    def append(self, incarnation: int, values: Sequence[bytes], timeout_ms: int) -> int:
        """Append records that hold `values`; the offset of the first. Blocks until they are committed.

        Raises:
            UnavailableError: `unavailable`: the partition is not open or not led here, or refuses them.
            OutcomeUnknownError: `outcome_unknown`: not known within `timeout_ms`.
        """
        with native_errors():
            return self._native.append(incarnation, values, timeout_ms)

    def tail(self, incarnation: int, count: int) -> list[bytes]:
        """The values of the last `count` committed records, the newest first. Blocks.

        Raises:
            UnavailableError: `unavailable`: the partition is not open.
        """
        with native_errors():
            return self._native.tail(incarnation, count)

    def status(self, incarnations: Sequence[int]) -> list[Position]:
        """Positions of those that are open, in the order asked."""
        return self._native.status(incarnations)

    def scrub(self, incarnation: int, bytes_per_second: int) -> tuple[int, int, int, bool]:
        """Check every sealed segment of an open partition: (segments, bytes, damaged ranges, complete). Blocks."""
        with native_errors():
            return self._native.scrub(incarnation, bytes_per_second)

    def pause_scrubs(self, paused: bool) -> None:
        """Pause scrubs, or resume them."""
        self._native.pause_scrubs(paused)

    def damage(self, incarnations: Sequence[int]) -> list[dict[str, Any]]:
        """Of those that are open: `incarnation`, `scrubbed_ns`, `sealed_segments` and `damaged`."""
        return json.loads(self._native.damage(incarnations))

    def segment_starts(self, incarnation: int) -> list[int]:
        """First offset of each segment of a partition, ascending, the active one last; empty: it is not open here."""
        return self._native.segment_starts(incarnation)

    # -- seeing

    def report(self, values: Mapping[str, int]) -> None:
        """Hand over what the control plane counts, by the names of `specs/metrics.toml`."""
        with native_errors():
            self._native.report(json.dumps(values).encode())

    def set_query(
        self, query: str, stream: tuple[str, str], positions: Sequence[tuple[int, int, int]], hold_ms: int
    ) -> None:
        """Replace the positions of a query in a stream (namespace, name): (partition, incarnation, next offset); none =
        they are forgotten. For `hold_ms`, below 2^32, retention and compaction keep the records from there on, if the
        partition has `hold_bytes`; 0 = they do not.
        """
        with native_errors():
            self._native.set_query(query, stream, positions, hold_ms)

    def lags(self) -> list[dict[str, Any]]:
        """The positions and lags of consumer groups and queries (`specs/formats/seam.md`). Blocks."""
        with native_errors():
            return json.loads(self._native.lags())

    def checks(self) -> list[dict[str, str]]:
        """What the broker needs: `name`, `outcome` (`ok`, `warning`, `failed`), `reason`. Blocks."""
        return json.loads(self._native.checks())

    def statistics(self) -> dict[str, int]:
        """Counters and gauges by the names of `specs/metrics.toml`."""
        return json.loads(self._native.statistics())
