"""The `liftbridge` command: runs a Bascule broker with the flags and configuration of a Liftbridge broker.

Long names are also accepted with a single dash, as in Liftbridge.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, NoReturn, cast

from bascule._paths import parse_path
from bascule.cli.app import end_with
from bascule.cli.commands.serve import run_broker, warn_of_secrets
from bascule.cli.liftbridge.config import translate
from bascule.cli.liftbridge.key_names import in_liftbridge_keys, liftbridge_key, reworded
from bascule.config import Settings
from bascule.errors import BrokerError, UsageError

__all__ = ["Configuration", "main", "parse"]

_TEXT: Final = (
    (("--server-id", "--id"), "clustering.server.id", "ID", "id of this broker"),
    (("--namespace", "--ns"), "clustering.namespace", "NS", "prefix of internal NATS subjects"),
    (("--embedded-nats-config", "--nc"), "nats.embedded.config", "FILE", "nats-server configuration; implies -e"),
    (("--data-dir", "-d"), "data.dir", "DIR", "directory of all durable data"),
    (("--port", "-p"), "port", "N", "port to bind, unless the key listen names one"),
    (("--tls-cert",), "tls.cert", "FILE", "certificate"),
    (("--tls-key",), "tls.key", "FILE", "private key"),
    (("--level", "-l"), "logging.level", "LEVEL", "debug, info, warn or error"),
)
_LISTS: Final = (
    (("--nats-servers", "-n"), "nats.servers", "URL[,URL]", "NATS servers; repeatable"),
    (("--raft-bootstrap-peers",), "clustering.raft.bootstrap.peers", "ID", "ids of the first brokers; repeatable"),
)
_SWITCHES: Final = (
    (("--embedded-nats", "-e"), "nats.embedded", "start and supervise a nats-server"),
    (("--raft-bootstrap-seed",), "clustering.raft.bootstrap.seed", "begin a new cluster"),
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError("invalid_argument", message)


def _with_single_dash(names: Sequence[str]) -> list[str]:
    return [*names, *(name[1:] for name in names if name.startswith("--"))]


def _path(text: str) -> Path:
    try:
        return cast("Path", parse_path(text))
    except ValueError as failure:
        raise argparse.ArgumentTypeError(f"{failure}") from None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="liftbridge",
        description="A Liftbridge broker. Its configuration keys are read from the file and LIFTBRIDGE_ variables.",
        epilog="Examples: liftbridge -embedded-nats -data-dir ./data -raft-bootstrap-seed; liftbridge -c broker.yaml",
        allow_abbrev=False,
    )
    parser.add_argument(
        *_with_single_dash(["--config", "-c"]), dest="file", metavar="FILE", type=_path, help="YAML file"
    )
    for names, key, shown, text in _TEXT:
        parser.add_argument(*_with_single_dash(names), dest=key, metavar=shown, help=text)
    for names, key, shown, text in _LISTS:
        parser.add_argument(*_with_single_dash(names), dest=key, metavar=shown, action="append", help=text)
    for names, key, text in _SWITCHES:
        # as in Go: `-e` alone, or with `=true` and `=false`
        parser.add_argument(*_with_single_dash(names), dest=key, nargs="?", const=True, metavar="true|false", help=text)
    shown = f"liftbridge (bascule {version('bascule')})"
    parser.add_argument("--version", "-version", "-v", action="version", version=shown)
    return parser


def parse(arguments: Sequence[str]) -> tuple[Path | None, dict[str, object]]:
    """The configuration file and the flags, by Liftbridge key.

    Raises:
        UsageError: code `invalid_argument`: an unknown flag, or one without its value.
    """
    found = vars(_parser().parse_args(arguments))
    file = found.pop("file")
    return file, {key: value for key, value in found.items() if value is not None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; `None` = that of this process). Returns the exit code."""
    return end_with(lambda: _serve(sys.argv[1:] if arguments is None else arguments), "liftbridge")


class Configuration:
    """The configuration at the start of the broker, and the present one."""

    def __init__(self, file: Path | None, flags: Mapping[str, object]) -> None:
        self._file: Final = file
        self._flags: Final = flags
        self.first: Final = translate(file, os.environ, flags)
        self._latest = self.first

    def reload(self) -> Settings:
        """The present settings."""
        self._latest = translate(self._file, os.environ, self._flags)
        return self._latest.settings

    def key(self, setting: str) -> str:
        """The Liftbridge key of a setting: the one that sets it now, or set it before."""
        return liftbridge_key(setting, self._latest.origins, self.first.origins)


def _serve(arguments: Sequence[str]) -> int:
    try:
        file, flags = parse(arguments)
    except SystemExit as ended:  # --help and --version have been printed
        return int(ended.code or 0)
    configuration = Configuration(file, flags)
    translated = configuration.first
    for note in (*translated.notes, *translated.overruled):
        sys.stderr.write(f"liftbridge: {note}\n")
    try:
        warn_of_secrets(translated.settings, "--nats-servers", cast("Sequence[str]", flags.get("nats.servers", ())))
        return run_broker(translated.settings, configuration.reload, wording=in_liftbridge_keys, name=configuration.key)
    except BrokerError as failure:
        raise reworded(failure) from failure
