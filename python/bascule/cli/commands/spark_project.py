"""`bascule spark init | run`: projects of Spark Declarative Pipelines over streams."""

# ruff: noqa: PLR0913, PLR0917 (a command has its options as parameters)
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from bascule.cli.connection import Connection, connected
from bascule.cli.interrupts import terminated_as_interrupted
from bascule.cli.options import Output, pairs
from bascule.cli.render.output import OutputFormat, render
from bascule.errors import BrokerError

__all__ = ["init", "run"]

Tables = list[str] | None
DEAD_LETTERS: Final = "_dlq"
"""Follows the name of the stream in that of its dead letters, unless another one is chosen."""


@connected()
def init(
    connection: Connection,
    folder: Annotated[Path, typer.Argument(help="Folder of the project; it does not exist yet, or is empty.")],
    stream: Annotated[str, typer.Option("--stream", help="Stream to read; its values are JSON.")],
    schema: Annotated[
        str | None,
        typer.Option("--schema", help="Columns as in SQL: 'id BIGINT, amount DOUBLE'. Default: one column, VARIANT."),
    ] = None,
    dead_letters: Annotated[
        str | None, typer.Option("--dead-letters", help="Stream for what is not decoded. Default: STREAM_dlq.")
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Write a project of Spark Declarative Pipelines: a raw table, a decoded one, a view, and dead letters. It says
    which of the streams do not exist yet.

    Examples:
        bascule spark init sales --stream sales --schema 'id BIGINT, amount DOUBLE'

        bascule spark init sales --stream sales --dead-letters rejected
    """
    from bascule.spark.declarative import create_project  # noqa: PLC0415 (imports what other commands do not need)

    files = create_project(
        folder, stream=stream, address=connection.spark_address, schema=schema, dead_letters=dead_letters
    )
    render([{"file": str(path)} for path in files], output)
    notes = _missing(connection, (stream, dead_letters or f"{stream}{DEAD_LETTERS}"))
    sys.stderr.writelines(f"{each}\n" for each in [*notes, f"run it: bascule spark run {shlex.quote(str(folder))}"])


def _missing(connection: Connection, streams: Iterable[str]) -> list[str]:
    """What the project lacks at the broker before it can run, in sentences."""
    try:
        with connection.open() as client:
            there = {each.name for each in client.list_streams()}
    except BrokerError as failure:
        return [f"whether its streams exist was not checked: {failure}"]
    create = "create it before the project runs: bascule stream create"
    return [f"stream {name} does not exist; {create} {shlex.quote(name)}" for name in streams if name not in there]


def run(
    folder: Annotated[Path, typer.Argument(help="Folder of the project.")] = Path(),
    master: Annotated[str, typer.Option("--master", help="Spark's master URL.")] = "local[*]",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the project, and run nothing.")] = False,
    refresh: Annotated[Tables, typer.Option("--refresh", help="Update only this table; repeatable.")] = None,
    full_refresh: Annotated[
        Tables, typer.Option("--full-refresh", help="Empty this table and compute it from the start; repeatable.")
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="Empty all tables and compute them from the start.")
    ] = False,
    conf: Annotated[Tables, typer.Option("--conf", help="NAME=VALUE: a setting of Spark; repeatable.")] = None,
) -> int:
    """Run a project of Spark Declarative Pipelines once: each flow reads what is new and ends.

    Examples:
        bascule spark run sales

        bascule spark run sales --full-refresh sales_by_hour
    """
    from bascule.spark.declarative import Refresh, run_project  # noqa: PLC0415 (imports what others do not need)

    chosen = Refresh(only=refresh or (), full=full_refresh or (), all_full=full_refresh_all)
    with terminated_as_interrupted():
        return run_project(folder, master=master, refresh=chosen, dry_run=dry_run, config=pairs("--conf", conf))
