//! Generated from `specs/errors.toml` by `specs/generate_errors.py`: edit that, then `make fix`.

/// The code of an error, the same in both planes, in every protocol and in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// the data directory is used by a running broker
    DataDirectoryLocked,
    /// the data directory belongs to another broker or cluster
    DataDirectoryForeign,
    /// the data directory was written by a newer version
    DataDirectoryNewer,
    /// the data directory cannot be used
    DataDirectoryUnusable,
    /// the address is in use
    AddressInUse,
    /// the address cannot be bound
    AddressUnusable,
    /// the configuration is not valid
    ConfigurationInvalid,
    /// no nats-server binary was found
    NatsServerMissing,
    /// the nats-server did not start
    NatsServerFailed,
    /// NATS is not connected
    NatsUnavailable,
    /// the metadata log is damaged
    MetadataDamaged,
    /// the metadata operation did not finish in time
    MetadataTimeout,
    /// no majority of the cluster's brokers answers
    NoQuorum,
    /// another data directory is the one of this broker id
    BrokerIdInUse,
    /// this is not available with several brokers yet
    ClusterUnsupported,
    /// the broker is stopping
    MetadataStopped,
    /// the request is not valid
    InvalidArgument,
    /// stream already exists
    StreamExists,
    /// stream does not exist
    StreamNotFound,
    /// partition does not exist
    PartitionNotFound,
    /// not found
    NotFound,
    /// a record cannot be decoded, or fails an expectation that it must meet
    RecordInvalid,
    /// this broker does not lead the partition
    NotLeader,
    /// the operation is not allowed in the current state
    FailedPrecondition,
    /// fewer replicas are in sync than the stream's min ISR
    NotEnoughReplicas,
    /// the partition is read-only
    Readonly,
    /// incorrect expected offset
    IncorrectOffset,
    /// the partition has its maximum number of producers, and all of them are active
    TooManyProducers,
    /// the producer's sequence does not follow
    SequenceGap,
    /// a newer generation of the producer exists
    ProducerFenced,
    /// the stream was deleted and created again
    IncarnationChanged,
    /// the log was replaced by another one
    HistoryChanged,
    /// the offset is outside the log
    OffsetOutOfRange,
    /// the subscription reached its end
    EndOfStream,
    /// the message is larger than the limit
    TooLarge,
    /// not allowed
    PermissionDenied,
    /// the TLS handshake was refused: a certificate is missing, expired or not trusted
    TlsFailed,
    /// the client is not identified
    Unauthenticated,
    /// the broker accepts no more work at the moment
    Busy,
    /// no space is left in the data directory
    DiskFull,
    /// the files of the partition are missing: restore them, or delete the stream
    PartitionMissing,
    /// the disk failed: writes are refused
    StorageFailed,
    /// stored data is damaged
    Damaged,
    /// the broker cannot be reached
    Unavailable,
    /// the write may or may not have happened
    OutcomeUnknown,
    /// the deadline passed
    DeadlineExceeded,
    /// not supported by this version
    Unimplemented,
    /// already closed
    Closed,
    /// the data plane cannot be used in a forked child
    Forked,
    /// no usable master key is configured, so nothing can be encrypted
    EncryptionUnavailable,
    /// records are encrypted with a key that is not configured
    EncryptionKeyMissing,
    /// another archive has the records of the stream
    ArchiveConflict,
    /// the archive lacks records that the broker has
    ArchiveGap,
    /// the stream lets no query hold its records
    HoldNotAllowed,
    /// the query holds no records of the stream
    HoldNotFound,
    /// the query still reports, and would hold its records again
    QueryActive,
    /// another client reports the positions of the query
    QueryNotOwned,
    /// the broker keeps no more positions of queries
    TooManyQueries,
    /// an earlier epoch of the sink is decided and not linked everywhere yet
    SinkBusy,
    /// the sink belongs to another query, write or attempt
    SinkConflict,
    /// the epoch does not follow the last one of the sink
    SinkEpoch,
    /// this attempt of the epoch expired or was aborted
    SinkExpired,
    /// a newer run or query writes to the sink
    SinkFenced,
    /// sink does not exist
    SinkNotFound,
    /// the sink belongs to another client
    SinkNotOwned,
    /// a broker does not hold the staged rows that the epoch claims
    SinkPiecesMissing,
    /// the epoch of the sink is published
    SinkPublished,
    /// staged rows exceed the quota of the sink or the broker
    SinkQuota,
    /// the repeated epoch has other rows than the published one
    SinkReplayDiffers,
    /// rows could not be staged
    StageFailed,
    /// a defect of the broker
    Internal,
}

