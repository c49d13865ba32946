"""The keys of a Liftbridge configuration. Each is translated to a setting, accepted without effect and reported, or
rejected with the reason; none is dropped silently.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from bascule.cli.liftbridge.values import (
    ack_policy,
    address,
    boolean,
    duration_ms,
    integer,
    level,
    names,
    port,
    segment_age_ms,
    text,
)

__all__ = ["KEYS", "Key", "Parser", "flattened"]

Parser = Callable[[object], object]


@dataclass(frozen=True, slots=True)
class Key:
    """One key.

    Attributes:
        parse: parses the given value.
        setting: dotted key of Bascule; empty = none, or resolved from several keys together.
        same: accepted values, which match the behaviour of this broker.
        reason: why any other value is rejected; empty = no value is rejected.
        idle: the note for a key without effect; empty = the key has an effect.
        joint: whether the setting is resolved together with other keys (in `security`).
    """

    parse: Parser
    setting: str = ""
    same: tuple[object, ...] = ()
    reason: str = ""
    idle: str = ""
    joint: bool = False


def _sets(setting: str, parse: Parser) -> Key:
    return Key(parse, setting=setting)


def _joint(setting: str, parse: Parser) -> Key:
    return Key(parse, setting=setting, joint=True)


def _refused(parse: Parser, reason: str, *same: object) -> Key:
    return Key(parse, same=same, reason=reason)


def _idle(parse: Parser, note: str) -> Key:
    return Key(parse, idle=note)


_CLUSTER: Final = "clusters are not supported yet: this broker runs alone"
_ALONE: Final = "a broker that runs alone does not need it"
_NO_RAFT: Final = "this broker does not store Raft snapshots"

KEYS: Final[dict[str, Key]] = {
    "listen": Key(address),
    "host": Key(text),
    "port": Key(port),
    "data.dir": _sets("data_dir", text),
    "metadata.cache.max.age": _idle(duration_ms, "metadata is never cached"),
    "logging.level": _sets("log.level", level),
    "logging.recovery": _idle(boolean, "recovery logs one line for each partition"),
    "logging.raft": _idle(boolean, "there is no Raft log"),
    "logging.nats": _idle(boolean, "warnings and errors of nats-server are in the log of the broker"),
    "batch.max.messages": _sets("streams.batch_max_messages", integer),
    "batch.max.time": _idle(duration_ms, "batches never wait: records that arrive during a sync join the next one"),
    "tls.key": _joint("tls.key_file", text),
    "tls.cert": _joint("tls.certificate_file", text),
    "tls.client.auth.enabled": _joint("tls.client_auth", boolean),
    "tls.client.auth.ca": _joint("tls.client_ca_file", text),
    "tls.client.authz.enabled": _joint("access.policy_file", boolean),
    "tls.client.authz.model": _joint("access.model_file", text),
    "tls.client.authz.policy": _joint("access.policy_file", text),
    "nats.servers": _sets("nats.servers", names),
    "nats.user": _sets("nats.user", text),
    "nats.password": _sets("nats.password", text),
    "nats.tls.cert": _sets("nats.tls.certificate_file", text),
    "nats.tls.key": _sets("nats.tls.key_file", text),
    "nats.tls.ca": _sets("nats.tls.ca_file", text),
    "nats.embedded": _sets("nats.standalone", boolean),
    "nats.embedded.config": _sets("nats.config", text),
    "streams.retention.max.bytes": _sets("streams.retention_max_bytes", integer),
    "streams.retention.max.messages": _sets("streams.retention_max_messages", integer),
    "streams.retention.max.age": _sets("streams.retention_max_age_ms", duration_ms),
    "streams.cleaner.interval": _sets("streams.cleaner_interval_ms", duration_ms),
    "streams.segment.max.bytes": _sets("streams.segment_max_bytes", integer),
    "streams.segment.max.age": _sets("streams.segment_max_age_ms", segment_age_ms),
    "streams.compact.enabled": _sets("streams.compact_enabled", boolean),
    "streams.compact.max.goroutines": _idle(
        integer, "one partition is compacted at a time, at streams.compact_max_bytes_per_second"
    ),
    "streams.auto.pause.time": _sets("streams.auto_pause_time_ms", duration_ms),
    "streams.auto.pause.disable.if.subscribers": _sets("streams.auto_pause_disable_if_subscribers", boolean),
    "streams.concurrency.control": _sets("streams.concurrency_control", boolean),
    "streams.encryption": _sets("streams.encryption", boolean),
    "clustering.server.id": _sets("broker.broker_id", text),
    "clustering.namespace": _sets("broker.namespace", text),
    "clustering.raft.snapshot.retain": _idle(integer, _NO_RAFT),
    "clustering.raft.snapshot.threshold": _idle(integer, _NO_RAFT),
    "clustering.raft.cache.size": _idle(integer, _NO_RAFT),
    "clustering.raft.bootstrap.seed": _idle(boolean, ""),
    "clustering.raft.bootstrap.peers": _refused(names, _CLUSTER),
    "clustering.raft.max.quorum.size": _idle(integer, _ALONE),
    "clustering.replica.max.lag.time": _idle(duration_ms, _ALONE),
    "clustering.replica.max.leader.timeout": _idle(duration_ms, _ALONE),
    "clustering.replica.max.idle.wait": _idle(duration_ms, _ALONE),
    "clustering.replica.fetch.timeout": _idle(duration_ms, _ALONE),
    "clustering.min.insync.replicas": _sets("streams.min_isr", integer),
    "clustering.replication.max.bytes": _sets("streams.max_record_bytes", integer),
    "activity.stream.enabled": _sets("activity.enabled", boolean),
    "activity.stream.publish.timeout": _sets("activity.publish_timeout_ms", duration_ms),
    "activity.stream.publish.ack.policy": _idle(ack_policy, "events are always written durably, and in order"),
    "cursors.stream.partitions": _sets("cursors.partitions", integer),
    "cursors.stream.replication.factor": _idle(integer, _ALONE),
    "cursors.stream.auto.pause.time": _sets("cursors.auto_pause_time_ms", duration_ms),
    "groups.consumer.timeout": _sets("groups.consumer_timeout_ms", duration_ms),
    "groups.coordinator.timeout": _sets("groups.coordinator_timeout_ms", duration_ms),
    "telemetry.enabled": _idle(boolean, ""),
    "telemetry.interval.seconds": _idle(integer, ""),
}
"""All keys of Liftbridge, in the order of its documentation."""


def flattened(
    document: Mapping[object, object] | Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, object]]:
    """Dotted keys in lower case with their values. A key may be a value and a section (`nats.embedded`)."""
    for name, value in document.items():
        key = f"{prefix}{name}".lower()
        if isinstance(value, Mapping):
            yield from flattened(cast("Mapping[object, object]", value), f"{key}.")
        else:
            yield key, value
