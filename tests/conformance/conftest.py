"""One real broker for all conformance tests; each test has its own stream."""

from collections.abc import Iterator

import pytest
from bascule.testing import TestBroker, broker

from tests.names import fresh


@pytest.fixture(scope="session")
def running() -> Iterator[TestBroker]:
    """A standalone broker with its nats-server."""
    with broker() as started:
        yield started


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    """A name that no other test, and no repetition of this test, uses."""
    return fresh(request.node.name)
