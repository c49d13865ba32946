"""The sections of a broker's settings. Each field has a default, a range and a description; all are immutable."""

from pathlib import Path
from typing import Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from bascule.config.cluster import ClusterSettings, ClusterTlsSettings, check_cluster
from bascule.config.listening import HttpSettings, IggySettings, MetricsSettings
from bascule.config.value_types import ByteCount, FilePath, Milliseconds, NatsUrl, Tokens

__all__ = [
    "ENVIRONMENT_KEY",
    "ENVIRONMENT_KEY_ID",
    "SECRETS",
    "AccessSettings",
    "ActivitySettings",
    "BrokerSettings",
    "ClusterSettings",
    "ClusterTlsSettings",
    "CursorSettings",
    "EncryptionSettings",
    "GroupSettings",
    "HttpSettings",
    "IggySettings",
    "LimitSettings",
    "LogSettings",
    "MetricsSettings",
    "NatsSettings",
    "NatsTlsSettings",
    "ScrubSettings",
    "Settings",
    "StreamDefaults",
    "TlsSettings",
]

ENVIRONMENT_KEY: Final = "LIFTBRIDGE_ENCRYPTION_KEY"
"""Variable that holds a master key, 16 or 32 raw bytes, as in Liftbridge. The data plane reads it."""

ENVIRONMENT_KEY_ID: Final = "liftbridge"
"""Id of that master key."""

