"""Fixtures of the fault tests: one broker per module, and a check that it survived."""

from collections.abc import Generator

import pytest
from bascule import testing

from .raw import Raw


@pytest.fixture(scope="module")
def broker() -> Generator[testing.TestBroker]:
    """A broker for the module; after its tests the broker must be alive and must not have logged an internal error."""
    with testing.broker() as running:
        pid = running.pid
        yield running
        with Raw(running.address) as raw:
            raw.create_stream("epilogue")
            assert raw.publish("epilogue", b"still here") == 0
            assert [record.value for record in raw.read("epilogue")] == [b"still here"]
        assert running.pid == pid
        assert "panicked" not in running.log
        assert "Traceback" not in running.log


@pytest.fixture
def raw(broker: testing.TestBroker) -> Generator[Raw]:
    """A connection to the broker."""
    with Raw(broker.address) as connection:
        yield connection
