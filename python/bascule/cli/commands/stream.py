"""`bascule stream create | list | show | delete`, and the group of all commands on streams."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

from typing import Annotated, Final

import typer

from bascule._text import counted
from bascule.cli.command_group import Commands
from bascule.cli.commands.completion import StreamName
from bascule.cli.commands.stream_delete import purge, trim
from bascule.cli.commands.stream_edit import edit, pause, readonly, resume
from bascule.cli.commands.stream_settings import Given, with_settings
from bascule.cli.connection import Connection, connected
from bascule.cli.options import DryRun, Output, Yes
from bascule.cli.prompt import ask
from bascule.cli.render.output import OutputFormat, render
from bascule.cli.render.results import StreamChange, StreamRow
from bascule.cli.render.stream_view import StreamView, summary
from bascule.client import Client, StreamOptions
from bascule.errors import AccessError, StateError

__all__ = ["app"]

app: Final = Commands(help="Create, show, change, empty and delete streams.")


@app.command()
@connected()
@with_settings
def create(
    settings: Given,
    connection: Connection,
    name: Annotated[str, typer.Argument(help="Name of the stream.")],
    *,
    subject: Annotated[
        str | None, typer.Option("--subject", "-s", help="NATS subject, wildcards allowed. [default: the name]")
    ] = None,
    partitions: Annotated[int | None, typer.Option(min=1, max=1000, help="Number of partitions. [default: 1]")] = None,
    replication_factor: Annotated[
        int, typer.Option(min=-1, help="Brokers that keep each partition; -1 = all of them.")
    ] = 1,
    group: Annotated[str, typer.Option(help="NATS queue group.")] = "",
    encryption: Annotated[
        bool | None, typer.Option("--encryption/--no-encryption", help="Encrypt it at rest; needs a master key.")
    ] = None,
    partition_by_subject: Annotated[
        bool | None,
        typer.Option("--partition-by-subject/--no-partition-by-subject", help="The NATS subject picks the partition."),
    ] = None,
    exist_ok: Annotated[
        bool,
        typer.Option(
            "--exist-ok",
            help="Accept an existing stream with the same subject, partitions, group, encryption and partitioning; "
            "its other settings are not changed (see stream edit).",
        ),
    ] = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create a stream. Other settings are those of the broker's configuration.

    Examples:
        bascule stream create orders --subject 'orders.>'

        bascule stream create metrics --partitions 4 --retention-max-age 7d
    """
    options = StreamOptions(
        partitions=partitions,
        replication_factor=replication_factor,
        group=group,
        encryption=encryption,
        partition_by_subject=partition_by_subject,
        **settings,
    )
    with connection.open() as client:
        client.create_stream(name, subject, options=options, exist_ok=exist_ok, dry_run=dry_run)
        row = StreamChange("create", name, subject or name, partitions or 1, 0, dry_run)
        found = _there(client, name) if exist_ok else None
        if found is not None:
            row = StreamChange("create", name, found.subject, found.partitions, found.records, dry_run)
    render(row, output)


def _there(client: Client, name: str) -> StreamRow | None:
    """The stream; `None` = it does not exist, as with `--dry-run`, or the client may not see it."""
    try:
        return StreamRow.of(client.get_stream(name))
    except AccessError:
        return None
    except StateError as failure:
        if failure.code != "stream_not_found":
            raise
        return None


@app.command("list")
@connected()
def list_all(
    connection: Connection,
    *,
    namespace: Annotated[
        str, typer.Option("--namespace", help="Namespace of the streams: a stream of Iggy's clients, or default.")
    ] = "default",
    output: Output = OutputFormat.TABLE,
) -> None:
    """List all streams of a namespace.

    Examples:
        bascule stream list

        bascule stream list --namespace default --output json
    """
    with connection.open() as client:
        render([StreamRow.of(stream) for stream in client.list_streams(namespace=namespace)], output)


@app.command()
@connected()
def show(
    connection: Connection,
    name: StreamName,
    *,
    everything: Annotated[
        bool,
        typer.Option("--all", help="All settings and counters, also in the table; other formats always have them."),
    ] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show one stream: its settings and the state of its partitions, and, if there are any, NATS messages that were not
    stored, failures and damaged offsets.

    Examples:
        bascule stream show orders --all

        bascule stream show orders --output yaml
    """
    with connection.open() as client:
        view = StreamView.of(client.describe_stream(name), client.describe_broker())
    if output is OutputFormat.TABLE and not everything:
        render(summary(view), output)
    else:
        whole = output in {OutputFormat.JSON, OutputFormat.YAML, OutputFormat.TABLE}
        render(view if whole else view.partitions, output)


@app.command()
@connected()
def delete(
    connection: Connection,
    name: StreamName,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete a stream with all its records. Asks first, unless `--yes`.

    Examples:
        bascule stream delete orders

        bascule stream delete orders --yes
    """
    with connection.open() as client:
        row = StreamRow.of(client.get_stream(name))
        if not dry_run:
            held = "its records" if row.records is None else counted(row.records, "record")
            ask(f"Delete stream {name} with {held}?", name=name, connection=connection, yes=yes)
            client.delete_stream(name)
    render(StreamChange("delete", name, row.subject, row.partitions, row.records, dry_run), output)


app.command()(edit)
app.command()(pause)
app.command()(resume)
app.command()(readonly)
app.command()(trim)
app.command()(purge)
