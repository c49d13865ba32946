"""One real broker for all conformance tests; each test has a stream of its own."""

import itertools
import re
from collections.abc import Iterator

import pytest
from bascule.testing import TestBroker, broker


@pytest.fixture(scope="session")
def running() -> Iterator[TestBroker]:
    """A standalone broker with its nats-server."""
    with broker() as started:
        yield started


NUMBERS = itertools.count()


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, nor the same one when it runs again."""
    name = re.sub(r"\W+", "-", request.node.name)
    return f"{name}-{next(NUMBERS)}"
