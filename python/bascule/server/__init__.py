"""A broker as a process or as a part of one: `Broker` to start and stop, `run` for the command line."""

from bascule.server.broker import Broker
from bascule.server.config_reload import ConfigSource
from bascule.server.files import check_files
from bascule.server.run import run

__all__ = ["Broker", "ConfigSource", "check_files", "run"]
