"""Runs a project with `spark-pipelines` of PySpark, and with settings that a project cannot have in its own file."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bascule.errors import StateError
from bascule.spark.declarative.project import SPECIFICATION
from bascule.spark.quiet import JVM_OPTIONS, quiet_options
from bascule.spark.sessions import SETTINGS, start_homes
from bascule.spark.usage import usage

__all__ = ["Refresh", "run_project"]

NEEDED: Final = ("grpc", "grpc_status", "google.rpc", "zstandard", "yaml", "pandas", "pyarrow")
"""Modules that `spark-pipelines` imports, which the package `pyspark` does not bring."""

REMEDY: Final = "pip install 'bascule[declarative]'"

SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
"""Environment variable of PySpark: options of the JVM, then `pyspark-shell`. The user's own come last and win."""
_SHELL: Final = "pyspark-shell"
CATALOG: Final = "spark.sql.catalogImplementation"

CONNECT_PORT: Final = 15002
"""TCP, on all addresses: of the Spark Connect server that `spark-pipelines` starts. Fixed in Spark 4.3."""

_END_SECONDS: Final = 10
"""How long the processes of an interrupted run may take to end before they are killed."""
_LOOK_SECONDS: Final = 0.05
"""Between two looks at them: there is no event for the end of the last process of a group."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """Which tables a run brings up to date, by name; nothing = all tables by what is new."""

    only: Sequence[str] = ()
    """Only these."""

    full: Sequence[str] = ()
    """These are emptied and computed from the start."""

    all_full: bool = False
    """All are emptied and computed from the start; then `only` and `full` are empty."""

    def arguments(self) -> list[str]:
        """Options of `spark-pipelines run`.

        Raises:
            UsageError: `all_full` is given with tables.
        """
        if self.all_full and (self.only or self.full):
            raise usage("a full refresh of all tables takes no names of tables")
        listed = [("--refresh", self.only), ("--full-refresh", self.full)]
        named = [text for option, tables in listed if tables for text in (option, ",".join(tables))]
        return [*named, *(["--full-refresh-all"] if self.all_full else [])]


def run_project(
    folder: Path,
    *,
    master: str = "local[*]",
    refresh: Refresh | None = None,
    dry_run: bool = False,
    config: Mapping[str, str] | None = None,
) -> int:
    """Run a project once: each flow reads what is new and ends.

    The tables are in the project's folders `catalog` and `warehouse`, unless `config` names another catalog: the
    default catalog of Spark forgets its tables, and the second run would fail.

    Args:
        folder: of the project, with `spark-pipeline.yml`.
        master: Spark's master URL.
        refresh: which tables; None = all by what is new.
        dry_run: check the project and its tables, and run nothing.
        config: settings of Spark; they win.

    Returns:
        The exit code of `spark-pipelines`; 0 = the run has completed.

    Raises:
        UsageError: there is no project, or `refresh` is given to a dry run.
        StateError: `failed_precondition`: a package or Java is missing; names what to install. Or another run, or
            another program, holds the port of Spark Connect on this machine.
        KeyboardInterrupt: by Ctrl-C; all processes of the run have ended.
    """
    folder = folder.absolute()
    specification = folder / SPECIFICATION
    if not specification.is_file():
        raise usage(f"{folder} has no {SPECIFICATION}: create a project with bascule spark init", folder=str(folder))
    arguments = (refresh or Refresh()).arguments()
    if dry_run and arguments:
        raise usage("a dry run takes no tables to refresh")
    _check_packages()
    if not master.startswith("sc://"):  # of a Spark Connect server that runs
        _check_port()
    settings = _settings(folder, config or {})
    # Everything that the run starts in the project's folder, as a log of the catalog, stays there.
    command = [
        str(_program()),
        "dry-run" if dry_run else "run",
        *("--remote", master),  # what Spark Connect calls the master
        *("--spec", str(specification)),
        *arguments,
    ]
    return _run_group(command, folder, _environment(master, settings))


def _run_group(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int:
    """Run a command in a process group of its own, which ends with this call: its JVM, too, when it is interrupted."""
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, process_group=0)
    try:
        return process.wait()
    except BaseException:
        _end_group(process)
        raise


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # all of the group have ended
        os.killpg(process.pid, signal.SIGTERM)
        give_up = time.monotonic() + _END_SECONDS
        while time.monotonic() < give_up:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(_LOOK_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _settings(folder: Path, config: Mapping[str, str]) -> dict[str, str]:
    """Settings of the command line, with a catalog on this machine's disk that remembers tables.

    Those of the catalog are static: a project's own file, which Spark reads after its start, cannot give them.
    """
    catalog = {CATALOG: "hive", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    derby = f'-Dderby.system.home="{folder / "catalog"}" {config.get(JVM_OPTIONS, "")}'.strip()
    return {**SETTINGS, **catalog, **config, JVM_OPTIONS: quiet_options(derby, repeats=True) or derby}


def _environment(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    given = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    given |= {name: str(path) for name, path in start_homes(master, quiet=True).items()}
    # Not as options of the command: PySpark 4.3 passes on only the last ten of them.
    confs = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    own = shlex.split(os.environ.get(SUBMIT_ARGUMENTS, _SHELL))
    given[SUBMIT_ARGUMENTS] = shlex.join([*confs, *own])
    if master.startswith("local"):
        given.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return given


def _check_packages() -> None:
    missing = [name for name in NEEDED if not _is_installed(name)]
    if missing:
        raise StateError("failed_precondition", f"Spark's pipelines need {', '.join(missing)}: {REMEDY}")


def _check_port() -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", CONNECT_PORT))
        except OSError as error:
            raise StateError(
                "failed_precondition",
                f"port {CONNECT_PORT}, which Spark's pipelines need on this machine, cannot be used: {error.strerror}. "
                "One project at a time runs on a machine: wait for the end of the other",
            ) from error


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def _program() -> Path:
    """`spark-pipelines` of SPARK_HOME, else of the package."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise StateError("failed_precondition", f"Spark's pipelines need pyspark: {REMEDY}")
    home = os.environ.get("SPARK_HOME")
    return (Path(home) if home else Path(found.origin).parent) / "bin" / "spark-pipelines"
