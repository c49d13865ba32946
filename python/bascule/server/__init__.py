"""A broker as a process or as a part of one: `Broker` to start and stop, `run` for the command line."""

from bascule.server.broker import Broker
from bascule.server.files import check_files
from bascule.server.rereading import Reread
from bascule.server.run import run

__all__ = ["Broker", "Reread", "check_files", "run"]
