"""The replicated state of the cluster: what it is, how commands change it, and how both become bytes.

Pure: nothing here opens a file, reads a clock, draws a random number or logs. The same commands give the same state
and the same digest in every interpreter. Choices (placement, timestamps, ids of brokers) are made by the proposer
and recorded in the command as facts.
"""

from bascule.metadata.apply import apply
from bascule.metadata.commands import (
    Command,
    CommandError,
    CreateStream,
    DeleteStream,
    Placement,
    RegisterBroker,
    decode_command,
    encode_command,
)
from bascule.metadata.model import (
    DEFAULT_NAMESPACE,
    MAX_PARTITIONS,
    Broker,
    Namespace,
    Partition,
    State,
    Stream,
    StreamKey,
    StreamSettings,
    initial_state,
)
from bascule.metadata.results import Applied, Refused, RefusedCode, Result
from bascule.metadata.snapshot import SnapshotError, decode_snapshot, digest, encode_snapshot

__all__ = [
    "DEFAULT_NAMESPACE",
    "MAX_PARTITIONS",
    "Applied",
    "Broker",
    "Command",
    "CommandError",
    "CreateStream",
    "DeleteStream",
    "Namespace",
    "Partition",
    "Placement",
    "Refused",
    "RefusedCode",
    "RegisterBroker",
    "Result",
    "SnapshotError",
    "State",
    "Stream",
    "StreamKey",
    "StreamSettings",
    "apply",
    "decode_command",
    "decode_snapshot",
    "digest",
    "encode_command",
    "encode_snapshot",
    "initial_state",
]