SECRETS: Final = frozenset({"nats.password"})
"""Settings whose value is never shown."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NatsTlsSettings(_Section):
    """TLS towards NATS. It is always used if the server requires it. Files are PEM, read again at each connection."""

    required: bool = Field(default=False, description="refuse a server without TLS")
    handshake_first: bool = Field(
        default=False, description="handshake before the first message, as the server's setting of this name"
    )
    ca_file: FilePath | None = Field(default=None, description="authorities of servers; unset = the system's")
    certificate_file: FilePath | None = Field(default=None, description="the broker's certificate, for mutual TLS")
    key_file: FilePath | None = Field(default=None, description="its private key, without a password")

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("nats.tls.certificate_file and nats.tls.key_file go together: set both or none")
        return self


class NatsSettings(_Section):
    """How to reach NATS, or which nats-server to start."""

    standalone: bool = Field(default=False, description="start and supervise a nats-server as a child process")
    servers: tuple[NatsUrl, ...] = Field(
        default=("nats://127.0.0.1:4222",),
        description="URLs of existing servers, with user:password@ or token@ before the host if they need a login;"
        " when standalone: how to reach the server of nats.config, if that differs from its listen address",
    )
    required: bool = Field(
        default=False,
        description="a start without a connection to NATS fails, and the broker is ready only while it is connected",
    )
    user: str | None = Field(default=None, description="user name")
    password: SecretStr | None = Field(
        default=None, description="password, for Liftbridge configurations that contain it; password_file is safer"
    )
    password_file: FilePath | None = Field(default=None, description="file with the password")
    token_file: FilePath | None = Field(default=None, description="file with a token")
    nkey_file: FilePath | None = Field(default=None, description="file with the seed of a user's nkey, SU…")
    credentials_file: FilePath | None = Field(
        default=None, description="credentials file of NATS: a user's JWT and the seed of its nkey"
    )
    tls: NatsTlsSettings = Field(default=NatsTlsSettings(), description="TLS towards NATS")
    ack_inbox_prefixes: tuple[str, ...] = Field(
        default=(),
        description="prefixes of the subjects that acks may go to: calls with another subject are refused, acks of"
        " messages from NATS are withheld and counted; none = any subject",
    )
    jetstream_ack_prefixes: tuple[str, ...] = Field(
        default=("_INBOX.",),
        description="prefixes of the reply subjects that acks of streams with nats_acks: jetstream may go to; others"
        " are withheld and counted; none = no acks",
    )
    host: str = Field(default="127.0.0.1", description="bind address of the standalone server, if nats.config has none")
    port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="port of the standalone server, if nats.config has none; 0 = a free one, stored in the data"
        " directory",
    )
    first_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="the port to try before others when nats.port is 0; 0 = none, unset = 4222 with nats.standalone",
    )
    config: FilePath | None = Field(
        default=None, description="configuration file for the standalone server, instead of a generated one"
    )
    max_payload: ByteCount = Field(default=1 << 20, ge=1024, le=64 << 20, description="largest NATS message")

    @field_validator("jetstream_ack_prefixes")
    @classmethod
    def _no_system_subjects(cls, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        for prefix in prefixes:
            if not prefix or prefix.startswith("$"):
                raise ValueError(
                    f"{prefix!r} is not allowed: an ack must not reach any subject, nor those of NATS itself; give the"
                    " prefix of the publishers' inboxes, such as _INBOX."
                )
        return prefixes

    @model_validator(mode="after")
    def _one_identity(self) -> Self:
        ways = ("user", "token_file", "nkey_file", "credentials_file")
        given = [f"nats.{way}" for way in ways if getattr(self, way) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are set: a broker has only one identity, keep one")
        return self


class StreamDefaults(_Section):
    """Defaults for streams that are created without these settings. For a limit, 0 = unlimited or never."""

    durability: Literal["disk", "memory"] = Field(default="disk", description="what an acknowledgement means")
    codec: Literal["none", "lz4", "zstd"] = Field(default="none", description="compression of new batches")
    nats_copy: Literal["envelope", "value", "none"] = Field(
        default="envelope", description="how direct publishes are copied to NATS"
    )
    nats_acks: Literal["off", "jetstream"] = Field(
        default="off", description="how plain NATS messages with a reply subject are acknowledged"
    )
    retention_max_age_ms: Milliseconds = Field(default=7 * 86_400_000, description="remove segments older than this")
    retention_max_bytes: ByteCount = Field(default=0, description="keep at most this many bytes per partition")
    retention_max_messages: int = Field(default=0, ge=0, description="keep at most this many records per partition")
    cleaner_interval_ms: Milliseconds = Field(
        default=300_000, description="how often retention and compaction run; 0 = 5 minutes"
    )
    retention_min_age_ms: Milliseconds = Field(
        default=900_000, description="retention never removes records that the broker has held for less than this"
    )
    compact_enabled: bool = Field(default=False, description="keep only the last record of each key")
    compact_tombstone_age_ms: Milliseconds = Field(
        default=86_400_000, description="how long compaction keeps a null value that is the latest of its key"
    )
    compact_memory_bytes: ByteCount = Field(
        default=64 << 20, ge=1 << 10, description="memory for keys while a partition is compacted, one at a time"
    )
    compact_max_bytes_per_second: ByteCount = Field(
        default=768 << 20, description="bytes read and written by compaction; 0 = unlimited"
    )
    segment_max_bytes: ByteCount = Field(default=256 << 20, ge=1, description="roll at this size")
    segment_max_age_ms: Milliseconds | None = Field(
        default=None, description="roll at this age; unset = retention_max_age"
    )
    auto_pause_time_ms: Milliseconds = Field(
        default=0, description="idle time after which a partition pauses; 0 = never"
    )
    auto_pause_disable_if_subscribers: bool = Field(default=False, description="subscribers keep a partition awake")
    concurrency_control: bool = Field(default=False, description="check expected offsets")
    max_record_bytes: ByteCount = Field(default=1 << 20, ge=1, le=64 << 20, description="largest record as received")
    batch_max_messages: int = Field(default=1024, ge=1, le=1 << 20, description="records of one batch")
    min_isr: int = Field(
        default=1, ge=0, le=255, description="appends are refused while fewer replicas are in sync; 0 = 1"
    )
    encryption: bool = Field(default=False, description="encrypt new streams at rest")


class EncryptionSettings(_Section):
    """Encryption of streams at rest: the master keys that wrap each stream's data keys."""

    keys: dict[str, FilePath] = Field(
        default_factory=dict,
        description="file of each master key by id: 16 or 32 bytes in base64; keep old keys as long as streams have"
        " data that they protect",
    )
    current: str | None = Field(
        default=None, description="id of the key that wraps new data keys; unset = the only key"
    )

    @property
    def current_key(self) -> str:
        """Id of the master key that wraps new data keys; Liftbridge's variable when no file is configured."""
        return self.current or next(iter(self.keys), ENVIRONMENT_KEY_ID)

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        known = [*self.keys, ENVIRONMENT_KEY_ID]
        if ENVIRONMENT_KEY_ID in self.keys:
            raise ValueError(f'the id "{ENVIRONMENT_KEY_ID}" stands for the variable {ENVIRONMENT_KEY}: use another')
        if self.current is None and len(self.keys) > 1:
            raise ValueError("encryption.current is unset and there are several keys: name the one for new data")
        if self.current is not None and self.current not in known:
            raise ValueError(f'encryption.current names "{self.current}", which is not one of: {", ".join(known)}')
        return self


