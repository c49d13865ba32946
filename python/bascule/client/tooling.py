"""What tools that ship with the SDK use beyond its public names: the command line and the tests of the documentation.

Programs use `bascule.client`; the names here may change in any version.
"""

from bascule.client._core.address import addresses, connection_pool, protection
from bascule.client._core.many import Many
from bascule.client._core.refusals import no_partition
from bascule.client.sync import opened

__all__ = ["Many", "addresses", "connection_pool", "no_partition", "opened", "protection"]