impl ErrorCode {
    /// Every code, in the order of the enumeration.
    pub const ALL: [Self; 71] = [
        Self::DataDirectoryLocked,
        Self::DataDirectoryForeign,
        Self::DataDirectoryNewer,
        Self::DataDirectoryUnusable,
        Self::AddressInUse,
        Self::AddressUnusable,
        Self::ConfigurationInvalid,
        Self::NatsServerMissing,
        Self::NatsServerFailed,
        Self::NatsUnavailable,
        Self::MetadataDamaged,
        Self::MetadataTimeout,
        Self::NoQuorum,
        Self::BrokerIdInUse,
        Self::ClusterUnsupported,
        Self::MetadataStopped,
        Self::InvalidArgument,
        Self::StreamExists,
        Self::StreamNotFound,
        Self::PartitionNotFound,
        Self::NotFound,
        Self::RecordInvalid,
        Self::NotLeader,
        Self::FailedPrecondition,
        Self::NotEnoughReplicas,
        Self::Readonly,
        Self::IncorrectOffset,
        Self::TooManyProducers,
        Self::SequenceGap,
        Self::ProducerFenced,
        Self::IncarnationChanged,
        Self::HistoryChanged,
        Self::OffsetOutOfRange,
        Self::EndOfStream,
        Self::TooLarge,
        Self::PermissionDenied,
        Self::TlsFailed,
        Self::Unauthenticated,
        Self::Busy,
        Self::DiskFull,
        Self::PartitionMissing,
        Self::StorageFailed,
        Self::Damaged,
        Self::Unavailable,
        Self::OutcomeUnknown,
        Self::DeadlineExceeded,
        Self::Unimplemented,
        Self::Closed,
        Self::Forked,
        Self::EncryptionUnavailable,
        Self::EncryptionKeyMissing,
        Self::ArchiveConflict,
        Self::ArchiveGap,
        Self::HoldNotAllowed,
        Self::HoldNotFound,
        Self::QueryActive,
        Self::QueryNotOwned,
        Self::TooManyQueries,
        Self::SinkBusy,
        Self::SinkConflict,
        Self::SinkEpoch,
        Self::SinkExpired,
        Self::SinkFenced,
        Self::SinkNotFound,
        Self::SinkNotOwned,
        Self::SinkPiecesMissing,
        Self::SinkPublished,
        Self::SinkQuota,
        Self::SinkReplayDiffers,
        Self::StageFailed,
        Self::Internal,
    ];

    /// The name in `specs/errors.toml`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DataDirectoryLocked => "data_directory_locked",
            Self::DataDirectoryForeign => "data_directory_foreign",
            Self::DataDirectoryNewer => "data_directory_newer",
            Self::DataDirectoryUnusable => "data_directory_unusable",
            Self::AddressInUse => "address_in_use",
            Self::AddressUnusable => "address_unusable",
            Self::ConfigurationInvalid => "configuration_invalid",
            Self::NatsServerMissing => "nats_server_missing",
            Self::NatsServerFailed => "nats_server_failed",
            Self::NatsUnavailable => "nats_unavailable",
            Self::MetadataDamaged => "metadata_damaged",
            Self::MetadataTimeout => "metadata_timeout",
            Self::NoQuorum => "no_quorum",
            Self::BrokerIdInUse => "broker_id_in_use",
            Self::ClusterUnsupported => "cluster_unsupported",
            Self::MetadataStopped => "metadata_stopped",
            Self::InvalidArgument => "invalid_argument",
            Self::StreamExists => "stream_exists",
            Self::StreamNotFound => "stream_not_found",
            Self::PartitionNotFound => "partition_not_found",
            Self::NotFound => "not_found",
            Self::RecordInvalid => "record_invalid",
            Self::NotLeader => "not_leader",
            Self::FailedPrecondition => "failed_precondition",
            Self::NotEnoughReplicas => "not_enough_replicas",
            Self::Readonly => "readonly",
            Self::IncorrectOffset => "incorrect_offset",
            Self::TooManyProducers => "too_many_producers",
            Self::SequenceGap => "sequence_gap",
            Self::ProducerFenced => "producer_fenced",
            Self::IncarnationChanged => "incarnation_changed",
            Self::HistoryChanged => "history_changed",
            Self::OffsetOutOfRange => "offset_out_of_range",
            Self::EndOfStream => "end_of_stream",
            Self::TooLarge => "too_large",
            Self::PermissionDenied => "permission_denied",
            Self::TlsFailed => "tls_failed",
            Self::Unauthenticated => "unauthenticated",
            Self::Busy => "busy",
            Self::DiskFull => "disk_full",
            Self::PartitionMissing => "partition_missing",
            Self::StorageFailed => "storage_failed",
            Self::Damaged => "damaged",
            Self::Unavailable => "unavailable",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Unimplemented => "unimplemented",
            Self::Closed => "closed",
            Self::Forked => "forked",
            Self::EncryptionUnavailable => "encryption_unavailable",
            Self::EncryptionKeyMissing => "encryption_key_missing",
            Self::ArchiveConflict => "archive_conflict",
            Self::ArchiveGap => "archive_gap",
            Self::HoldNotAllowed => "hold_not_allowed",
            Self::HoldNotFound => "hold_not_found",
            Self::QueryActive => "query_active",
            Self::QueryNotOwned => "query_not_owned",
            Self::TooManyQueries => "too_many_queries",
            Self::SinkBusy => "sink_busy",
            Self::SinkConflict => "sink_conflict",
            Self::SinkEpoch => "sink_epoch",
            Self::SinkExpired => "sink_expired",
            Self::SinkFenced => "sink_fenced",
            Self::SinkNotFound => "sink_not_found",
            Self::SinkNotOwned => "sink_not_owned",
            Self::SinkPiecesMissing => "sink_pieces_missing",
            Self::SinkPublished => "sink_published",
            Self::SinkQuota => "sink_quota",
            Self::SinkReplayDiffers => "sink_replay_differs",
            Self::StageFailed => "stage_failed",
            Self::Internal => "internal",
        }
    }

    /// The code of this name; `None` for a name that this version does not know.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == name)
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
