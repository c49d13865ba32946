"""Liftbridge's admin methods: exact checks, codes and texts; our words behind them.

Liftbridge's streams are those of the namespace `default`. Its high watermark is ours − 1 and its newest offset is the
end − 1, both −1 when there is nothing. Timestamps are nanoseconds, durations milliseconds.

* `streams`, `creation`: CreateStream, DeleteStream, PauseStream, SetStreamReadonly.
* `metadata`: FetchMetadata, FetchPartitionMetadata.
* `groups`: the four calls of consumer groups.
* `authorization`, `neighbours`: which rights a request needs; `creation_guard`: what may begin to exist.
* `messages`, `rejections`: what all of them need.
"""

from bascule.protocols.liftbridge.admin import LiftbridgeAdmin
from bascule.protocols.liftbridge.creation import is_subject
from bascule.protocols.liftbridge.creation_guard import Bounds, CreationGuard, reserved_streams

__all__ = ["Bounds", "CreationGuard", "LiftbridgeAdmin", "is_subject", "reserved_streams"]
