"""Fixtures that run one suite with both clients."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest
from bascule import Client
from bascule.testing import TestBroker, broker

from tests.integration.sdk.blocking import Blocking


@pytest.fixture(scope="session")
def running() -> Iterator[TestBroker]:
    """A standalone broker with cursors that all tests share; each test has its own stream."""
    with broker(settings={"cursors.partitions": 3}) as started:
        yield started


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest, running: TestBroker) -> Iterator[Client]:
    """A connected client, synchronous or asynchronous."""
    if request.param == "sync":
        with running.connect() as connected:
            yield connected
        return
    loop = asyncio.new_event_loop()
    with Blocking(running.connect_async(), loop) as blocking:
        yield cast("Client", cast("Any", blocking))
    loop.close()
