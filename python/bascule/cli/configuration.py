"""`bascule config show | check`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from bascule.cli.options import ConfigFile, Output
from bascule.cli.output import OutputFormat, render
from bascule.cli.results import Setting

__all__ = ["app"]

app: Final = typer.Typer(help="Show and check settings.", no_args_is_help=True)


@app.command()
def show(
    *,
    config_file: ConfigFile = None,
    origin: Annotated[bool, typer.Option("--origin", help="Also say where each value comes from.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the settings that a broker started here would have. Secrets lie in files and are never shown.

    Examples:
        bascule config show

        bascule config show --config broker.yaml --origin
    """
    from bascule import config  # noqa: PLC0415 (takes longer to load than most commands to run)

    resolved = config.resolve(config_file)
    values = dict(_leaves(resolved.settings.model_dump(mode="json"), ""))
    rows = [Setting(key, value, resolved.origins.get(key, "default")) for key, value in values.items()]
    if origin:
        render(rows, output)
    elif output in {OutputFormat.JSON, OutputFormat.YAML}:
        # nested, so that it can be a configuration file
        render(resolved.settings.model_dump(mode="json"), output)
    else:
        render([{"key": row.key, "value": row.value} for row in rows], output)


@app.command()
def check(
    config_file: Annotated[Path, typer.Argument(help="YAML file with settings.")], output: Output = OutputFormat.TABLE
) -> None:
    """Check a configuration file, together with the environment; exits with 2 and one line when it is not valid.

    Examples:
        bascule config check broker.yaml

        bascule config check broker.yaml --output json
    """
    from bascule import config  # noqa: PLC0415 (takes longer to load than most commands to run)

    resolved = config.resolve(config_file)
    render({"file": str(config_file), "valid": True, "settings": len(resolved.origins)}, output)


def _leaves(document: dict[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _leaves(cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
