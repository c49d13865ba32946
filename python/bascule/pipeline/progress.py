"""The progress of a run: what each epoch did, how fast, and how far the end of the streams is."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TextIO

__all__ = ["EpochReport", "Line", "OnProgress", "as_ndjson", "clock", "report_of", "write_ndjson"]

WIDTH: Final = 100
"""Characters of the line on a terminal."""


@dataclass(frozen=True)
class EpochReport:
    """One finished epoch.

    Attributes:
        job: its name.
        epoch: its number.
        rows: records of the source in it.
        duration_ms: time that it took.
        rows_per_second: rows by that time.
        lag: records behind the ends of the streams after it; None = unknown.
        eta_s: seconds to the end at this rate, of a run that has an end; None = unknown, or none.
        total_rows: records since the job was started.
        total_dead: dead letters since then.
        restarts: restarts since then.
        metrics: counts of decode errors and expectations, by stage and name.
    """

    job: str
    epoch: int
    rows: int
    duration_ms: int
    rows_per_second: float
    lag: int | None
    eta_s: float | None
    total_rows: int
    total_dead: int
    restarts: int
    metrics: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])


OnProgress = Callable[[EpochReport], None]


@dataclass(frozen=True)
class Written:
    """What the epochs have written, for a report."""

    total_rows: int
    total_dead: int
    restarts: int


def report_of(job: str, progress: Mapping[str, Any], written: Written, *, has_end: bool) -> EpochReport:
    """The report of an epoch.

    Args:
        job: its name.
        progress: Spark's progress of the epoch, as its JSON document.
        written: by the run.
        has_end: whether the run ends by itself.
    """
    rows = int(progress.get("numInputRows", 0))
    duration_ms = int(progress.get("durationMs", {}).get("triggerExecution", 0))
    rate = rows * 1000 / duration_ms if duration_ms else 0.0
    lag = lag_of(progress)
    eta = lag / rate if has_end and lag is not None and rate else None
    return EpochReport(
        job,
        int(progress["batchId"]),
        rows,
        duration_ms,
        round(rate, 1),
        lag,
        None if eta is None else round(eta, 1),
        written.total_rows,
        written.total_dead,
        written.restarts,
        {stage: dict(counts) for stage, counts in progress.get("observedMetrics", {}).items()},
    )


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """Records between the end of an epoch and the ends of the streams, by the source's documents; None = unknown."""
    total = 0
    for source in progress.get("sources", ()):
        end, latest = _document(source.get("endOffset")), _document(source.get("latestOffset"))
        if end is None or latest is None:
            return None
        reached = {(stream, part): mark["next"] for stream, parts in end.items() for part, mark in parts.items()}
        for stream, parts in latest.items():
            for part, mark in parts.items():
                total += max(int(mark["next"]) - int(reached.get((stream, part), mark["first"])), 0)
    return total


def _document(offset: Any) -> dict[str, dict[str, Any]] | None:
    """The streams of an offset document, which is text or already parsed."""
    try:
        parsed = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None
    return parsed.get("streams") if isinstance(parsed, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def as_ndjson(report: EpochReport) -> str:
    """One line of JSON."""
    return json.dumps(asdict(report), ensure_ascii=False)


def write_ndjson(report: EpochReport) -> None:
    """Write a report to standard output, for programs."""
    sys.stdout.write(f"{as_ndjson(report)}\n")
    sys.stdout.flush()


class Line:
    """One line on a terminal that each epoch overwrites; nothing elsewhere."""

    def __init__(self, stream: TextIO | None = None, text: Callable[[Any], str] | None = None) -> None:
        """`stream`: where to; None = standard error. `text`: of a report; None = of an epoch of a job."""
        self._text: Final = text_of if text is None else text
        self._stream: Final = sys.stderr if stream is None else stream
        self._is_terminal: Final = self._stream.isatty()
        self._is_open = False
        self._written = float("-inf")

    def __call__(self, report: Any) -> None:
        """Show an epoch, at most 10 times a second."""
        now = time.monotonic()
        if not self._is_terminal or now - self._written < 0.1:
            return
        self._written = now
        self._stream.write(f"\r{self._text(report)[:WIDTH]:{WIDTH}}")
        self._stream.flush()
        self._is_open = True

    def close(self) -> None:
        """End the line. Idempotent."""
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()
            self._is_open = False


def text_of(report: EpochReport) -> str:
    """A report for people, in one line."""
    parts = [
        f"{report.job}: epoch {report.epoch}",
        f"{report.total_rows:,} rows",
        f"{report.rows_per_second:,.0f} rows/s",
        f"lag {'?' if report.lag is None else f'{report.lag:,}'}",
    ]
    if report.total_dead:
        parts.append(f"{report.total_dead:,} dead letters")
    if report.eta_s is not None:
        parts.append(f"{clock(report.eta_s)} left")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """A time for people, as 1:05 or 2:00:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
