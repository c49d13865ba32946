"""A real broker for tests: `with bascule.testing.broker() as broker: …`."""

from bascule.testing.broker import TestBroker, broker, broker_async, broker_in_process
from bascule.testing.in_process import InProcessBroker
from bascule.testing.running import RunningBroker

__all__ = ["InProcessBroker", "RunningBroker", "TestBroker", "broker", "broker_async", "broker_in_process"]
