"""`bascule config show | check | import`."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from bascule.cli.command_group import Commands
from bascule.cli.commands.config_file import resolved as resolved_from
from bascule.cli.commands.serve import check_files
from bascule.cli.options import ConfigFile, Output, as_path
from bascule.cli.render.output import OutputFormat, render
from bascule.cli.render.results import Setting

__all__ = ["app"]

app: Final = Commands(help="Show and check settings.")


@app.command()
def show(
    *,
    config_file: ConfigFile = None,
    origin: Annotated[bool, typer.Option("--origin", help="Also show where each value comes from.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the settings of a broker that would be started here. Secrets are never shown.

    Examples:
        bascule config show

        bascule config show --config broker.yaml --origin
    """
    from bascule import config  # noqa: PLC0415 (takes longer to load than most commands to run)

    resolved = resolved_from(config_file)
    values = dict(config.leaves(config.document(resolved.settings)))
    rows = [Setting(key, value, resolved.origins.get(key, "default")) for key, value in values.items()]
    if origin:
        render(rows, output)
    elif output in {OutputFormat.JSON, OutputFormat.YAML}:
        # nested, so that it can be a configuration file
        render(config.file_document(resolved.settings), output)
    else:
        render([{"key": row.key, "value": row.value} for row in rows], output)


@app.command()
def check(
    config_file: Annotated[Path, typer.Argument(parser=as_path, metavar="FILE", help="YAML file with settings.")],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Check a configuration file with the environment, and the files it names: certificates, policies, keys.

    Exits with 2 and one line if something is not valid. The port, the data directory and NATS are not checked.

    Examples:
        bascule config check broker.yaml

        bascule config check broker.yaml --output json
    """
    from bascule import config  # noqa: PLC0415 (takes longer to load than most commands to run)

    resolved = resolved_from(config_file)
    check_files(resolved.settings)
    _warn(config.contradictions(resolved.settings))
    render({"file": str(config_file), "valid": True, "settings": len(resolved.origins)}, output)


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        typer.echo(f"bascule: {sentence}", err=True)


@app.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(parser=as_path, metavar="FILE", help="Configuration file of a Liftbridge server.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            parser=as_path,
            metavar="FILE",
            help="File to write, which must not exist; - = standard output, the default.",
        ),
    ] = None,
) -> None:
    """Convert a Liftbridge configuration into one of Bascule, with comments on the differences.

    Examples:
        bascule config import liftbridge.yaml

        bascule config import liftbridge.yaml --output bascule.yaml
    """
    from bascule.cli.liftbridge.import_file import import_file  # noqa: PLC0415 (as above)
    from bascule.errors import UsageError  # noqa: PLC0415 (as above)

    text, warnings = import_file(file)
    _warn(warnings)
    if output is None or output == Path("-"):
        typer.echo(text, nl=False)
        return
    try:
        # It may contain a password.
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as target:
            target.write(text)
    except OSError as failure:
        message = f"cannot write {output}: {failure.strerror}; name a file that does not exist yet"
        raise UsageError("invalid_argument", message, {"file": str(output)}) from None
