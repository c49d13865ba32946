"""Converts settings into the configuration of the engine and of other parts of a broker."""

import json
import os
import secrets
import string
from typing import Any

from bascule.config import ENVIRONMENT_KEY, ENVIRONMENT_KEY_ID, Settings
from bascule.control import Defaults, GroupTimeouts
from bascule.control.activity import ACTIVITY
from bascule.control.autopause import AutoPauseDefaults
from bascule.control.cursors import CURSORS
from bascule.errors import error
from bascule.metadata import StreamSettings
from bascule.protocols.liftbridge import Bounds

ID_LENGTH = 22
CONTROL_LIMITS = ("sinks_per_client", "queries", "queries_per_client")
"""Limits that the control plane applies."""
_ID_LETTERS = string.ascii_letters + string.digits
_ANY = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound
MANIFEST = "bascule.json"


def broker_id(settings: Settings) -> str:
    """The configured id, else the id in the data directory, else a new one."""
    if settings.broker.broker_id:
        return settings.broker.broker_id
    try:
        manifest: Any = json.loads((settings.data_dir / MANIFEST).read_bytes())
        return str(manifest["broker_id"])
    except (OSError, ValueError, KeyError, TypeError):
        # The file does not exist, or cannot be read: the data plane then rejects the directory and names the reason.
        return "".join(secrets.choice(_ID_LETTERS) for _ in range(ID_LENGTH))


def refuse_foreign_files(settings: Settings) -> None:
    """Reject a data directory of a Liftbridge server: an empty broker in it would look like lost streams.

    Raises:
        StateError: `data_directory_unusable`.
    """
    directory = settings.data_dir
    of_liftbridge = any((directory / name).exists() for name in ("streams", "liftbridge", ".instance_id"))
    if (directory / "raft").is_dir() and of_liftbridge and not (directory / MANIFEST).exists():
        text = (
            f"{directory} contains files of a Liftbridge server (raft, streams), which this broker cannot read: name an"
            " empty directory, and copy the records with a client while the old server runs"
        )
        raise error("data_directory_unusable", text, {"directory": str(directory)})


def engine_settings(settings: Settings, identity: str) -> dict[str, Any]:
    """The document of `Engine` (specs/formats/seam.md)."""
    return {
        "data_dir": str(settings.data_dir.absolute()),
        "cluster_id": settings.broker.cluster_id,
        "broker_id": identity,
        "runtime_threads": settings.broker.runtime_threads or max(1, len(os.sched_getaffinity(0)) // 2),
        "namespace": settings.broker.namespace,
        "limits": settings.limits.model_dump(exclude={*Bounds.__dataclass_fields__, *CONTROL_LIMITS}),
        "encryption": {
            "keys": {name: str(file.absolute()) for name, file in settings.encryption.keys.items()},
            "environment": {ENVIRONMENT_KEY_ID: ENVIRONMENT_KEY},
            "current": settings.encryption.current_key,
        },
        "cluster": _cluster(settings, identity),
    }


def _cluster(settings: Settings, identity: str) -> dict[str, Any] | None:
    """What the data plane needs to be one of several brokers; `None` = it is alone."""
    cluster, tls = settings.cluster, settings.cluster.tls
    if not cluster.peers:
        return None
    files = {"certificate": tls.certificate_file, "key": tls.key_file, "authorities": tls.ca_file}
    shown = {name: str(file.absolute()) for name, file in files.items() if file is not None}
    return {"listen": cluster.peer_listen or cluster.peers[identity], "peers": cluster.peers, "tls": shown or None}


def query_bounds(settings: Settings) -> tuple[int, int]:
    """Maximum numbers of queries that report, and of those of one client."""
    return settings.limits.queries, settings.limits.queries_per_client


def bounds(settings: Settings) -> Bounds:
    """Maximum numbers of streams, partitions, groups and cursors."""
    limits = settings.limits
    return Bounds(limits.streams, limits.partitions, limits.groups)


def defaults(settings: Settings) -> Defaults:
    """Defaults of partitions, for settings that their stream does not have."""
    streams = settings.streams
    return Defaults(
        retention_age_ms=streams.retention_max_age_ms,
        retention_bytes=streams.retention_max_bytes,
        retention_messages=streams.retention_max_messages,
        cleaner_interval_ms=streams.cleaner_interval_ms,
        retention_min_age_ms=streams.retention_min_age_ms,
        compact=streams.compact_enabled,
        compact_tombstone_ms=streams.compact_tombstone_age_ms,
        compact_memory_bytes=streams.compact_memory_bytes,
        compact_bytes_per_second=streams.compact_max_bytes_per_second,
        segment_bytes=streams.segment_max_bytes,
        segment_age_ms=streams.segment_max_age_ms,
        max_record_bytes=streams.max_record_bytes,
        batch_records=streams.batch_max_messages,
        min_isr=streams.min_isr,
    )


def group_timeouts(settings: Settings) -> GroupTimeouts:
    """Timeouts of members and coordinators of consumer groups."""
    groups = settings.groups
    return GroupTimeouts(groups.consumer_timeout_ms / 1000, groups.coordinator_timeout_ms / 1000)


def auto_pause(settings: Settings) -> AutoPauseDefaults:
    """When partitions are paused automatically."""
    streams = settings.streams
    # /metrics reads the positions of groups at every scrape, which resumes paused partitions
    shows_groups = settings.http.address is not None and settings.metrics.groups
    # the event of its own pause would resume the activity stream, in an endless loop
    # replicas do not know how to pause together
    never_pauses = shows_groups or bool(settings.cluster.peers)
    overrides = {CURSORS: 0 if never_pauses else settings.cursors.auto_pause_time_ms, ACTIVITY: 0}
    return AutoPauseDefaults(streams.auto_pause_time_ms, streams.auto_pause_disable_if_subscribers, overrides)


def stream_settings(settings: Settings) -> StreamSettings:
    """Settings that are stored with a stream if its creator did not set them."""
    streams = settings.streams
    return StreamSettings(
        durability=streams.durability,
        codec=streams.codec,
        nats_copy=streams.nats_copy,
        nats_acks=streams.nats_acks,
        encryption=streams.encryption or None,
        concurrency_control=streams.concurrency_control,
    )


def advertised(settings: Settings, bound_port: int) -> tuple[str, int]:
    """The advertised host and port."""
    broker = settings.broker
    host = broker.advertised_host or ("localhost" if broker.host in _ANY else broker.host)
    return host, broker.advertised_port or bound_port
