"""Names that the command line, Spark's sink and the documentation tests use beyond the public ones of the SDK.

Programs use `bascule.client`; the names here may change in any version.
"""

from bascule.client._core.address import addresses, connection_pool, protection
from bascule.client._core.deadline import Deadline
from bascule.client._core.many import Many
from bascule.client._core.refusals import no_partition
from bascule.client.sync import connect_with_pool

__all__ = ["Deadline", "Many", "addresses", "connect_with_pool", "connection_pool", "no_partition", "protection"]
