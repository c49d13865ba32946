"""The seam between the control plane (Python) and the data plane (Rust). Only `bascule.engine` imports this module.

Rust never calls Python: it queues events, Python pulls them in batches. Every method releases the interpreter while it
may block. Every class may be used from several threads. Nothing works in a forked child (`RuntimeError`).

Documents are UTF-8 JSON in bytes; their shapes are written in `specs/formats/seam.md`.

This stub stays one file, however long, because it describes one binary module: a second stub would name a module that
does not exist.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, final

__version__: Final[str]
BUILD_PROFILE: Final[str]
"""Cargo profile: `debug`, `fast` or `release`."""

Content: TypeAlias = bytes | bytearray | str
"""Bytes, or text that is sent as UTF-8."""

Headers: TypeAlias = Mapping[str, Content] | Sequence[tuple[str, Content]]
"""Names and values in order; of pairs names may repeat, and have bytes that are not UTF-8 as lone surrogates."""

Event: TypeAlias = (
    tuple[Literal["request"], tuple[int, str, bytes, str, str | None, int | None]]
    | tuple[Literal["committed"], tuple[int, bytes, int | None]]
    | tuple[Literal["failed"], tuple[int, str, str]]
    | tuple[Literal["barrier"], tuple[int, int]]
    | tuple[Literal["partition"], tuple[int, int, str, str, bytes]]
    | tuple[Literal["nats"], tuple[str, str, bytes, int]]
    | tuple[Literal["log"], tuple[int, str, str, bytes]]
)
"""The kind and its fields in order; `bascule._seam` has a type for each kind, which says what the fields mean."""

Reply: TypeAlias = tuple[int, bytes] | tuple[int, int, str, str | None, bytes, int | None]
"""The fields, in order, of `Answer` or of `Rejected` of `bascule._seam`; the details as a JSON object."""

@final
class Engine:
    """The data plane of one broker: one per process and data directory."""

    def __new__(cls, settings: bytes) -> Engine:
        """Lock the data directory, check its format and owner, start the runtime. Serves nothing yet.

        Args:
            settings: JSON: `data_dir` str, `cluster_id` str, `broker_id` str, `runtime_threads` int ≥ 1,
                `namespace` str (prefix of internal NATS subjects), `limits` and `encryption` objects (see seam.md).

        Raises:
            NativeError: code `data_directory_locked` (another broker uses it), `data_directory_foreign` (it belongs to
                another broker id or cluster), `data_directory_newer` (unknown format), `data_directory_unusable`
                (permission, not a directory, no space), `configuration_invalid` (a file of a master key cannot be used).
        """

    # -- start and end ----------------------------------------------------------------------------------------------
    def bind(self, host: str, port: int) -> int:
        """Reserve the port (0 = any free one) and return it. The kernel refuses connections to it until `listen`.

        Raises:
            NativeError: `address_in_use`, `address_unusable`.
        """

    def listen(self) -> None:
        """Serve gRPC (Liftbridge, health, Flight) on the bound port.

        Raises:
            NativeError: `address_in_use`: another process listens there since `bind`; `invalid_argument`: not bound.
        """

    def serve_http(self, host: str, port: int, settings: bytes) -> int:
        """Bind (port 0 = any free one) and answer probes and metrics over HTTP, until `close`, also while Python is busy.
        Returns the bound port. The settings are JSON (seam.md): `partitions` and `groups`, bools.

        Raises:
            NativeError: `address_in_use`, `address_unusable`.
        """

    def serve_iggy(self, host: str, port: int) -> int:
        """Bind and serve Iggy's clients over TCP, with TLS when certificates are loaded; the bound port (0 = any free one).
        Commands that the data plane does not answer come as requests `iggy/<COMMAND>` with the raw payload.

        Raises:
            NativeError: `address_in_use`, `address_unusable`, `closed`.
        """

    def serve_iggy_quic(self, host: str, port: int) -> int:
        """The same over QUIC: binds a port of UDP (0 = any free one), and returns it. Shows the loaded certificate, to clients
        that accept it; else one for `localhost` that it makes.

        Raises:
            NativeError: `address_in_use`, `address_unusable`, `closed`; `internal`: no certificate could be made.
        """

    def serve_iggy_http(self, host: str, port: int, settings: bytes) -> int:
        """The same over HTTP. The settings are JSON (seam.md): `max_request_bytes`, and the list `cors_origins`.
        Requests that the data plane does not answer come as `iggyhttp/REQUEST`: the length of a head (u32), the head
        (JSON), and the body of the request. `iggyhttp/AUTHENTICATE` asks who a token, its body, stands for.

        Raises:
            NativeError: `address_in_use`, `address_unusable`, `closed`.
        """

    def set_stage(self, stage: str) -> None:
        """What the start is doing, for `/startupz` and `/readyz`, until the first `set_serving(True)`."""

    def require_nats(self) -> None:
        """From now on the check `nats` fails while NATS is not connected; before it was a warning."""

    def report(self, values: bytes) -> None:
        """Set the counts of the control plane for `/metrics`: JSON object of names to numbers (seam.md). Raises NativeError
        `invalid_argument` for an unknown name.
        """

    def set_query(
        self, query: str, stream: tuple[str, str], positions: Sequence[tuple[int, int, int]], hold_ms: int
    ) -> None:
        """Take the positions of a query in a stream (namespace, name), in place of those before: (partition, incarnation,
        next offset); none = they are forgotten. They are kept in memory, with the time of the call. For `hold_ms`, below 2^32,
        the records from there on are held, if the partition has `hold_bytes`; 0 = they are not.
        """

    def lags(self) -> bytes:
        """JSON: the positions and lags of consumer groups and queries (seam.md), in no order. Waits for the disk."""

    def checks(self) -> bytes:
        """JSON: list of `name`, `outcome` (`ok`, `warning`, `failed`), `reason`: what `/readyz?verbose` shows. Blocks for as
        long as the data directory's file system does not answer.
        """

    def load_tls(self, settings: bytes) -> bytes:
        """Read certificates and key (JSON, see seam.md) and serve every connection from now on with them; open ones stay as they are.
        JSON: `subject`, `expires_s` (seconds since 1970), `notes`.

        Raises:
            NativeError: `configuration_invalid`; what was in use stays in use.
        """

    def publish_access(self, table: bytes) -> None:
        """Decide by this table of rights (JSON, see seam.md) from now on, in calls that are open too; empty = all is allowed.

        Raises:
            NativeError: `invalid_argument`; what was in use stays in use.
        """

    def set_serving(self, serving: bool) -> None:
        """What health answers: SERVING or NOT_SERVING. False also refuses new calls with UNAVAILABLE (draining)."""

    def watch(self, settings: bytes) -> tuple[int, int]:
        """Start the watch over the control plane's event loop: settings are JSON, see seam.md. Without a `beat` for
        `limit_ms` the loop counts as blocked: this side logs it, and health of `bascule.admin` is NOT_SERVING until the
        next one.

        Returns two descriptors, which close with the engine: what is to be used for longer has to be duplicated. The
        first takes one byte for each signal that the process gets (as `signal.set_wakeup_fd` writes it): SIGTERM and
        SIGINT stop the broker from this side when the loop does not run. The second takes what the interpreter writes
        at SIGUSR2 (`faulthandler.register`), which this side sends to the process to learn where the loop is.
        """

    def beat(self) -> None:
        """The event loop runs."""

    def set_group_versions(self, versions: Sequence[tuple[str, int]]) -> None:
        """(group, version > 0; 0 = it is gone): FetchConsumerGroupAssignments requests that know another version than this
        one, and were waiting, are forwarded.
        """

    def connect_nats(self, settings: bytes) -> None:
        """Start connecting (or reconnect with other settings); progress comes as `nats` events. Returns at once.

        JSON: `servers` list of URLs, `user`, `password`, `token`, `name`, `tls` object, `pending_bytes` int,
        `pause_ms` int.
        """

    def nats_connected(self) -> bool: ...
    def nats_state(self) -> bytes:
        """State of the connections to NATS as JSON, with the reason while they are not up (seam.md, "State of NATS")."""

    def nats_partitions(self, incarnations: Sequence[int]) -> bytes:
        """How partitions listen on NATS and what was not stored for them, as JSON in the order asked (seam.md)."""

    def close(self, drain_ms: int) -> None:
        """Stop accepting, let calls end by themselves, close every partition cleanly, end what is left after `drain_ms`, stop
        the runtime, unlock the directory. Blocks; idempotent.
        """

    # -- events -----------------------------------------------------------------------------------------------------
    def fileno(self) -> int:
        """An eventfd that becomes readable when events wait after `poll` returned fewer than it was asked for."""

    def poll(self, max_events: int) -> list[Event]:
        """Take up to `max_events` waiting events without blocking, and clear the eventfd when none is left. Requests whose
        caller went away are dropped, and count towards `max_events`.
        """

    def is_awaited(self, request_id: int) -> bool:
        """Whether the caller of a request still waits for its answer: it is there, and its deadline has not passed."""

    def respond(self, replies: Sequence[Reply]) -> None:
        """Answer requests. Unknown ids (the caller went away) are ignored."""

    # -- the metadata log -------------------------------------------------------------------------------------------
    def metadata_open(self) -> tuple[int, bytes, int]:
        """Open the log: index and bytes of the newest snapshot (0 and b"" when there is none), and the index of the last
        entry. Entries after the snapshot follow as `committed` events, in order of index without gaps, replayed ones
        first (without a proposal id).

        Raises:
            NativeError: `metadata_damaged`, `data_directory_foreign` (it is a voter's, of a cluster).
        """

    def propose(self, entries: Sequence[tuple[int, bytes]], timeout_ms: int) -> None:
        """Append entries, each (proposal id > 0, bytes ≤ 1 MiB). Each comes back as one `committed` event, or as `failed`
        (`metadata_timeout` means the outcome is unknown).
        """

    def read_barrier(self, barrier_id: int) -> None:
        """Ask for a `barrier` event once every entry committed before this call has been delivered."""

    def save_snapshot(self, index: int, snapshot: bytes) -> None:
        """Store a snapshot that covers entries 1…index, durably, and allow the log before it to be removed. Blocks."""

    # -- the cluster ------------------------------------------------------------------------------------------------
    def cluster_run(self) -> bytes:
        """JSON: what the registration of this run has to say (seam.md).

        Raises:
            NativeError: `invalid_argument`: the broker is of no cluster.
        """

    def store_boot_epoch(self, boot_epoch: int) -> None:
        """Store the boot epoch of this run's registration, durably. Blocks.

        Raises:
            NativeError: `storage_failed`; `invalid_argument`: the broker is of no cluster.
        """

    def begin_run(self) -> None:
        """Begin another run of this broker, which has yet to register: the present one is fenced. Blocks.

        Raises:
            NativeError: `storage_failed`; `invalid_argument`: the broker is of no cluster.
        """

    def stop_leading(self) -> None:
        """Take no more records as the leader of streams with several replicas, for ever, and wait at most 250 ms until followers have
        what is there. Blocks.
        """

    def watch_brokers(self, term: int, ended: Sequence[tuple[int, int]]) -> None:
        """Watch the brokers as the controller of this term: `expired` events report who is silent, `stopped` events who has
        stopped ended roles, until the term ends. Everything that was committed before it must be applied, and the
        registrations of that state known; `ended`: its ended roles that their brokers may not know of, (index of the entry,
        number of the broker).

        Raises:
            NativeError: `invalid_argument`: the broker is of no cluster.
        """

    def know_brokers(self, runs: Sequence[tuple[int, int, int, bool]]) -> None:
        """Registrations of brokers, (number in the group of voters, boot epoch, nonce, whether that run is fenced):
        handshakes say so from now on, and the controller watches them.

        Raises:
            NativeError: `invalid_argument`: the broker is of no cluster.
        """

    def set_roles(self, index: int, changes: bytes) -> None:
        """Take over roles of replicas as of entry `index`, JSON (seam.md); those of an older entry are ignored. Never waits.

        Raises:
            NativeError: `invalid_argument`: the document cannot be read, or the broker is of no cluster.
        """

    def cluster_status(self) -> bytes:
        """JSON: who is the controller, and which brokers are connected (seam.md).

        Raises:
            NativeError: `invalid_argument`: the broker is of no cluster.
        """

    # -- partitions -------------------------------------------------------------------------------------------------
    def new_data_key(self, number: int) -> tuple[str, str]:
        """A new random data key of this number (≥ 1) for a stream, wrapped by the current master key: (id of the master
        key, base64; see metadata.md). Nothing is stored.

        Raises:
            NativeError: `encryption_unavailable`: there is no usable master key; the sentence is the reason.
        """

    def open(self, partitions: bytes) -> list[tuple[int, str, str]]:
        """Open or create partitions: JSON list of partition specs (seam.md). Returns (incarnation, error code, sentence)
        for those that failed. Blocks for recovery; opens several in parallel. Opening an open one updates its settings.
        """

    def lead(self, partitions: Sequence[tuple[int, int]]) -> None:
        """(incarnation, leader epoch): accept appends and subscribe to NATS."""

    def close_partitions(self, incarnations: Sequence[int]) -> None:
        """Stop and close; files stay. Unknown ones are ignored."""

    def delete_partitions(self, incarnations: Sequence[int], *, at_once: bool = False) -> None:
        """Stop, close, mark the files deleted; they vanish after the grace period, or with `at_once` before this returns.
        Files of partitions that are not open are marked too; unknown ones are ignored.

        Raises:
            NativeError: `storage_failed` when files could not be marked or removed.
        """

    def keep_partitions(self, incarnations: Sequence[int]) -> None:
        """Stop, close and rename the files to `<incarnation>.kept-<ns>`: nothing removes them but a person. Unknown ones are
        ignored.

        Raises:
            NativeError: `storage_failed` when files could not be renamed.
        """

    def is_full(self) -> bool:
        """Whether writes to the data directory are refused for want of space."""

    def publish_view(self, version: int, changes: bytes) -> None:
        """Apply changes to the view and swap it whole: JSON `{"streams": [stream spec…], "removed": [[namespace, name]…],
        "groups": [{"id", "created"}…], "removed_groups": [id…]}`. Subscriptions of groups that are gone, or were
        created again, end. Versions must ascend.
        """

    def set_sinks(self, version: int, changes: bytes) -> None:
        """Apply changes to the sink table: JSON, see seam.md. Versions must ascend. Quick: never waits for a disk."""

    def confirm_stage(self, request: bytes) -> bytes:
        """Check what is claimed to be staged here: JSON, see seam.md. Blocks."""

    def staged(self) -> bytes:
        """What is staged here, by attempt, as JSON (seam.md)."""

    def append(self, incarnation: int, values: Sequence[bytes], timeout_ms: int) -> int:
        """Append records that hold `values` to a partition led here, and publish their copies on NATS; the offset of the
        first. Blocks until they are committed. For the control plane's own few records.

        Raises:
            NativeError: `unavailable`, `outcome_unknown`.
        """

    def tail(self, incarnation: int, count: int) -> list[bytes]:
        """The values of the last `count` committed records (fewer when there are fewer), the newest first. Blocks.

        Raises:
            NativeError: `unavailable`.
        """

    def status(
        self, incarnations: Sequence[int]
    ) -> list[tuple[int, int, int, int, int, int, int, int, int, int, bool]]:
        """(incarnation, log start, high watermark, log end, bytes, first received ns, last received ns, subscribers, messages
        from NATS not stored, what of sinks needs it open, whether clients may read it here) of those that are open, as asked;
        ends exclusive, 0 = never.
        """

    def scrub(self, incarnation: int, bytes_per_second: int) -> tuple[int, int, int, bool]:
        """Read and check every sealed segment of an open partition at about that rate: (segments, bytes, damaged ranges,
        whether all was read). Damage is reported by `partition` events. Ends early when the partition closes. Blocks.

        Raises:
            NativeError: `partition_not_found` when it is not open; `storage_failed`.
        """

    def pause_scrubs(self, paused: bool) -> None:
        """Pause scrubs, also running ones, or resume them."""

    def damage(self, incarnations: Sequence[int]) -> bytes:
        """JSON list, of those that are open: `incarnation`, `scrubbed_ns` (end of the last whole scrub, 0 = never),
        `sealed_segments` (what a scrub reads) and `damaged`: list of `start`, `end`, `fault`, `path`, `position`.
        """

    def segment_starts(self, incarnation: int) -> list[int]:
        """First offset of each segment of a partition, ascending, the active one last; empty: it is not open here."""

    # -- seeing -----------------------------------------------------------------------------------------------------
    def statistics(self) -> bytes:
        """JSON of counters and gauges, names as in specs/metrics.toml."""

Refused: TypeAlias = tuple[int, tuple[str, str, int, int, int] | None]
"""Refused rows: how many; of the first one: error code, sentence, number, bytes of the record, bytes of its value."""

def check_rows(
    batches: object,
    stream: str,
    *,
    limits: tuple[int, int] | None = None,
    closed: tuple[str, str] | None = None,
    first: int = 0,
    numbers: object = None,
    letters: tuple[bool, bool, int, Sequence[tuple[str, str]]] | None = None,
) -> tuple[int, bytes, bytes | None, Refused, Refused, list[bytes], int]:
    """Digest of rows, and which of them DoPut would refuse.

    Args:
        batches: Arrow IPC stream (bytes-like; plain or LZ4), whose columns are those of DoPut.
        stream: that the rows are for.
        limits: partitions (at least 1) and `max_record_bytes` of the stream; None = no row is refused.
        closed: error code and sentence with which every row is refused; goes before `limits`.
        first: number of the first row, where no `numbers` are given.
        numbers: buffer of unsigned 64-bit numbers, one for each row.
        letters: make dead letters of refused rows: of those that are too large, of invalid ones, `max_record_bytes` of the
            stream that the letters are for, and headers that all of them get (names without `bascule.dlq.`).

    Returns:
        Rows; their digest (16 bytes, `specs/formats/stage.md`, little-endian; digests of several calls are added modulo
        2^128); a bitmap of the rows that are not refused, or None = none is refused; rows that are too large; rows that
        are invalid; Arrow IPC streams of dead letters; how many of them were cut.

    Raises:
        NativeError: `invalid_argument`: a column that DoPut would refuse. `too_large`: a dead letter does not fit in its
            stream even without value, key and headers of its row.
    """

def access_allows(table: bytes, questions: Sequence[tuple[str, str, str]]) -> list[bool]:
    """What a table of rights would decide: questions are (client, action, resource).

    Raises:
        NativeError: `invalid_argument`.
    """

def name_flaw(name: str) -> str | None:
    """What is wrong with the name of a stream, a subject or a queue group, as a sentence that begins with it; `None` when it
    shows what it is. Of more than 1,024 bytes only the length is shown.
    """

def id_flaw(name: str) -> str | None:
    """The same of the id of a group, consumer or cursor; refused are what is too long, control and format characters, and what
    is not a character.
    """

def log_verify(path: str) -> bytes:
    """Read and check a data directory, or one log of it, that no broker uses; changes nothing. Blocks. JSON, see seam.md.

    Raises:
        NativeError: `data_directory_locked`, `not_found`, `storage_failed`.
    """

def log_inspect(path: str, start: int, most: int) -> bytes:
    """What lies in it; of a single log at most `most` batches, those that end behind offset `start`. Blocks.

    Raises:
        NativeError: as `log_verify`.
    """

def log_metadata(path: str) -> tuple[int, bytes, list[bytes], str]:
    """Metadata of the data directory that it is or lies in: (index and state of the newest snapshot, 0 and empty = none;
    the entries after it, in order; why later ones cannot be read, empty = all were). Changes nothing. Blocks.

    Raises:
        NativeError: as `log_verify`.
    """

def log_repair(path: str, request: bytes, now_ns: int) -> bytes:
    """Repair what can be repaired. Request, JSON: `dry_run`, `from` (a backup), `cut_at` (an offset). Blocks.

    Raises:
        NativeError: as `log_verify`; `invalid_argument`.
    """

@final
class NativeError(Exception):
    """A typed failure from the data plane: `args` = (code, sentence, JSON details)."""

@final
class Client:
    """The SDK's core: one Liftbridge connection set. Sync; the async classes call it from threads."""

    def __new__(cls, address: str, options: bytes) -> Client:
        """Connect to `host:port`. JSON options: `connect_timeout_ms`, `max_in_flight` (records), `max_in_flight_bytes`,
        `client_id`, `tls` (`ca`, `cert`, `key`: paths, `server_name`; all optional). Raises NativeError `unavailable`.
        """

    def call(self, method: str, request: bytes, timeout_ms: int) -> bytes:
        """One unary admin call by method name; raw protobuf in and out. Raises NativeError with the status mapped."""

    def publish(self, batch: Outgoing, producer: tuple[int, int, int] | None, timeout_ms: int) -> None:
        """Publish what is not stored yet of a batch, pipelined in order; then its `places` say where it is.

        Args:
            batch: locked meanwhile; nothing can be added to it any more.
            producer: (id > 0, epoch, sequence of the first record) of an idempotent producer; its batches are stored once
                by a broker that can. `None`, ack policy NONE, and other brokers: they are sent plainly.
            timeout_ms: for all of it.

        Raises:
            NativeError: the first record's error; details name its `index`, how many are `acknowledged`, and with `resend`
                that the same call may be repeated. `outcome_unknown` when the deadline passed.
        """

    def publish_all(
        self, batches: Sequence[Outgoing], producers: Sequence[tuple[int, int, int] | None], timeout_ms: int
    ) -> list[tuple[str, str, str] | None]:
        """Publish several batches at once, as `publish` does each: (code, sentence, JSON details) of each that failed."""

    def subscribe(self, request: bytes, bell: Bell | None = None) -> Subscription:
        """Open a subscription (raw SubscribeRequest); returns after the handshake. `bell` rings when it has something."""

    def close(self) -> None: ...

@final
class Outgoing:
    """Records of one partition on their way out, framed as they come."""

    def __new__(cls, stream: str, partition: int, ack_policy: int, max_in_flight: int) -> Outgoing: ...
    def __len__(self) -> int: ...
    @property
    def partition(self) -> int: ...
    def push(
        self,
        key: Content | None,
        value: Content | None,
        headers: Headers | None,
        expected_offset: int = -1,
        subject: str | None = None,
        origin_time: int | None = None,
    ) -> int:
        """Add one record, copied; a `None` value is null, −1 expects any offset. Returns the bytes of the batch, about.
        At most 100 000 records.

        Raises:
            TypeError: neither bytes nor text; nothing was added.
            NativeError: `invalid_argument`: too many, or it is being published.
        """

    def fill(
        self,
        keys: Sequence[Content | None] | None,
        values: Sequence[Content | None],
        headers: Sequence[Headers | None] | None,
        subjects: Sequence[str | None] | None = None,
        origin_times: Sequence[int | None] | None = None,
    ) -> int:
        """Add n records, copied; as `push`. After an error some of them may have been added."""

    def places(self) -> list[tuple[int, int, int]]:
        """(offset, timestamp ns, partition) of each record, in order, once published; empty for ack policy NONE."""

@final
class Partitioner:
    """Chooses partitions of one stream. Safe to share between threads."""

    def __new__(cls, partitions: int, round_robin: bool) -> Partitioner: ...
    @property
    def partitions(self) -> int: ...
    def choose(self, key: Content | None, value: Content | None) -> int:
        """The partition of the next record."""

@final
class Spread:
    """Records of several partitions of one stream on their way out, framed as they come."""

    def __new__(cls, stream: str, partitioner: Partitioner, ack_policy: int, max_in_flight: int) -> Spread: ...
    def __len__(self) -> int: ...
    @property
    def partitioner(self) -> Partitioner: ...
    def push(
        self, key: Content | None, value: Content | None, headers: Headers | None, partition: int | None = None
    ) -> int:
        """As `Outgoing.push`; `partition`: `None` = the partitioner chooses.

        Raises:
            NativeError: `invalid_argument`: too many, or the stream has no such partition.
        """

    def fill(
        self,
        keys: Sequence[Content | None] | None,
        values: Sequence[Content | None],
        headers: Sequence[Headers | None] | None,
        partitions: Sequence[int | None] | None = None,
        subjects: Sequence[str | None] | None = None,
        origin_times: Sequence[int | None] | None = None,
    ) -> int:
        """Add n records, copied; as `push`. After an error some of them may have been added."""

    def parts(self) -> list[Outgoing]:
        """The batches, one for each partition that has records."""

    def partition_of(self, index: int) -> int | None:
        """Partition of record `index`; `None` = there are not so many."""

    def position(self, partition: int, index: int) -> int | None:
        """Which of all records is record `index` of `partition`."""

    def places(self) -> list[tuple[int, int, int]]:
        """As `Outgoing.places`; offsets are negative of records that are not known to be stored."""

@final
class Bell:
    """Wakes who waits for several subscriptions."""

    def __new__(cls) -> Bell: ...
    def ring(self) -> None: ...
    def wait(self, seen: int, timeout_ms: int) -> int:
        """How often it has rung, as soon as that is not `seen` any more; at the latest after `timeout_ms`."""

@final
class Subscription:
    def next_batch(self, max_records: int, timeout_ms: int) -> RecordBatch | None:
        """Up to `max_records` records that are there, waiting at most `timeout_ms` for the first; None = nothing came.

        Raises:
            NativeError: why the stream ended (`end_of_stream`, `not_found`, …).
        """

    @property
    def incarnation(self) -> int:
        """The history of the partition that the offsets belong to; 0 if the broker does not send it."""

    @property
    def start(self) -> int | None:
        """The offset that reading begins at; None if the broker does not send it."""

    def close(self) -> None: ...

@final
class RecordBatch:
    """n records in columns; exported without copying by `__arrow_c_array__` (Arrow PyCapsule interface)."""

    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def offsets(self) -> list[int]: ...
    def timestamps(self) -> list[int]: ...
    def keys(self) -> list[bytes | None]: ...
    def values(self) -> list[bytes | None]: ...
    def subjects(self) -> list[str]: ...
    def headers(self) -> list[list[tuple[str, bytes]]]:
        """Names that are not UTF-8 have their bytes as lone surrogates."""

    def replies(self) -> list[str] | None:
        """`None` when no record has one."""

    def origin_times(self) -> list[int | None] | None:
        """Nanoseconds since 1970; `None` when no record has one."""
