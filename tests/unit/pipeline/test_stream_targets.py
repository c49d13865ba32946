"""What the sink of a job asks of Spark's writer. Spark does not run."""

import json
from typing import Any, Self, cast

import pytest
from bascule.pipeline.dead_letters import Origin
from bascule.pipeline.files import parse_job
from bascule.pipeline.targets import streams
from bascule.pipeline.targets.streams import JobSink, StreamTarget

JOB = {
    "name": "orders",
    "source": {"stream": "orders"},
    "decode": {"value": "variant", "onDecodeError": "dlq"},
    "targets": [{"format": "bascule", "stream": "large"}],
    "deadLetters": {"format": "bascule", "stream": "dead"},
    "checkpoint": "checkpoint",
}


class Frame:
    """A DataFrame and its writer, which keeps the options of each save."""

    schema = None

    def __init__(self) -> None:
        self.saved: list[dict[str, str]] = []
        self._options: dict[str, str] = {}

    @property
    def write(self) -> Self:
        """Itself."""
        return self

    def format(self, _: str) -> Self:
        """Itself."""
        return self

    def mode(self, _: str) -> Self:
        """Itself."""
        return self

    def unionByName(self, _: Self) -> Self:  # noqa: N802 - Spark's name
        """Itself."""
        return self

    def options(self, **options: str) -> Self:
        """Itself, with these."""
        self._options = options
        return self

    def save(self) -> None:
        """Keep the options."""
        self.saved.append(self._options)


def test_an_epoch_for_several_streams_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_uniform", lambda frame, _: frame)
    monkeypatch.setattr(StreamTarget, "check", lambda *_: None)
    monkeypatch.setattr(JobSink, "partitions", lambda _, names: dict.fromkeys(names, 1))
    job = parse_job(JOB)
    sink = JobSink.of(job)
    frame: Any = Frame()
    parts = [(StreamTarget(section, sink), frame) for section in job.streams]
    sink.write(parts, Origin("orders", "query", 0))
    sink.write(parts[:1], Origin("orders", "query", 1))
    both, one = cast("Frame", frame).saved
    assert (both["sinkId"], json.loads(both["streams"]), "stream" in both) == ("orders", ["large", "dead"], False)
    assert (one["sinkId"], one["stream"], "streams" in one) == ("orders", "large", False)
