"""A broker in this process: `Broker` starts and stops one, `run` is for the command line."""

from bascule.server.broker import Broker
from bascule.server.config_reload import ConfigSource
from bascule.server.files import check_files
from bascule.server.run import run

__all__ = ["Broker", "ConfigSource", "check_files", "run"]
