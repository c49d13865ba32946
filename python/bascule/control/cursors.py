"""The stream that cursors lie on: created when it is wanted and missing; the data plane reads and writes it."""

from dataclasses import replace
from typing import Final

from bascule.control.controller import Controller
from bascule.control.decide import ALL_BROKERS, StreamRequest
from bascule.metadata import DEFAULT_NAMESPACE, StreamKey, StreamSettings

CURSORS: Final = StreamKey(DEFAULT_NAMESPACE, "__cursors")

SETTINGS: Final = StreamSettings(
    durability="disk",
    nats_copy="none",
    retention_bytes=0,
    retention_messages=0,
    retention_age_ms=0,
    compact_enabled=True,
    auto_pause_disable_if_subscribers=True,
)
"""A cursor never ages: it goes when its key gets a newer one."""


async def prepare(
    controller: Controller, subject: str, partitions: int, timeout_s: float, *, encrypted: bool = False
) -> None:
    """Create the stream with so many partitions, `encrypted` or not, when there is none; 0 = cursors are off.

    Raises:
        StateError: `encryption_unavailable`: it is to be encrypted and there is no usable master key.
        RejectedError: more partitions than a stream may have.
        BrokerError: as `MetadataLog.propose`.
    """
    if partitions and controller.state.stream(*CURSORS) is None:
        settings = replace(SETTINGS, encryption=encrypted or None)
        request = StreamRequest(*CURSORS, subject, "", partitions, ALL_BROKERS, settings)
        await controller.create_stream(request, timeout_s)
