"""`python -m bascule.pipeline JOB.yaml`, and the program for `spark-submit`: runs a job as `bascule pipeline run` does.

Under `spark-submit` the session is the submitted one. Progress goes to standard output, one JSON object per epoch.
"""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the job of the only argument; returns the exit code."""
    from bascule.cli.app import end_with  # noqa: PLC0415 - it imports this package

    return end_with(_run, "bascule.pipeline", with_codes=True)


def _run() -> int:
    from bascule.errors import UsageError  # noqa: PLC0415 - with the function above
    from bascule.pipeline import from_file, run  # noqa: PLC0415
    from bascule.pipeline.progress import write_ndjson  # noqa: PLC0415

    if len(sys.argv) != 2:
        raise UsageError("invalid_argument", "give one job file: python -m bascule.pipeline JOB.yaml")
    job = from_file(sys.argv[1])
    outcome = run(job, on_progress=write_ndjson)
    return 130 if outcome.stopped and job.mode != "continuous" else 0


if __name__ == "__main__":
    sys.exit(main())
