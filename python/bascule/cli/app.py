"""The `bascule` command: its sub-commands, exit codes and error messages.

Data goes to standard output, everything else to standard error. A failure that a user can cause is one line, never a
traceback. Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 denied, 5 unavailable, 6 conflict, 7 outcome unknown,
130 interrupted.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version as distribution_version
from typing import Annotated, Final

import typer

from bascule.cli.command_group import Commands
from bascule.cli.commands import (
    archive,
    benchmark,
    cluster,
    configuration,
    consume,
    context,
    cursor,
    group,
    hold,
    iggy,
    lag,
    log,
    pipeline,
    produce,
    serve,
    sink,
    spark,
    status,
    stream,
)
from bascule.cli.commands.completion import completion, register_shells
from bascule.cli.options import Output
from bascule.cli.render.output import OutputFormat, render
from bascule.cli.render.results import Version
from bascule.cli.render.usage import usage
from bascule.errors import BrokerError

__all__ = ["app", "end_with", "main"]

FAILURE: Final = 1
INTERRUPTED: Final = 130

app: Final = Commands(
    name="bascule",
    help="A durable message log for NATS that speaks Liftbridge and serves every stream as a table.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("status")(status.status)
app.add_typer(cluster.app, name="cluster")
app.add_typer(stream.app, name="stream")
app.add_typer(log.app, name="log")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(cursor.app, name="cursor")
app.add_typer(group.app, name="group")
app.command("lag")(lag.lag)
app.add_typer(hold.app, name="hold")
app.add_typer(sink.app, name="sink")
app.add_typer(iggy.app, name="iggy")
app.add_typer(pipeline.app, name="pipeline")
app.command("bench")(benchmark.bench)
app.add_typer(spark.app, name="spark")
app.add_typer(archive.app, name="archive")
app.add_typer(context.app, name="context")
app.add_typer(configuration.app, name="config")
app.command("completion")(completion)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"bascule {distribution_version('bascule')}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A durable message log for NATS that speaks Liftbridge and serves every stream as a table."""
    del version


@app.command()
def version(output: Output = OutputFormat.TABLE) -> None:
    """Show the versions of the package, its data plane and Python.

    Examples:
        bascule version

        bascule version --output json
    """
    render(Version.of_this_process(distribution_version("bascule")), output)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; `None` = that of this process). Returns the exit code."""
    register_shells()
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and not sys.stdout.isatty():
        reconfigure(encoding="utf-8")  # `produce` reads the output of `consume` in any locale
    return end_with(lambda: app(args=arguments, prog_name="bascule", standalone_mode=False), "bascule", with_codes=True)


def end_with(command: Callable[[], object], program: str, *, with_codes: bool = False) -> int:
    """Run `command`. Returns its exit code, and writes at most one line to standard error; it names the error code of
    `specs/errors.toml` if `with_codes`.
    """
    sentence = ""
    try:
        result = command()
        sys.stdout.flush()
        code = result if isinstance(result, int) else 0
    except BrokerError as failure:
        sentence = f"{failure} ({failure.code})" if with_codes else str(failure)
        code = failure.exit_code
    except typer.TyperException as failure:
        sentence, code = usage(failure), failure.exit_code
        if sentence and with_codes:
            sentence += " (invalid_argument)"
    except typer.Abort:
        sentence, code = "nothing was done", FAILURE
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # the reader of the output has closed it: nothing may be flushed into the broken pipe at exit
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILURE
    except OSError as failure:
        name = "" if failure.filename is None else f"{failure.filename}: "
        sentence, code = f"{name}{failure.strerror or failure}", FAILURE
    except UnicodeEncodeError as failure:
        sentence = (
            f"the terminal's encoding {failure.encoding} has no {failure.object[failure.start]!r}: set LC_ALL=C.UTF-8"
        )
        code = FAILURE
    if sentence:
        sys.stderr.write(f"{program}: {' '.join(sentence.split())}\n")
    return code
