"""`bascule pipeline run | plan | validate | schema`: jobs that read streams with Spark, from one file."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bascule.cli.command_group import Commands
from bascule.cli.connection import DEFAULT_URL, choose
from bascule.cli.options import Output, as_path
from bascule.cli.render.output import OutputFormat, render
from bascule.cli.render.results import JobChecked
from bascule.errors import UsageError
from bascule.spark.connection_options import DEFAULT_ADDRESS

if TYPE_CHECKING:
    from bascule.pipeline import Job

__all__ = ["app"]

INTERRUPTED: Final = 130

app: Final = Commands(help="Run jobs: streams, decoded, checked, selected with SQL and written to tables by Spark.")

JobFile = Annotated[Path, typer.Option("--file", "-f", parser=as_path, metavar="PATH", help="YAML file with the job.")]
Mode = Annotated[
    str | None,
    typer.Option("--mode", metavar="MODE", help="continuous, availableNow or batch, instead of the mode in the file."),
]


@app.command()
def run(file: JobFile, *, mode: Mode = None, output: Output = OutputFormat.TABLE) -> int:
    """Run a job until its end, or until SIGTERM or Ctrl-C, which let the present epoch finish. A terminal shows the
    progress in one line; `--output ndjson` prints each epoch as JSON.

    Examples:
        bascule pipeline run -f job.yaml

        bascule pipeline run -f job.yaml --mode availableNow --output ndjson
    """
    from bascule.pipeline import run as run_job  # noqa: PLC0415 - the models would slow down every command
    from bascule.pipeline.progress import Line, write_ndjson  # noqa: PLC0415

    job = _job_to_run(file, mode)
    line = Line()
    try:
        outcome = run_job(job, on_progress=write_ndjson if output is OutputFormat.NDJSON else line)
    finally:
        line.close()
    if output is not OutputFormat.NDJSON:
        render(outcome, output)
    return INTERRUPTED if outcome.stopped and job.mode != "continuous" else 0


@app.command()
def plan(file: JobFile, *, mode: Mode = None, output: Output = OutputFormat.TABLE) -> int:
    """Show what a run would do: the offsets that a new query reads, or where the checkpoint continues, the columns of
    each stage, the targets. Writes nothing. Exits with 1 if a target would end the run.

    Examples:
        bascule pipeline plan -f job.yaml

        bascule pipeline plan -f job.yaml --output json
    """
    from bascule.pipeline import plan as plan_job  # noqa: PLC0415 - as in `run`

    planned = plan_job(_job_to_run(file, mode))
    render(planned, output)
    return 1 if planned.would_fail else 0


@app.command()
def validate(file: JobFile, output: Output = OutputFormat.TABLE) -> None:
    """Check a job file without Spark, broker or registry: its keys and values. It does not parse SQL, that of
    expectations included; `unchecked` in the result lists what only `plan` checks.

    Examples:
        bascule pipeline validate -f job.yaml

        bascule pipeline validate -f job.yaml --output json
    """
    from bascule.pipeline.model.decoders import Decode  # noqa: PLC0415 - as in `run`

    job = _job(file, None)
    parts = {"sql": job.sql is not None, "expectations": job.expectations.listed(), "schemas": job.decode != Decode()}
    unchecked = ["streams", "tables", *(name for name, is_there in parts.items() if is_there)]
    render(JobChecked(job.name, job.mode, [target.place for target in job.targets], unchecked), output)


@app.command()
def schema() -> None:
    """Print the JSON Schema of job files, for editors.

    Examples:
        bascule pipeline schema

        bascule pipeline schema > job-file.schema.json
    """
    from bascule.pipeline import job_schema  # noqa: PLC0415 - as in `run`

    sys.stdout.write(json.dumps(job_schema(), indent=2, ensure_ascii=False) + "\n")


def _job_to_run(file: Path, mode: str | None) -> "Job":
    """The job; one that names no broker is refused where other commands would use another one than it does.

    Raises:
        UsageError: code `configuration_invalid`: as `from_file`, or `source.address` is missing and `BASCULE_URL` or a
            context names a broker.
    """
    job = _job(file, mode)
    if "address" not in job.source_keys.options():
        chosen = choose(None, None, None, 1)
        if chosen.url != DEFAULT_URL:
            by = f"the context {chosen.context}" if chosen.context else "BASCULE_URL"
            message = (
                f"{file}: source.address is missing, so the job would read from {DEFAULT_ADDRESS}; {by} names "
                f"{chosen.url}, which jobs do not use: write source.address in the file"
            )
            raise UsageError("configuration_invalid", message, {"key": "source.address"})
    return job


def _job(file: Path, mode: str | None) -> "Job":
    from bascule.pipeline import from_file  # noqa: PLC0415 - as in `run`

    return from_file(file, {} if mode is None else {"mode": mode})
