"""Rigs that inject faults into the log engine and a single broker, and check acked records.

`python -m tests.torture S3 --full` runs one row of the scoreboard and writes `docs/reliability/<row>.json`;
without `--full` it runs the short share that `make test` runs and writes nothing.
"""
