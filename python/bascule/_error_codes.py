"""Generated from specs/errors.toml by specs/generate_errors.py: change it there."""

from typing import Final, NamedTuple


class ErrorCode(NamedTuple):
    """One row of the table."""

    text: str
    class_name: str
    retry: str
    fixer: str
    grpc: str
    http: int
    exit: int


CODES: Final[dict[str, ErrorCode]] = {
    "data_directory_locked": ErrorCode(
        "the data directory is used by a running broker",
        "StateError",
        "never",
        "operator",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "data_directory_foreign": ErrorCode(
        "the data directory belongs to another broker or cluster",
        "StateError",
        "never",
        "operator",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "data_directory_newer": ErrorCode(
        "the data directory was written by a newer version",
        "StateError",
        "never",
        "operator",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "data_directory_unusable": ErrorCode(
        "the data directory cannot be used", "StateError", "never", "operator", "FAILED_PRECONDITION", 409, 1
    ),
    "address_in_use": ErrorCode(
        "the address is in use", "StateError", "never", "operator", "FAILED_PRECONDITION", 409, 6
    ),
    "address_unusable": ErrorCode(
        "the address cannot be bound", "UsageError", "never", "operator", "INVALID_ARGUMENT", 400, 2
    ),
    "configuration_invalid": ErrorCode(
        "the configuration is not valid", "UsageError", "never", "operator", "INVALID_ARGUMENT", 400, 2
    ),
    "nats_server_missing": ErrorCode(
        "no nats-server binary was found", "StateError", "never", "operator", "FAILED_PRECONDITION", 409, 1
    ),
    "nats_server_failed": ErrorCode(
        "the nats-server did not start", "UnavailableError", "backoff", "operator", "UNAVAILABLE", 503, 5
    ),
    "nats_unavailable": ErrorCode(
        "NATS is not connected", "UnavailableError", "backoff", "operator", "UNAVAILABLE", 503, 5
    ),
    "metadata_damaged": ErrorCode(
        "the metadata log is damaged", "CorruptionError", "never", "operator", "DATA_LOSS", 500, 1
    ),
    "metadata_timeout": ErrorCode(
        "the metadata operation did not finish in time", "OutcomeUnknownError", "refresh", "caller", "INTERNAL", 504, 7
    ),
    "no_quorum": ErrorCode(
        "no majority of the cluster's brokers answers", "UnavailableError", "backoff", "operator", "UNAVAILABLE", 503, 5
    ),
    "broker_id_in_use": ErrorCode(
        "another data directory is the one of this broker id",
        "StateError",
        "never",
        "operator",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "cluster_unsupported": ErrorCode(
        "this is not available with several brokers yet", "StateError", "never", "caller", "FAILED_PRECONDITION", 409, 6
    ),
    "metadata_stopped": ErrorCode(
        "the broker is stopping", "UnavailableError", "backoff", "caller", "UNAVAILABLE", 503, 5
    ),
    "invalid_argument": ErrorCode(
        "the request is not valid", "UsageError", "never", "caller", "INVALID_ARGUMENT", 400, 2
    ),
    "stream_exists": ErrorCode("stream already exists", "StateError", "never", "caller", "ALREADY_EXISTS", 409, 6),
    "stream_not_found": ErrorCode("stream does not exist", "StateError", "never", "caller", "NOT_FOUND", 404, 3),
    "partition_not_found": ErrorCode("partition does not exist", "StateError", "never", "caller", "NOT_FOUND", 404, 3),
    "not_found": ErrorCode("not found", "StateError", "never", "caller", "NOT_FOUND", 404, 3),
    "record_invalid": ErrorCode(
        "a record cannot be decoded, or fails an expectation that it must meet",
        "StateError",
        "never",
        "caller",
        "FAILED_PRECONDITION",
        422,
        1,
    ),
    "not_leader": ErrorCode(
        "this broker does not lead the partition", "StateError", "refresh", "caller", "FAILED_PRECONDITION", 421, 5
    ),
    "failed_precondition": ErrorCode(
        "the operation is not allowed in the current state",
        "StateError",
        "refresh",
        "caller",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "not_enough_replicas": ErrorCode(
        "fewer replicas are in sync than the stream's min ISR",
        "StateError",
        "never",
        "operator",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "readonly": ErrorCode("the partition is read-only", "StateError", "never", "caller", "FAILED_PRECONDITION", 409, 6),
    "incorrect_offset": ErrorCode("incorrect expected offset", "StateError", "never", "caller", "ABORTED", 409, 6),
    "too_many_producers": ErrorCode(
        "the partition has its maximum number of producers, and all of them are active",
        "CapacityError",
        "backoff",
        "operator",
        "RESOURCE_EXHAUSTED",
        429,
        5,
    ),
    "sequence_gap": ErrorCode(
        "the producer's sequence does not follow", "StateError", "never", "caller", "FAILED_PRECONDITION", 409, 6
    ),
    "producer_fenced": ErrorCode(
        "a newer generation of the producer exists", "StateError", "never", "caller", "FAILED_PRECONDITION", 409, 6
    ),
    "incarnation_changed": ErrorCode(
        "the stream was deleted and created again", "StateError", "refresh", "caller", "FAILED_PRECONDITION", 409, 6
    ),
    "history_changed": ErrorCode(
        "the log was replaced by another one", "StateError", "never", "operator", "FAILED_PRECONDITION", 409, 6
    ),
    "offset_out_of_range": ErrorCode(
        "the offset is outside the log", "StateError", "never", "caller", "OUT_OF_RANGE", 416, 3
    ),
    "end_of_stream": ErrorCode(
        "the subscription reached its end", "StateError", "never", "caller", "RESOURCE_EXHAUSTED", 200, 0
    ),
    "too_large": ErrorCode(
        "the message is larger than the limit", "UsageError", "never", "caller", "INVALID_ARGUMENT", 413, 2
    ),
    "permission_denied": ErrorCode("not allowed", "AccessError", "never", "caller", "PERMISSION_DENIED", 403, 4),
    "tls_failed": ErrorCode(
        "the TLS handshake was refused: a certificate is missing, expired or not trusted",
        "AccessError",
        "never",
        "caller",
        "UNAUTHENTICATED",
        401,
        4,
    ),
    "unauthenticated": ErrorCode(
        "the client is not identified", "AccessError", "never", "caller", "UNAUTHENTICATED", 401, 4
    ),
    "busy": ErrorCode(
        "the broker accepts no more work at the moment",
        "CapacityError",
        "backoff",
        "caller",
        "RESOURCE_EXHAUSTED",
        429,
        5,
    ),
    "disk_full": ErrorCode(
        "no space is left in the data directory", "CapacityError", "backoff", "operator", "RESOURCE_EXHAUSTED", 507, 5
    ),
    "partition_missing": ErrorCode(
        "the files of the partition are missing: restore them, or delete the stream",
        "CorruptionError",
        "never",
        "operator",
        "DATA_LOSS",
        500,
        1,
    ),
    "storage_failed": ErrorCode(
        "the disk failed: writes are refused", "InternalError", "never", "operator", "INTERNAL", 500, 1
    ),
    "damaged": ErrorCode("stored data is damaged", "CorruptionError", "never", "operator", "DATA_LOSS", 500, 1),
    "unavailable": ErrorCode(
        "the broker cannot be reached", "UnavailableError", "backoff", "caller", "UNAVAILABLE", 503, 5
    ),
    "outcome_unknown": ErrorCode(
        "the write may or may not have happened", "OutcomeUnknownError", "never", "caller", "DEADLINE_EXCEEDED", 504, 7
    ),
    "deadline_exceeded": ErrorCode(
        "the deadline passed", "UnavailableError", "backoff", "caller", "DEADLINE_EXCEEDED", 504, 5
    ),
    "unimplemented": ErrorCode(
        "not supported by this version", "UsageError", "never", "caller", "UNIMPLEMENTED", 501, 2
    ),
    "closed": ErrorCode("already closed", "UsageError", "never", "caller", "CANCELLED", 400, 2),
    "forked": ErrorCode(
        "the data plane cannot be used in a forked child",
        "UsageError",
        "never",
        "caller",
        "FAILED_PRECONDITION",
        500,
        2,
    ),
    "encryption_unavailable": ErrorCode(
        "no usable master key is configured, so nothing can be encrypted",
        "StateError",
        "never",
        "operator",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "encryption_key_missing": ErrorCode(
        "records are encrypted with a key that is not configured",
        "StateError",
        "never",
        "operator",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "archive_conflict": ErrorCode(
        "another archive has the records of the stream", "StateError", "never", "caller", "FAILED_PRECONDITION", 409, 6
    ),
    "archive_gap": ErrorCode(
        "the archive lacks records that the broker has", "StateError", "never", "caller", "FAILED_PRECONDITION", 409, 6
    ),
    "hold_not_allowed": ErrorCode(
        "the stream lets no query hold its records", "StateError", "never", "operator", "FAILED_PRECONDITION", 409, 6
    ),
    "hold_not_found": ErrorCode(
        "the query holds no records of the stream", "StateError", "never", "operator", "NOT_FOUND", 404, 3
    ),
    "query_active": ErrorCode(
        "the query still reports, and would hold its records again",
        "StateError",
        "never",
        "operator",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "query_not_owned": ErrorCode(
        "another client reports the positions of the query",
        "AccessError",
        "never",
        "caller",
        "PERMISSION_DENIED",
        403,
        4,
    ),
    "too_many_queries": ErrorCode(
        "the broker keeps no more positions of queries",
        "CapacityError",
        "backoff",
        "operator",
        "RESOURCE_EXHAUSTED",
        429,
        5,
    ),
    "sink_busy": ErrorCode(
        "an earlier epoch of the sink is decided and not linked everywhere yet",
        "UnavailableError",
        "backoff",
        "operator",
        "UNAVAILABLE",
        503,
        5,
    ),
    "sink_conflict": ErrorCode(
        "the sink belongs to another query, write or attempt",
        "StateError",
        "never",
        "caller",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "sink_epoch": ErrorCode(
        "the epoch does not follow the last one of the sink",
        "StateError",
        "never",
        "caller",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "sink_expired": ErrorCode(
        "this attempt of the epoch expired or was aborted",
        "StateError",
        "never",
        "caller",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "sink_fenced": ErrorCode(
        "a newer run or query writes to the sink", "StateError", "never", "caller", "FAILED_PRECONDITION", 409, 6
    ),
    "sink_not_found": ErrorCode("sink does not exist", "StateError", "never", "caller", "NOT_FOUND", 404, 3),
    "sink_not_owned": ErrorCode(
        "the sink belongs to another client", "AccessError", "never", "caller", "PERMISSION_DENIED", 403, 4
    ),
    "sink_pieces_missing": ErrorCode(
        "a broker does not hold the staged rows that the epoch claims",
        "StateError",
        "never",
        "caller",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "sink_published": ErrorCode(
        "the epoch of the sink is published", "StateError", "never", "caller", "FAILED_PRECONDITION", 409, 6
    ),
    "sink_quota": ErrorCode(
        "staged rows exceed the quota of the sink or the broker",
        "CapacityError",
        "never",
        "operator",
        "RESOURCE_EXHAUSTED",
        429,
        5,
    ),
    "sink_replay_differs": ErrorCode(
        "the repeated epoch has other rows than the published one",
        "StateError",
        "never",
        "caller",
        "FAILED_PRECONDITION",
        409,
        6,
    ),
    "stage_failed": ErrorCode(
        "rows could not be staged", "UnavailableError", "backoff", "operator", "UNAVAILABLE", 503, 5
    ),
    "internal": ErrorCode("a defect of the broker", "InternalError", "never", "developer", "INTERNAL", 500, 1),
}
