"""`bascule spark`: what Spark needs on this machine, tables for its SQL, replays, and declarative pipelines."""

# ruff: noqa: PLR0913, PLR0917 (a command has its options as parameters)
import re
import sys
from typing import Annotated, Final

import typer

from bascule.cli.command_group import Commands
from bascule.cli.commands.spark_project import init, run
from bascule.cli.commands.spark_replay import copy, redrive, replay
from bascule.cli.connection import Connection, connected
from bascule.cli.options import Output, pairs
from bascule.cli.render.output import OutputFormat, render
from bascule.errors import UsageError

__all__ = ["app"]

FAILED: Final = 1
"""Exit code when a check has failed."""

app: Final = Commands(
    help="Check what Spark needs, print tables for its SQL, replay archives, and run declarative pipelines."
)


@app.command("doctor")
@connected()
def doctor(
    connection: Connection,
    master: Annotated[str, typer.Option("--master", help="Spark's master URL.")] = "local[*]",
    start: Annotated[bool, typer.Option("--start", help="Start a session as well, and run a task in it.")] = False,
    output: Output = OutputFormat.TABLE,
) -> int:
    """Check the interpreters, packages, Java, settings and broker that Spark needs. Exits with 1 if a check has failed.

    Examples:
        bascule spark doctor

        bascule spark doctor --master 'local[2,4]' --output json
    """
    from bascule.spark.machine_checks import doctor as check  # noqa: PLC0415 (imports what other commands do not need)
    from bascule.spark.machine_checks import started  # noqa: PLC0415 (as above)

    findings = check(address=connection.spark_address, master=master)
    if start:
        findings = started(findings, master)
    render(findings, output)
    return FAILED if any(finding.outcome == "failed" for finding in findings) else 0


@app.command("ddl")
@connected()
def ddl(
    connection: Connection,
    pattern: Annotated[str, typer.Option("--pattern", help="Regular expression that whole stream names match.")] = ".*",
    database: Annotated[str | None, typer.Option("--database", help="Database of the tables.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="NAME=VALUE: option of the source for each table; repeatable.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", help="STREAM=NAME: another name of a table; repeatable.")
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print the CREATE TABLE statement of each stream for SQL of Spark: as text with --output table, else as data.

    Examples:
        bascule spark ddl > tables.sql

        bascule spark ddl --pattern 'orders.*' --option columns=offset,timestamp,value
    """
    from bascule.spark.catalog import table_statements  # noqa: PLC0415 (imports what other commands do not need)

    try:
        wanted = re.compile(pattern)
    except re.error as cause:
        raise UsageError("invalid_argument", f"--pattern {pattern!r} is not a regular expression: {cause}") from None
    options = {"address": connection.spark_address, **pairs("--option", option)}
    with connection.open() as client:
        streams = [stream.name for stream in client.list_streams()]
    chosen = sorted(name for name in streams if wanted.fullmatch(name) and not name.startswith("__"))
    statements = table_statements(chosen, options, database=database, tables=pairs("--table", table))
    if output is not OutputFormat.TABLE:
        render(statements, output)
    elif statements:
        sys.stdout.writelines(f"{each.sql};\n" for each in statements)
    else:
        sys.stderr.write("no stream matches\n")


app.command("replay")(replay)
app.command("copy")(copy)
app.command("redrive")(redrive)
app.command("init")(init)
app.command("run")(run)
