"""A real broker for tests: `with bascule.testing.broker() as broker: …`."""

from bascule.testing.broker import TestBroker, broker, broker_async

__all__ = ["TestBroker", "broker", "broker_async"]