class GroupSettings(_Section):
    """Consumer groups."""

    consumer_timeout_ms: Milliseconds = Field(
        default=15_000, ge=1, description="a member without a heartbeat for this long is removed from its group"
    )
    coordinator_timeout_ms: Milliseconds = Field(
        default=15_000, ge=1, description="how long a member tries to reach its coordinator before it reports it"
    )


class CursorSettings(_Section):
    """Cursors: stored positions of readers."""

    partitions: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="partitions of __cursors, fixed once it exists; 0 = no cursors, unset = 1 with nats.standalone",
    )
    auto_pause_time_ms: Milliseconds = Field(
        default=60_000,
        description="idle time after which its partitions pause; 0 = never. They never pause while metrics.groups is on"
        " and http.listen is not off",
    )


class ActivitySettings(_Section):
    """The activity stream: events of streams and groups."""

    enabled: bool = Field(default=False, description="write every event to the stream __activity")
    publish_timeout_ms: Milliseconds = Field(default=5_000, ge=1, description="how long a write may take")


class LimitSettings(_Section):
    """Limits of the data plane, all finite; docs/reference/limits.md explains them."""

    queue_bytes: ByteCount = Field(default=32 << 20, ge=1 << 16, description="waiting appends of one partition")
    queue_records: int = Field(default=65_536, ge=1024, description="waiting records of one partition")
    inflight_bytes: ByteCount = Field(
        default=128 << 20, ge=1 << 20, description="uncommitted appends of the whole broker"
    )
    subscription_bytes: ByteCount = Field(default=1 << 20, ge=1 << 16, description="unsent bytes of one subscription")
    delivery_bytes: ByteCount = Field(
        default=256 << 20, ge=1 << 20, description="read-ahead of all subscriptions; each gets at most an equal share"
    )
    connections: int = Field(default=4096, ge=1, le=1 << 20, description="gRPC connections")
    connections_per_address: int = Field(default=1024, ge=1, le=1 << 20, description="gRPC connections of one address")
    handshakes: int = Field(
        default=1024,
        ge=16,
        le=1 << 16,
        description="connections without a complete handshake; one more closes the oldest",
    )
    handshake_ms: Milliseconds = Field(
        default=5_000, ge=100, le=60_000, description="time for the handshake of a connection"
    )
    streams_per_connection: int = Field(
        default=1024, ge=1, le=1 << 20, description="concurrent calls of one connection"
    )
    connection_window_bytes: ByteCount = Field(
        default=4 << 20,
        ge=1 << 16,
        le=64 << 20,
        description="bytes that one connection may send before the broker reads them",
    )
    calls: int = Field(default=16_384, ge=1, le=1 << 22, description="open calls of all connections")
    calls_per_identity: int = Field(
        default=8192,
        ge=1,
        le=1 << 22,
        description="open calls of one client, identified by its certificate or, without one, its address",
    )
    first_message_ms: Milliseconds = Field(
        default=10_000, ge=100, le=3_600_000, description="time for the request of a unary call to arrive"
    )
    health_checks: int = Field(default=256, ge=1, le=1 << 20, description="open health checks; half for one client")
    health_watches: int = Field(default=4096, ge=1, le=1 << 20, description="open health watches; half for one client")
    request_bytes: ByteCount = Field(
        default=128 << 20,
        ge=1 << 20,
        description="bytes of incomplete request messages and of header fields kept for open calls",
    )
    answer_bytes: ByteCount = Field(
        default=128 << 20,
        ge=1 << 20,
        description="bytes of answers that clients have not read yet; half for one client",
    )
    streams: int = Field(default=10_000, ge=1, le=1 << 20, description="number of streams")
    partitions: int = Field(default=20_000, ge=1, le=1 << 22, description="number of partitions of all streams")
    groups: int = Field(default=10_000, ge=1, le=1 << 20, description="number of consumer groups")
    sinks_per_client: int = Field(
        default=2_500,
        ge=1,
        le=10_000,
        description="number of sinks of each lifetime that one client owns in a namespace; clients without certificates"
        " have no share",
    )
    queries: int = Field(
        default=1000, ge=1, le=100_000, description="number of queries that report their positions, for lags"
    )
    queries_per_client: int = Field(
        default=250,
        ge=1,
        le=100_000,
        description="number of these of one client; clients without certificates have no share",
    )
    cursors: int = Field(default=100_000, ge=1, le=1 << 24, description="number of stored positions")
    admin_requests: int = Field(default=1024, ge=1, le=1 << 16, description="admin requests without an answer")
    admin_requests_per_identity: int = Field(
        default=512,
        ge=1,
        le=1 << 16,
        description="admin requests of one client without an answer, as in calls_per_identity",
    )
    admin_request_bytes: ByteCount = Field(default=64 << 20, ge=1 << 16, description="bodies of waiting admin requests")
    descriptor_reserve: int = Field(
        default=256, ge=16, le=1 << 20, description="file descriptors reserved for files, which connections cannot use"
    )
    subscriptions: int = Field(default=4096, ge=1, le=1 << 20, description="open Subscribe and DoGet calls")
    message_bytes: ByteCount = Field(default=4 << 20, ge=1 << 16, description="largest inbound gRPC message")
    nats_pending_bytes: ByteCount = Field(default=128 << 20, ge=1 << 20, description="NATS messages not yet queued")
    nats_message_id_bytes: ByteCount = Field(
        default=256 << 20, ge=1 << 20, description="ids remembered by streams with nats_acks: jetstream"
    )
    grace_ms: Milliseconds = Field(
        default=60_000,
        description="how long files of deleted and purged partitions are kept; counted again from each start",
    )
    journal_from_dirty_files: int = Field(
        default=4,
        ge=0,
        le=1 << 20,
        description="from this number of partitions to sync at once, their batches go to the write-ahead log; a few"
        " small batches stay there while it has earlier ones of their partition; 0 = never",
    )
    open_segments: int = Field(
        default=512, ge=1, le=1 << 20, description="open segment files; a segment with unsynced writes stays open"
    )


