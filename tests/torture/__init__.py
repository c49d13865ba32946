"""Rigs that break the log engine and a single broker on purpose, and count what became of acked records.

`python -m tests.torture S3 --full` runs one row of the scoreboard and writes `docs/reliability/<row>.json`;
without `--full` it runs the short share that `make test` runs and writes nothing.
"""
