"""The stream that cursors lie on: created when it is wanted and missing; the data plane reads and writes it."""

import asyncio
from dataclasses import replace
from typing import Final

from bascule.control.controller import Controller
from bascule.control.decide import ALL_BROKERS, StreamRequest
from bascule.errors import BrokerError
from bascule.logs import emit
from bascule.metadata import DEFAULT_NAMESPACE, StreamKey, StreamSettings
from bascule.metadata.rejection import RejectedError

AGAIN_S: Final = 0.2
PROPOSE_S: Final = 10.0
MOST_REPLICAS: Final = 3
"""Of the stream, on a cluster of more brokers."""

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


async def prepare(  # noqa: PLR0913 - two by name
    controller: Controller,
    subject: str,
    partitions: int,
    timeout_s: float,
    *,
    encrypted: bool = False,
    replicas: int = ALL_BROKERS,
) -> None:
    """Create the stream with so many partitions and replicas, `encrypted` or not, when there is none; 0 partitions =
    cursors are off.

    Raises:
        StateError: `encryption_unavailable`: it is to be encrypted and there is no usable master key.
        RejectedError: more partitions than a stream may have.
        BrokerError: as `MetadataLog.propose`.
    """
    if partitions and controller.state.stream(*CURSORS) is None:
        settings = replace(SETTINGS, encryption=encrypted or None)
        request = StreamRequest(*CURSORS, subject, "", partitions, replicas, settings)
        await controller.create_stream(request, timeout_s)


async def prepare_replicated(controller: Controller, subject: str, partitions: int, brokers: int) -> None:
    """Create the stream with so many partitions and a replica on each of `MOST_REPLICAS` brokers, when there is none: a
    duty of the controller of a cluster of so many `brokers`. Waits until enough of them are live. 0 partitions =
    cursors are off.
    """
    replicas = min(brokers, MOST_REPLICAS)
    failed = ""
    while partitions and controller.state.stream(*CURSORS) is None:
        live = sum(broker.run == "confirmed" for broker in controller.state.brokers.values())
        if live >= replicas:
            try:
                await prepare(controller, subject, partitions, PROPOSE_S, replicas=replicas)
            except (RejectedError, BrokerError) as failure:
                if (text := str(failure)) != failed:
                    emit(30, "cursors", f"the stream for cursors is not created yet: {text}")
                failed = text
        await asyncio.sleep(AGAIN_S)