class BrokerSettings(_Section):
    """Identity and addresses."""

    cluster_id: str = Field(default="bascule-default", min_length=1, max_length=255, description="name of the cluster")
    broker_id: Tokens | None = Field(
        default=None, description="id of this broker, without white space, * and >; unset = generated once and stored"
    )
    namespace: Tokens = Field(
        default="liftbridge-default", description="prefix of internal NATS subjects, without white space, * and >"
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="bind address")
    port: int = Field(default=9292, ge=0, le=65535, description="bind port; 0 = a free one")
    advertised_host: str | None = Field(
        default=None, description="host advertised to clients; unset = the bind address"
    )
    advertised_port: int | None = Field(
        default=None, ge=0, le=65535, description="port advertised to clients; unset or 0 = the bound port"
    )
    runtime_threads: int = Field(
        default=0, ge=0, le=256, description="threads of the data plane; 0 = half of the cores, at least one"
    )
    drain_ms: Milliseconds = Field(default=5_000, description="how long a stop waits for calls to end")


class TlsSettings(_Section):
    """TLS on the port of Liftbridge and Flight. Files are PEM; SIGHUP reads them again."""

    certificate_file: FilePath | None = Field(
        default=None, description="the broker's certificate, then intermediate certificates; unset = plain text"
    )
    key_file: FilePath | None = Field(default=None, description="its private key, without a password")
    min_version: Literal["1.2", "1.3"] = Field(default="1.3", description="oldest accepted version of TLS")
    client_auth: Literal["none", "required"] = Field(
        default="none", description="required = clients must present a certificate, whose common name identifies them"
    )
    client_ca_file: FilePath | None = Field(
        default=None, description="authorities whose client certificates are accepted; unset = the system's"
    )

    @field_validator("min_version", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, float) else value

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("tls.certificate_file and tls.key_file go together: set both or none")
        if self.client_auth == "required" and self.certificate_file is None:
            raise ValueError("tls.client_auth is required without TLS: set tls.certificate_file and tls.key_file")
        if self.client_auth == "none" and self.client_ca_file is not None:
            raise ValueError('tls.client_ca_file has no effect without tls.client_auth: set that to "required"')
        return self


