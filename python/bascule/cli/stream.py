"""`bascule stream create | list | show | delete | trim | purge`."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

from datetime import timedelta
from typing import Annotated, Final

import typer

from bascule._units import parse_bytes, parse_duration_ms
from bascule.cli.options import DEFAULT_URL, DryRun, Output, Timeout, Url, Yes
from bascule.cli.output import OutputFormat, render
from bascule.cli.prompt import ask
from bascule.cli.removal import purge, trim
from bascule.cli.results import StreamChange, StreamRow, StreamView
from bascule.client import StreamOptions, connect
from bascule.errors import StateError, UsageError

__all__ = ["app"]

TIMEOUT: Final = 10.0

app: Final = typer.Typer(help="Create, list, show, trim, purge and delete streams.", no_args_is_help=True)
app.command()(trim)
app.command()(purge)

Name = Annotated[str, typer.Argument(help="Name of the stream.")]
Size = Annotated[str | None, typer.Option(help='E.g. "64MiB", "10GB"; 0 = unlimited.')]
Age = Annotated[str | None, typer.Option(help='E.g. "12h", "7d"; 0 = unlimited.')]


@app.command()
def create(
    name: Name,
    *,
    subject: Annotated[
        str | None, typer.Option("--subject", "-s", help="NATS subject, wildcards allowed; the name when left out.")
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Number of partitions.")] = 1,
    group: Annotated[str, typer.Option(help="NATS queue group.")] = "",
    retention_max_age: Age = None,
    retention_max_bytes: Size = None,
    retention_max_messages: Annotated[int | None, typer.Option(min=0, help="0 = unlimited.")] = None,
    segment_max_bytes: Size = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="Fine when it is there already.")] = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = TIMEOUT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create a stream.

    Examples:
        bascule stream create orders --subject 'orders.>'

        bascule stream create metrics --partitions 4 --retention-max-age 7d
    """
    options = StreamOptions(
        partitions=partitions,
        group=group,
        retention_max_age=_age("--retention-max-age", retention_max_age),
        retention_max_bytes=_size("--retention-max-bytes", retention_max_bytes),
        retention_max_messages=retention_max_messages,
        segment_max_bytes=_size("--segment-max-bytes", segment_max_bytes),
    )
    with connect(url, timeout=timeout, name="bascule-cli") as client:
        if dry_run:
            there = [stream for stream in client.list_streams() if stream.name == name]
            if there and not exist_ok:
                raise StateError("stream_exists", f"stream {name} exists already", {"stream": name})
        else:
            client.create_stream(name, subject, options=options, exist_ok=exist_ok)
    render(StreamChange("create", name, subject or name, partitions, 0, dry_run), output)


@app.command("list")
def list_all(url: Url = DEFAULT_URL, timeout: Timeout = TIMEOUT, output: Output = OutputFormat.TABLE) -> None:
    """List all streams.

    Examples:
        bascule stream list

        bascule stream list --output json
    """
    with connect(url, timeout=timeout, name="bascule-cli") as client:
        render([StreamRow.of(stream) for stream in client.list_streams()], output)


@app.command()
def show(name: Name, url: Url = DEFAULT_URL, timeout: Timeout = TIMEOUT, output: Output = OutputFormat.TABLE) -> None:
    """Show one stream and its partitions.

    Examples:
        bascule stream show orders

        bascule stream show orders --output yaml
    """
    with connect(url, timeout=timeout, name="bascule-cli") as client:
        render(StreamView.of(client.get_stream(name)), output)


@app.command()
def delete(
    name: Name,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = TIMEOUT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete a stream with all its records. Asks first, unless `--yes`.

    Examples:
        bascule stream delete orders

        bascule stream delete orders --yes
    """
    with connect(url, timeout=timeout, name="bascule-cli") as client:
        row = StreamRow.of(client.get_stream(name))
        if not dry_run:
            if not yes:
                ask(f"Delete stream {name} with {row.records:,} records?")
            client.delete_stream(name)
    render(StreamChange("delete", name, row.subject, row.partitions, row.records, dry_run), output)


def _age(option: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return timedelta(milliseconds=float(str(parse_duration_ms(text))))
    except ValueError as wrong:
        raise UsageError("invalid_argument", f"{option}: {wrong}") from None


def _size(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(str(parse_bytes(text)))
    except ValueError as wrong:
        raise UsageError("invalid_argument", f"{option}: {wrong}") from None
