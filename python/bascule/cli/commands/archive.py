"""`bascule archive`: maintenance of tables that hold the records of streams."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bascule._text import counted
from bascule.cli.command_group import Commands
from bascule.cli.commands.completion import StreamName
from bascule.cli.connection import Connection, connected
from bascule.cli.options import DryRun, Output, Yes
from bascule.cli.prompt import ask
from bascule.cli.render.output import OutputFormat, render
from bascule.errors import UsageError
from bascule.spark.spelling import surface

if TYPE_CHECKING:
    from bascule.lake import Erasure

__all__ = ["app"]

app: Final = Commands(help="Maintain archives: tables in Delta, Iceberg or Parquet with the records of streams.")

Table = Annotated[str, typer.Argument(help="Folder of the archive, s3://bucket/folder, or of Iceberg its name.")]
Place = Annotated[str | None, typer.Option(help="Catalog of an Iceberg table, as pyiceberg's configuration names it.")]
Credentials = Annotated[
    str | None, typer.Option(help="File with storage options or properties of the catalog. [default: the environment]")
]
_FLAGS: Final = {
    "path": "argument ARCHIVE",
    "tableFormat": "--format",
    **{name: f"--{name}" for name in ("catalog", "credentials", "endpoint", "region")},
}
"""How the command spells the options of an archive."""


@app.command("erase")
@connected()
@surface(_FLAGS)
def erase(
    connection: Connection,
    stream: StreamName,
    archive: Table,
    *,
    key: Annotated[str, typer.Option("--key", "-k", help="Key of the records, as text.")],
    key_is_hex: Annotated[bool, typer.Option("--hex", help="The key is given in hexadecimal.")] = False,
    subject: Annotated[str | None, typer.Option(help="Only records with this subject; needs --no-tombstone.")] = None,
    format: Annotated[str, typer.Option("--format", help="delta, iceberg or parquet.")] = "delta",  # noqa: A002
    catalog: Place = None,
    credentials: Credentials = None,
    endpoint: Annotated[str | None, typer.Option(help="URL of an S3 service other than AWS.")] = None,
    region: Annotated[str | None, typer.Option(help="Region of the bucket.")] = None,
    tombstone: Annotated[
        bool, typer.Option("--tombstone/--no-tombstone", help="Also publish a null value of the key to the stream.")
    ] = True,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Erase every record of a key from an archive of a stream, and publish a tombstone to the stream. Asks first,
    unless `--yes`. The same command completes an erasure that was interrupted. It prints what it does not reach.

    Examples:
        bascule archive erase orders lake/orders --key customer-17 --dry-run

        bascule archive erase orders lake/orders --key customer-17 --yes
    """
    from bascule import lake  # noqa: PLC0415 - imports what other commands do not need

    table_format: Any = format
    options = lake.ArchiveOptions(
        archive, table_format, credentials=credentials, endpoint=endpoint, region=region, catalog=catalog
    )
    wanted: dict[str, Any] = {"stream": stream, "key": _key(key, is_hex=key_is_hex), "subject": subject}
    with ExitStack() as stack:
        wanted["client"] = stack.enter_context(connection.open()) if tombstone else None
        asks = not dry_run and (not yes or connection.protected)
        outcome = lake.erase(options, **wanted, dry_run=dry_run or asks)
        if asks:
            ask(_question(outcome), name=stream, connection=connection, yes=yes)
            outcome = lake.erase(options, **wanted)
    _show(outcome, output)


def _key(text: str, *, is_hex: bool) -> bytes:
    if not is_hex:
        return text.encode()
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(
            "invalid_argument", f"--key {text!r} is not hexadecimal: give two digits for each byte, or leave out --hex"
        ) from None


def _question(preview: "Erasure") -> str:
    question = f"Erase {counted(preview.rows, 'record')} of stream {preview.stream} from {preview.table}"
    tombstones = f", and publish {counted(len(preview.tombstones), 'tombstone')}" if preview.tombstones else ""
    return f"{question}, rewriting {counted(preview.files, 'file')}{tombstones}?"


def _show(outcome: "Erasure", output: OutputFormat) -> None:
    if output is not OutputFormat.TABLE:
        render(outcome, output)
        return
    render(outcome.partitions, output, "the archive has no such record")
    would = "would be " if outcome.dry_run else ""
    files = counted(outcome.files, "file")
    lines = [f"{counted(outcome.rows, 'record')} in {files} of {outcome.table}: {would}erased"]
    for each in outcome.tombstones:
        offset = "" if each.offset is None else f", offset {each.offset}"
        lines.append(f"tombstone in partition {each.partition}{offset} of {outcome.stream}: {would}published")
    sys.stdout.writelines(f"{each}\n" for each in [*lines, *(f"not reached: {each}" for each in outcome.not_reached)])