class AccessSettings(_Section):
    """What clients may do. Without a policy they may do everything; SIGHUP reads it again."""

    policy_file: FilePath | None = Field(
        default=None, description="policy: YAML (.yaml, .yml), or Casbin's CSV; what it does not allow is denied"
    )
    model_file: FilePath | None = Field(
        default=None, description="Casbin model of a CSV policy; unset = client, resource and action match exactly"
    )

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        if self.model_file is not None and self.policy_file is None:
            raise ValueError("access.model_file goes with a policy: set access.policy_file")
        return self


class ScrubSettings(_Section):
    """Scrubs: reading all sealed segments regularly, to detect damage while a backup still has the records."""

    period_ms: Milliseconds = Field(
        default=7 * 86_400_000, description="every sealed segment is read and checked once in this time; 0 = never"
    )
    rate_bytes: ByteCount = Field(
        default=32 << 20, description="bytes per second, of the whole broker, that a scrub reads; 0 = no scrub"
    )


class LogSettings(_Section):
    """Structured logs, to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="lowest level shown")
    format: Literal["auto", "json", "text"] = Field(
        default="auto",
        description="one JSON object per line, or plain lines; auto = plain lines on a terminal, else JSON",
    )


class Settings(_Section):
    """All settings of a broker."""

    data_dir: FilePath = Field(default=Path("bascule-data"), description="directory of all durable data")
    broker: BrokerSettings = BrokerSettings()
    cluster: ClusterSettings = ClusterSettings()
    nats: NatsSettings = NatsSettings()
    streams: StreamDefaults = StreamDefaults()
    encryption: EncryptionSettings = EncryptionSettings()
    groups: GroupSettings = GroupSettings()
    cursors: CursorSettings = CursorSettings()
    activity: ActivitySettings = ActivitySettings()
    tls: TlsSettings = TlsSettings()
    access: AccessSettings = AccessSettings()
    limits: LimitSettings = LimitSettings()
    scrub: ScrubSettings = ScrubSettings()
    http: HttpSettings = HttpSettings()
    iggy: IggySettings = IggySettings()
    metrics: MetricsSettings = MetricsSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        check_cluster(self)
        if not self.nats.standalone and not self.nats.servers:
            raise ValueError("nats.servers is empty and nats.standalone is false: name a server or set standalone")
        if self.nats.password is not None and self.nats.password_file is not None:
            raise ValueError("nats.password and nats.password_file are both set: keep the file")
        if self.access.policy_file is not None and self.tls.client_auth != "required":
            raise ValueError(
                "access.policy_file needs clients that are known by a certificate: set tls.client_auth to required"
            )
        return self
