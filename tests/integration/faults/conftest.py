"""What the fault tests share: one broker for each module, and a check that it survived."""

from collections.abc import Generator

import pytest
from bascule import testing

from .raw import Raw


@pytest.fixture(scope="module")
def broker() -> Generator[testing.TestBroker]:
    """A broker of the module's own; it must be alive, and have had no defect, when the module's tests are through."""
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
    """A connection to it."""
    with Raw(broker.address) as connection:
        yield connection
